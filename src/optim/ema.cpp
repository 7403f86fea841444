#include "darkroom/optim/ema.h"

#include <algorithm>
#include <exception>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"
#include "darkroom/optim/gradient_groups.h"

namespace darkroom {

namespace {

constexpr int64_t kSwapBlock = 1 << 22;  // Elements: what a swap needs beside the two buffers.

// Takes no memory beside `block`, so that it cannot end half way for want of it.
void swap_contents(const torch::Tensor& left, const torch::Tensor& right, const torch::Tensor& block) {
  const torch::NoGradGuard no_grad;
  for (int64_t first = 0; first < left.numel(); first += kSwapBlock) {
    const int64_t count = std::min(kSwapBlock, left.numel() - first);
    torch::Tensor left_block = left.narrow(0, first, count), right_block = right.narrow(0, first, count);
    const torch::Tensor kept = block.narrow(0, 0, count);
    kept.copy_(left_block);
    left_block.copy_(right_block);
    right_block.copy_(kept);
  }
}

}  // namespace

Status EmaOptions::validate() const {
  if (!(decay >= 0.0 && decay < 1.0)) {
    return Status::invalid_argument("EMA: decay must be at least 0 and below 1, got:", decay);
  }
  return Status::ok();
}

Ema::Ema(const FlatParameters& parameters, const EmaOptions& options) : Ema(parameters, options, parameters.whole()) {}

Ema::Ema(const FlatParameters& parameters, const EmaOptions& options, const FlatRange& slice)
    : options_(options), slice_(slice), weights_(averages() ? parameters.values_of(slice).clone() : parameters.values_of(slice)) {
  const Status valid = options.validate();
  DARKROOM_CHECK(valid.is_ok(), valid.message());
}

void Ema::restart(const FlatParameters& parameters) {
  if (averages()) {
    weights_.copy_(parameters.values_of(slice_));
  }
}

double Ema::decay_at(int64_t update) const {
  const auto n = static_cast<double>(update);
  return options_.warmup ? std::min(options_.decay, (1.0 + n) / (10.0 + n)) : options_.decay;
}

EmaScope::EmaScope(FlatParameters& parameters, Ema& ema, Communicator& ranks)
    : parameters_(parameters),
      ema_(ema),
      ranks_(ranks),
      block_(ema.averages() ? torch::empty({std::min(kSwapBlock, ema.weights().numel())}, ema.weights().options()) : torch::Tensor()),
      status_(swap()) {}

EmaScope::~EmaScope() {
  try {
    static_cast<void>(swap());
  } catch (const std::exception& failure) {
    log_error("the trained weights cannot be put back: {}", failure.what());
  }
}

Status EmaScope::swap() {
  if (!ema_.averages()) {
    return {};
  }
  swap_contents(parameters_.values_of(ema_.slice()), ema_.weights(), block_);
  return gather_weights(ranks_, parameters_);
}

}  // namespace darkroom
