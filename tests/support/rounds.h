#pragma once

#include <algorithm>
#include <cstdint>

namespace darkroom {

/// How many tries a test makes that draws what it tries: a tenth under ThreadSanitizer, which takes ten to a hundred times as long and
/// looks for races alone. For tests whose tries run in one thread; the other sanitizers and the release build make all of them.
constexpr int64_t rounds(int64_t num_rounds) {
#if defined(__SANITIZE_THREAD__)
  return std::max<int64_t>(1, num_rounds / 10);
#else
  return num_rounds;
#endif
}

/// The same for tests whose tries differ in what they mean, not in what they touch: a tenth under AddressSanitizer, too, which sees as
/// much in a tenth; the release build makes all of them.
constexpr int64_t few_rounds(int64_t num_rounds) {
#if defined(__SANITIZE_ADDRESS__)
  return std::max<int64_t>(1, num_rounds / 10);
#else
  return rounds(num_rounds);
#endif
}

/// Every how many of a row of cases are tried: each, and every fifth under these sanitizers.
inline constexpr int64_t kCaseStride = few_rounds(10) == 10 ? 1 : 5;

}  // namespace darkroom
