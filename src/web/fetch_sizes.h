#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace darkroom {

/// How large the next body will be, from the last ones: their upper quartile, so that most bodies fit into what they were admitted with.
/// Thread safety: one thread.
class FetchSizes {
 public:
  static constexpr int64_t kLeast = 16 << 10;
  static constexpr int64_t kMost = 1 << 20;

  void note(int64_t num_bytes) {
    sizes_[num_noted_++ % kRemembered] = num_bytes;
    if (num_noted_ % kEvery == 0) {
      std::vector<int64_t> sorted(sizes_.begin(), sizes_.begin() + static_cast<std::ptrdiff_t>(std::min(num_noted_, kRemembered)));
      const auto quartile = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() * 3 / 4);
      std::nth_element(sorted.begin(), quartile, sorted.end());
      expected_ = std::clamp(*quartile, kLeast, kMost);
    }
  }
  int64_t expected() const { return expected_; }

 private:
  static constexpr size_t kRemembered = 1024;
  static constexpr size_t kEvery = 64;

  std::array<int64_t, kRemembered> sizes_{};
  size_t num_noted_ = 0;
  int64_t expected_ = kLeast;
};

}  // namespace darkroom
