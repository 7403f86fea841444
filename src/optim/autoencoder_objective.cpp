#include <cmath>

#include "darkroom/core/check.h"
#include "darkroom/ops/counter_normal.h"
#include "darkroom/optim/objective.h"

namespace darkroom {
namespace {

constexpr double kLogMseFloor = 1e-4;  // About 46 dB for pictures in [-1, 1]: nobody sees what lies beyond.

}  // namespace

PictureBatch PictureBatch::slice(int64_t first, int64_t count) const {
  return {coordinates_n2.narrow(0, first, count), images_nchw.narrow(0, first, count)};
}

Status AutoencoderObjectiveOptions::validate() const {
  for (const double weight : {l1_weight, mse_weight, log_mse_weight, kl_weight}) {
    if (!(weight >= 0.0 && std::isfinite(weight))) {
      return Status::invalid_argument("objective: the weights must be at least 0 (L1, MSE, log MSE, KL):", l1_weight, mse_weight,
                                      log_mse_weight, kl_weight);
    }
  }
  if (l1_weight + mse_weight + log_mse_weight == 0.0) {
    return Status::invalid_argument("objective: one of the weights of L1, MSE and log MSE must be above 0 (L1, MSE, log MSE):", l1_weight,
                                    mse_weight, log_mse_weight);
  }
  return Status::ok();
}

AutoencoderObjective::AutoencoderObjective(const AutoencoderObjectiveOptions& options) : options_(options) {
  const Status valid = options.validate();
  DARKROOM_CHECK(valid.is_ok(), valid.message());
}

torch::Tensor AutoencoderObjective::losses(const AutoencoderNetwork& network, const PictureBatch& batch) const {
  DARKROOM_CHECK(batch.coordinates_n2.size(0) == batch.size(), "a batch has as many coordinates as pictures:", batch.size());
  const auto [mean, logvar] = network.encode(batch.images_nchw);
  const torch::Tensor noise = counter_normal(options_.seed, Purpose::kPosterior, batch.coordinates_n2, mean.sizes());
  const torch::Tensor error = network.decode(mean + (0.5 * logvar).exp() * noise) - batch.images_nchw;
  const torch::Tensor divergence = 0.5 * (mean.square() + logvar.exp() - 1.0 - logvar).sum({1, 2, 3});
  const torch::Tensor mse = error.square().mean({1, 2, 3});
  return options_.l1_weight * error.abs().mean({1, 2, 3}) + options_.mse_weight * mse +
         options_.log_mse_weight * (mse + kLogMseFloor).log() + options_.kl_weight * divergence;
}

}  // namespace darkroom
