#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "fused_update.h"
#include "references.h"

namespace darkroom::reference {
namespace {

constexpr int64_t kGrain = 1 << 16;  // Elements below which a second thread costs more than it gives.
constexpr int64_t kBlock = 2048;     // Elements whose conversions stay in the first-level cache.

constexpr int64_t kLanes = 8;  // Independent sums, so that the loop vectorises: part of the norm's bits.

// Blocks of bfloat16 gradients are widened, and of new weights rounded, beside the one update in float32.
void update_mixed(const AdamWArrays& arrays, const FusedUpdateArrays& flat, const FusedUpdateScalars& scalars, int64_t begin, int64_t end) {
  const bool widens = arrays.gradients.scalar_type() == torch::kBFloat16;
  const auto* narrow_gradients = widens ? arrays.gradients.const_data_ptr<at::BFloat16>() : nullptr;
  auto* compute = arrays.compute.defined() ? arrays.compute.data_ptr<at::BFloat16>() : nullptr;
  std::array<float, kBlock> widened;
  for (int64_t first = begin; first < end; first += kBlock) {
    const int64_t last = std::min(end, first + kBlock);
    if (widens) {
      std::copy(narrow_gradients + first, narrow_gradients + last, widened.begin());
    }
    const FusedUpdateArrays block = {.weights = flat.weights + first,
                                     .gradients = widens ? widened.data() : flat.gradients + first,
                                     .first_moment = flat.first_moment + first,
                                     .second_moment = flat.second_moment + first,
                                     .ema = flat.ema != nullptr ? flat.ema + first : nullptr};
    fused_adamw(block, scalars, 0, last - first);
    if (compute != nullptr) {
      std::copy(flat.weights + first, flat.weights + last, compute + first);
    }
  }
}

template <typename Scalar>
double sum_of_squares(const Scalar* values, int64_t count) {
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(static_cast<float>(values[i + lane]));
      lanes[static_cast<size_t>(lane)] += value * value;
    }
  }
  double sum = 0.0;
  for (; i < count; ++i) {
    const auto value = static_cast<double>(static_cast<float>(values[i]));
    sum += value * value;
  }
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

template <typename Scalar>
torch::Tensor norm_partials_of(const torch::Tensor& flat) {
  const Scalar* values = flat.const_data_ptr<Scalar>();
  const int64_t size = flat.numel();
  torch::Tensor partials = torch::empty({(size + kNormChunk - 1) / kNormChunk}, torch::kFloat64);
  auto* sums = partials.data_ptr<double>();
  at::parallel_for(0, partials.numel(), 4, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      sums[chunk] = sum_of_squares(values + chunk * kNormChunk, std::min(kNormChunk, size - chunk * kNormChunk));
    }
  });
  return partials;
}

}  // namespace

void adamw_update(const AdamWArrays& arrays, const torch::Tensor& scalars) {
  if (!std::isfinite(scalars.const_data_ptr<double>()[AdamWScalar::kGradientScale])) {
    return;
  }
  const FusedUpdateScalars values = rounded(scalars.const_data_ptr<double>());
  const bool is_mixed = arrays.compute.defined() || arrays.gradients.scalar_type() != torch::kFloat32;
  const FusedUpdateArrays flat = {
      .weights = arrays.weights.data_ptr<float>(),
      .gradients = arrays.gradients.scalar_type() == torch::kFloat32 ? arrays.gradients.const_data_ptr<float>() : nullptr,
      .first_moment = arrays.first_moment.data_ptr<float>(),
      .second_moment = arrays.second_moment.data_ptr<float>(),
      .ema = arrays.ema.defined() ? arrays.ema.data_ptr<float>() : nullptr,
  };
  at::parallel_for(0, arrays.weights.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (is_mixed) {
      update_mixed(arrays, flat, values, begin, end);
    } else {
      fused_adamw(flat, values, begin, end);
    }
  });
}

torch::Tensor norm_partials(const torch::Tensor& flat) {
  return flat.scalar_type() == torch::kBFloat16 ? norm_partials_of<at::BFloat16>(flat) : norm_partials_of<float>(flat);
}

torch::Tensor add_norm_partials(const torch::Tensor& partials) {
  const auto* sums = partials.const_data_ptr<double>();
  double total = 0.0;
  for (int64_t i = 0; i < partials.numel(); ++i) {
    total += sums[i];
  }
  return torch::full({1}, total, torch::kFloat64);
}

void clip_scale(const torch::Tensor& squared_norm, const torch::Tensor& losses, const torch::Tensor& scalars) {
  double* values = scalars.data_ptr<double>();
  const double norm = std::sqrt(squared_norm.const_data_ptr<double>()[0]), max_norm = values[AdamWScalar::kMaxGradientNorm];
  const float* first_loss = losses.const_data_ptr<float>();
  const bool is_finite =
      std::isfinite(norm) && std::all_of(first_loss, first_loss + losses.numel(), [](float loss) { return std::isfinite(loss); });
  const double scale = max_norm > 0.0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
  values[AdamWScalar::kGradientScale] = is_finite ? scale : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace darkroom::reference
