#include "darkroom/optim/adamw.h"

#include <cmath>

#include "darkroom/core/check.h"

namespace darkroom {

namespace {
bool has_average(const Ema* ema) { return ema != nullptr && ema->averages(); }
}  // namespace

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

AdamW::AdamW(FlatParameters& parameters, const AdamWOptions& options) : AdamW(parameters, options, parameters.whole()) {}

AdamW::AdamW(FlatParameters& parameters, const AdamWOptions& options, const FlatRange& slice)
    : parameters_(parameters),
      options_(options),
      slice_(slice),
      scalars_(torch::zeros({AdamWScalar::kCount}, parameters.values().options().dtype(torch::kFloat64))),
      next_scalars_(torch::zeros({AdamWScalar::kCount}, torch::kFloat64)),
      upload_(parameters.values().device()),
      first_moment_(torch::zeros_like(parameters.values_of(slice))),
      second_moment_(torch::zeros_like(parameters.values_of(slice))) {
  const Status valid = options.validate();
  DARKROOM_CHECK(valid.is_ok(), valid.message());
}

void AdamW::update(double learning_rate, double gradient_scale, Ema* ema) {
  send_scalars(learning_rate, gradient_scale, 0.0, ema);
  adamw_update(arrays(ema), scalars_);
  count_update();
}

void AdamW::prepare(double learning_rate, double max_grad_norm, const Ema* ema) { send_scalars(learning_rate, 1.0, max_grad_norm, ema); }

void AdamW::issue(const torch::Tensor& squared_norm, const torch::Tensor& losses, const Ema* ema) {
  clip_scale(squared_norm, losses, scalars_);
  adamw_update(arrays(ema), scalars_);
}

void AdamW::send_scalars(double learning_rate, double gradient_scale, double max_grad_norm, const Ema* ema) {
  const auto step = static_cast<double>(num_updates_ + 1);
  double* values = next_scalars_.data_ptr<double>();
  values[AdamWScalar::kGradientScale] = gradient_scale;
  values[AdamWScalar::kMaxGradientNorm] = max_grad_norm;
  values[AdamWScalar::kWeightKeep] = 1.0 - learning_rate * options_.weight_decay;
  values[AdamWScalar::kFirstBlend] = 1.0 - options_.beta1;
  values[AdamWScalar::kSecondKeep] = options_.beta2;
  values[AdamWScalar::kSecondBlend] = 1.0 - options_.beta2;
  values[AdamWScalar::kRootBiasCorrection] = std::sqrt(1.0 - std::pow(options_.beta2, step));
  values[AdamWScalar::kEpsilon] = options_.epsilon;
  values[AdamWScalar::kNegativeStep] = -learning_rate / (1.0 - std::pow(options_.beta1, step));
  values[AdamWScalar::kEmaBlend] = has_average(ema) ? 1.0 - ema->decay_at(num_updates_) : 0.0;
  upload_.send(next_scalars_, scalars_);
}

AdamWArrays AdamW::arrays(const Ema* ema) const {
  const torch::Tensor& compute = parameters_.compute_copy();
  return {.weights = parameters_.values_of(slice_),
          .gradients = slice_.of(parameters_.gradients()),
          .first_moment = first_moment_,
          .second_moment = second_moment_,
          .ema = has_average(ema) ? ema->weights() : torch::Tensor(),
          .compute = compute.defined() ? slice_.of(compute) : torch::Tensor()};
}

}  // namespace darkroom
