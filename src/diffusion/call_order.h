#pragma once

#include <cstddef>
#include <optional>

#include "darkroom/core/check.h"

namespace darkroom {

/// Keeps a multistep sampler's calls in order: the first may be any (image to image starts in the middle), each next one follows. A call
/// that threw before leave() may be made again.
class CallOrder {
 public:
  explicit CallOrder(size_t num_calls) : num_calls_(num_calls) {}

  /// The number of calls before this one. REQUIRES: `index` is the one after the last call's.
  size_t enter(size_t index) const {
    DARKROOM_CHECK(index < num_calls_ && index == next_.value_or(index), "a sampler's calls come in order:", index);
    return next_ ? index - first_ : 0;
  }

  /// The call is made.
  void leave(size_t index) {
    first_ = next_ ? first_ : index;
    next_ = index + 1;
  }

 private:
  size_t num_calls_;
  size_t first_ = 0;
  std::optional<size_t> next_;
};

}  // namespace darkroom
