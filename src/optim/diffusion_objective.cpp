#include <cmath>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"
#include "darkroom/optim/objective.h"
#include "sample_noise.h"

namespace darkroom {

DiffusionBatch DiffusionBatch::slice(int64_t first, int64_t count) const {
  return {
      {samples.begin() + first, samples.begin() + first + count}, latents_nchw.narrow(0, first, count), states_ntw.narrow(0, first, count)};
}

Status DiffusionObjectiveOptions::validate() const {
  if (!(caption_drop >= 0.0 && caption_drop <= 1.0)) {
    return Status::invalid_argument("objective: caption_drop must be between 0 and 1, got:", caption_drop);
  }
  if (!(min_snr_gamma >= 0.0 && std::isfinite(min_snr_gamma))) {
    return Status::invalid_argument("objective: min_snr_gamma must be 0 or more, got:", min_snr_gamma);
  }
  return Status::ok();
}

Status DiffusionObjectiveOptions::validate_for(const NoiseScheduleConfig& noise) const {
  DARKROOM_RETURN_IF_ERROR(validate());
  if (min_snr_gamma > 0.0 && noise.zero_terminal_snr) {
    return Status::invalid_argument(
        "objective: min-SNR weights divide by the SNR, which is 0 with zero terminal SNR; set min_snr_gamma to 0, got:", min_snr_gamma);
  }
  return Status::ok();
}

DiffusionObjective::DiffusionObjective(NoiseSchedule schedule, const DiffusionObjectiveOptions& options, torch::Tensor empty_states_tw)
    : schedule_(std::move(schedule)), options_(options), empty_states_tw_(std::move(empty_states_tw)) {
  const Status valid = options.validate_for(schedule_.config());
  DARKROOM_CHECK(valid.is_ok(), valid.message());
  DARKROOM_CHECK(options.caption_drop == 0.0 || empty_states_tw_.defined(), "caption dropout needs the empty caption's states");
}

DiffusionInputs DiffusionObjective::prepare(const DiffusionBatch& batch) const {
  const torch::NoGradGuard no_grad;
  DARKROOM_CHECK(batch.latents_nchw.size(0) == batch.size() && batch.states_ntw.size(0) == batch.size(),
                 "a batch has as many coordinates as latents and text states:", batch.size());
  DiffusionInputs inputs;
  inputs.noise_nchw = sample_noise(options_.seed, Purpose::kNoise, batch.samples, batch.latents_nchw.sizes());
  inputs.timesteps_n = torch::empty({batch.size()}, torch::kInt64);
  inputs.dropped_n = torch::empty({batch.size()}, torch::kBool);
  for (int64_t n = 0; n < batch.size(); ++n) {
    const auto [epoch, key_hash] = batch.samples[static_cast<size_t>(n)];
    const CounterRandom timestep(options_.seed, Purpose::kTimestep, epoch, key_hash);
    const CounterRandom drop(options_.seed, Purpose::kCaptionDrop, epoch, key_hash);
    inputs.timesteps_n.data_ptr<int64_t>()[n] = timestep.below(0, static_cast<uint32_t>(schedule_.num_timesteps()));
    inputs.dropped_n.data_ptr<bool>()[n] = drop.uniform(0) < options_.caption_drop;
  }
  inputs.states_ntw = options_.caption_drop > 0.0
                          ? torch::where(inputs.dropped_n.view({-1, 1, 1}), empty_states_tw_.unsqueeze(0), batch.states_ntw)
                          : batch.states_ntw;
  inputs.noisy_nchw = schedule_.add_noise(batch.latents_nchw, inputs.noise_nchw, inputs.timesteps_n);
  inputs.target_nchw = schedule_.target(batch.latents_nchw, inputs.noise_nchw, inputs.timesteps_n);
  return inputs;
}

torch::Tensor DiffusionObjective::loss_weights(const torch::Tensor& timesteps_n) const {
  if (options_.min_snr_gamma == 0.0) {
    return torch::ones({timesteps_n.numel()});
  }
  const torch::Tensor alphas = schedule_.alphas_cumprod().index({timesteps_n});
  const torch::Tensor snr = (alphas.sqrt() / (1.0 - alphas).sqrt()).square();
  const torch::Tensor clipped = snr.clamp_max(options_.min_snr_gamma);
  switch (schedule_.config().prediction_type) {
    case PredictionType::kVelocity:
      return clipped / (snr + 1.0);
    case PredictionType::kClean:
      return clipped;
    case PredictionType::kEpsilon:
      break;
  }
  return clipped / snr;
}

torch::Tensor DiffusionObjective::losses(const ConditionalDenoiser& network, const DiffusionInputs& inputs) const {
  const torch::Tensor output = network(inputs.noisy_nchw, inputs.timesteps_n, inputs.states_ntw);
  DARKROOM_CHECK(output.sizes() == inputs.target_nchw.sizes(), "the network's output has another shape than its target");
  const torch::Tensor losses = (output - inputs.target_nchw).square().mean({1, 2, 3});
  return options_.min_snr_gamma > 0.0 ? losses * loss_weights(inputs.timesteps_n) : losses;
}

}  // namespace darkroom
