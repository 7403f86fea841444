#include "darkroom/optim/adamw.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "darkroom/core/check.h"
#include "fused_update.h"

namespace darkroom {

namespace {
constexpr int64_t kGrain = 1 << 16;  // Elements below which a second thread costs more than it gives.
}

Status AdamWOptions::validate() const {
  if (!(beta1 >= 0.0 && beta1 < 1.0)) {
    return Status::invalid_argument("AdamW: beta1 must be at least 0 and below 1, got:", beta1);
  }
  if (!(beta2 >= 0.0 && beta2 < 1.0)) {
    return Status::invalid_argument("AdamW: beta2 must be at least 0 and below 1, got:", beta2);
  }
  if (!(epsilon > 0.0 && std::isfinite(epsilon))) {
    return Status::invalid_argument("AdamW: epsilon must be above 0, got:", epsilon);
  }
  if (!(weight_decay >= 0.0 && std::isfinite(weight_decay))) {
    return Status::invalid_argument("AdamW: weight_decay must be at least 0, got:", weight_decay);
  }
  return Status::ok();
}

AdamW::AdamW(FlatParameters& parameters, const AdamWOptions& options)
    : parameters_(parameters),
      options_(options),
      first_moment_(torch::zeros({parameters.size()}, torch::kFloat32)),
      second_moment_(torch::zeros({parameters.size()}, torch::kFloat32)) {
  const Status valid = options.validate();
  DARKROOM_CHECK(valid.is_ok(), valid.message());
}

void AdamW::update(double learning_rate, double gradient_scale, Ema* ema) {
  const bool has_average = ema != nullptr && ema->averages();
  const double step = static_cast<double>(num_updates_ + 1);
  const FusedUpdateScalars scalars = {
      .gradient_scale = static_cast<float>(gradient_scale),
      .weight_keep = static_cast<float>(1.0 - learning_rate * options_.weight_decay),
      .first_blend = static_cast<float>(1.0 - options_.beta1),
      .second_keep = static_cast<float>(options_.beta2),
      .second_blend = static_cast<float>(1.0 - options_.beta2),
      .root_bias_correction2 = static_cast<float>(std::sqrt(1.0 - std::pow(options_.beta2, step))),
      .epsilon = static_cast<float>(options_.epsilon),
      .negative_step = static_cast<float>(-learning_rate / (1.0 - std::pow(options_.beta1, step))),
      .ema_blend = has_average ? static_cast<float>(1.0 - ema->decay_at(num_updates_)) : 0.0F,
  };
  const FusedUpdateArrays arrays = {
      .weights = parameters_.values().data_ptr<float>(),
      .gradients = parameters_.gradients().data_ptr<float>(),
      .first_moment = first_moment_.data_ptr<float>(),
      .second_moment = second_moment_.data_ptr<float>(),
      .ema = has_average ? ema->weights().data_ptr<float>() : nullptr,
  };
  at::parallel_for(0, parameters_.size(), kGrain, [&](int64_t begin, int64_t end) { fused_adamw(arrays, scalars, begin, end); });
  ++num_updates_;
}

}  // namespace darkroom
