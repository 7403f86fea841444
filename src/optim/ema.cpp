#include "darkroom/optim/ema.h"

#include <algorithm>

#include "darkroom/core/check.h"

namespace darkroom {

namespace {

void swap_contents(const torch::Tensor& left, const torch::Tensor& right) {
  if (left.is_same(right)) {
    return;
  }
  float* const begin = left.data_ptr<float>();
  std::swap_ranges(begin, begin + left.numel(), right.data_ptr<float>());
}

}  // namespace

Status EmaOptions::validate() const {
  if (!(decay >= 0.0 && decay < 1.0)) {
    return Status::invalid_argument("EMA: decay must be at least 0 and below 1, got:", decay);
  }
  return Status::ok();
}

Ema::Ema(const FlatParameters& parameters, const EmaOptions& options)
    : options_(options), weights_(averages() ? parameters.values().clone() : parameters.values()) {
  const Status valid = options.validate();
  DARKROOM_CHECK(valid.is_ok(), valid.message());
}

double Ema::decay_at(int64_t update) const {
  const auto n = static_cast<double>(update);
  return options_.warmup ? std::min(options_.decay, (1.0 + n) / (10.0 + n)) : options_.decay;
}

EmaScope::EmaScope(FlatParameters& parameters, Ema& ema) : parameters_(parameters), ema_(ema) {
  swap_contents(parameters_.values(), ema_.weights());
}

EmaScope::~EmaScope() { swap_contents(parameters_.values(), ema_.weights()); }

}  // namespace darkroom
