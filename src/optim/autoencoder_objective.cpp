#include <cmath>

#include "darkroom/core/check.h"
#include "darkroom/optim/objective.h"
#include "sample_noise.h"

namespace darkroom {

PictureBatch PictureBatch::slice(int64_t first, int64_t count) const {
  return {{samples.begin() + first, samples.begin() + first + count}, images_nchw.narrow(0, first, count)};
}

Status AutoencoderObjectiveOptions::validate() const {
  for (const double weight : {l1_weight, mse_weight, kl_weight}) {
    if (!(weight >= 0.0 && std::isfinite(weight))) {
      return Status::invalid_argument("objective: the weights of L1, MSE and KL must be at least 0 (L1, MSE, KL):", l1_weight, mse_weight,
                                      kl_weight);
    }
  }
  if (l1_weight + mse_weight == 0.0) {
    return Status::invalid_argument("objective: one of the weights of L1 and MSE must be above 0 (L1, MSE):", l1_weight, mse_weight);
  }
  return Status::ok();
}

AutoencoderObjective::AutoencoderObjective(const AutoencoderObjectiveOptions& options) : options_(options) {
  const Status valid = options.validate();
  DARKROOM_CHECK(valid.is_ok(), valid.message());
}

torch::Tensor AutoencoderObjective::losses(const AutoencoderNetwork& network, const PictureBatch& batch) const {
  DARKROOM_CHECK(batch.images_nchw.size(0) == batch.size(), "a batch has as many coordinates as pictures:", batch.size());
  const auto [mean, logvar] = network.encode(batch.images_nchw);
  const torch::Tensor noise = sample_noise(options_.seed, Purpose::kPosterior, batch.samples, mean.sizes());
  const torch::Tensor error = network.decode(mean + (0.5 * logvar).exp() * noise) - batch.images_nchw;
  const torch::Tensor divergence = 0.5 * (mean.square() + logvar.exp() - 1.0 - logvar).sum({1, 2, 3});
  return options_.l1_weight * error.abs().mean({1, 2, 3}) + options_.mse_weight * error.square().mean({1, 2, 3}) +
         options_.kl_weight * divergence;
}

}  // namespace darkroom
