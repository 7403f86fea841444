#include "darkroom/optim/clip.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace darkroom {

namespace {

constexpr int64_t kChunk = 1 << 14;  // Elements a partial sum: part of the result's bits.
constexpr int64_t kLanes = 8;        // Independent sums, so that the loop vectorises: part of the result's bits.

double sum_of_squares(const float* values, int64_t count) {
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[static_cast<size_t>(lane)] += value * value;
    }
  }
  double sum = 0.0;
  for (; i < count; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

}  // namespace

double flat_norm(const torch::Tensor& flat) {
  const float* values = flat.data_ptr<float>();
  const int64_t size = flat.numel();
  std::vector<double> sums(static_cast<size_t>((size + kChunk - 1) / kChunk));
  at::parallel_for(0, static_cast<int64_t>(sums.size()), 4, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      sums[static_cast<size_t>(chunk)] = sum_of_squares(values + chunk * kChunk, std::min(kChunk, size - chunk * kChunk));
    }
  });
  double total = 0.0;
  for (const double sum : sums) {
    total += sum;
  }
  return std::sqrt(total);
}

double clip_coefficient(double norm, double max_norm) { return max_norm > 0.0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

}  // namespace darkroom
