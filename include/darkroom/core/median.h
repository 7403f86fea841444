#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace darkroom {

/// The middle value, or the mean of both middle ones. REQUIRES: not empty, no NaN.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return values.size() % 2 == 1 ? *middle : 0.5 * (*std::max_element(values.begin(), middle) + *middle);
}

}  // namespace darkroom
