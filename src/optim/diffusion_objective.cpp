#include <cmath>
#include <tuple>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"
#include "darkroom/ops/add_noise.h"
#include "darkroom/ops/counter_normal.h"
#include "darkroom/optim/objective.h"

namespace darkroom {

DiffusionDraws DiffusionDraws::empty(int64_t num_samples, const torch::Device& device) {
  const auto tensor = [&](at::IntArrayRef shape, torch::ScalarType type) { return torch::empty(shape, torch::dtype(type).device(device)); };
  return {.coordinates_n2 = tensor({num_samples, 2}, torch::kInt64),
          .timesteps_n = tensor({num_samples}, torch::kInt64),
          .dropped_n = tensor({num_samples}, torch::kBool),
          .scales_n2 = tensor({num_samples, 2}, torch::kFloat32),
          .weights_n = tensor({num_samples}, torch::kFloat32)};
}

std::vector<torch::Tensor> LoadedDiffusion::tensors() const {
  return {draws.coordinates_n2, draws.timesteps_n, draws.dropped_n, draws.scales_n2, draws.weights_n, latents_nchw, states_ntw};
}

LoadedDiffusion LoadedDiffusion::of(const std::vector<torch::Tensor>& tensors) {
  constexpr size_t kNumTensors = 7;
  DARKROOM_CHECK(tensors.size() == kNumTensors, "a pass reads other tensors (wanted, got):", kNumTensors, tensors.size());
  return {.draws = {.coordinates_n2 = tensors[0],
                    .timesteps_n = tensors[1],
                    .dropped_n = tensors[2],
                    .scales_n2 = tensors[3],
                    .weights_n = tensors[4]},
          .latents_nchw = tensors[5],
          .states_ntw = tensors[6]};
}

void DiffusionDraws::copy_from(const DiffusionDraws& source) {
  coordinates_n2.copy_(source.coordinates_n2, /*non_blocking=*/true);
  timesteps_n.copy_(source.timesteps_n, /*non_blocking=*/true);
  dropped_n.copy_(source.dropped_n, /*non_blocking=*/true);
  scales_n2.copy_(source.scales_n2, /*non_blocking=*/true);
  weights_n.copy_(source.weights_n, /*non_blocking=*/true);
}

DiffusionDraws DiffusionDraws::slice(int64_t first, int64_t count) const {
  return {.coordinates_n2 = coordinates_n2.narrow(0, first, count),
          .timesteps_n = timesteps_n.narrow(0, first, count),
          .dropped_n = dropped_n.narrow(0, first, count),
          .scales_n2 = scales_n2.narrow(0, first, count),
          .weights_n = weights_n.narrow(0, first, count)};
}

DiffusionDraws DiffusionDraws::to(const torch::Device& device) const {
  return {.coordinates_n2 = coordinates_n2.to(device),
          .timesteps_n = timesteps_n.to(device),
          .dropped_n = dropped_n.to(device),
          .scales_n2 = scales_n2.to(device),
          .weights_n = weights_n.to(device)};
}

torch::Tensor coordinates_of(const std::vector<SampleCoordinates>& samples) {
  const auto num_samples = static_cast<int64_t>(samples.size());
  torch::Tensor coordinates_n2 = torch::empty({num_samples, 2}, torch::kInt64);
  int64_t* values = coordinates_n2.data_ptr<int64_t>();
  for (const SampleCoordinates& sample : samples) {
    *values++ = sample.epoch;
    *values++ = static_cast<int64_t>(sample.key_hash);
  }
  return coordinates_n2;
}

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

DiffusionDraws DiffusionObjective::draw(const std::vector<SampleCoordinates>& samples) const {
  const torch::NoGradGuard no_grad;
  const auto num_samples = static_cast<int64_t>(samples.size());
  DiffusionDraws draws{.coordinates_n2 = coordinates_of(samples),
                       .timesteps_n = torch::empty({num_samples}, torch::kInt64),
                       .dropped_n = torch::empty({num_samples}, torch::kBool),
                       .scales_n2 = {},
                       .weights_n = {}};
  for (int64_t n = 0; n < num_samples; ++n) {
    const auto [epoch, key_hash] = samples[static_cast<size_t>(n)];
    const CounterRandom timestep(options_.seed, Purpose::kTimestep, epoch, key_hash);
    const CounterRandom drop(options_.seed, Purpose::kCaptionDrop, epoch, key_hash);
    draws.timesteps_n.data_ptr<int64_t>()[n] = timestep.below(0, static_cast<uint32_t>(schedule_.num_timesteps()));
    draws.dropped_n.data_ptr<bool>()[n] = drop.uniform(0) < options_.caption_drop;
  }
  draws.scales_n2 = schedule_.noise_scales(draws.timesteps_n);
  draws.weights_n = loss_weights(draws.timesteps_n);
  return draws;
}

DiffusionInputs DiffusionObjective::mix(const DiffusionDraws& draws, const torch::Tensor& latents_nchw,
                                        const torch::Tensor& states_ntw) const {
  const torch::NoGradGuard no_grad;
  DiffusionInputs inputs;
  inputs.noise_nchw = counter_normal(options_.seed, Purpose::kNoise, draws.coordinates_n2, latents_nchw.sizes());
  inputs.timesteps_n = draws.timesteps_n;
  inputs.dropped_n = draws.dropped_n;
  inputs.weights_n = draws.weights_n;
  inputs.states_ntw =
      options_.caption_drop > 0.0 ? torch::where(draws.dropped_n.view({-1, 1, 1}), empty_states_tw_.unsqueeze(0), states_ntw) : states_ntw;
  if (schedule_.config().prediction_type == PredictionType::kVelocity) {
    std::tie(inputs.noisy_nchw, inputs.target_nchw) = add_noise_with_velocity(latents_nchw, inputs.noise_nchw, draws.scales_n2);
  } else {
    inputs.noisy_nchw = add_noise(latents_nchw, inputs.noise_nchw, draws.scales_n2);
    inputs.target_nchw = schedule_.config().prediction_type == PredictionType::kEpsilon ? inputs.noise_nchw : latents_nchw;
  }
  return inputs;
}

DiffusionInputs DiffusionObjective::mix(const LoadedDiffusion& loaded) const {
  return mix(loaded.draws, loaded.latents_nchw.to(torch::kFloat32), loaded.states_ntw.to(torch::kFloat32));
}

DiffusionInputs DiffusionObjective::prepare(const DiffusionBatch& batch) const {
  DARKROOM_CHECK(batch.latents_nchw.size(0) == batch.size() && batch.states_ntw.size(0) == batch.size(),
                 "a batch has as many coordinates as latents and text states:", batch.size());
  return mix(draw(batch.samples).to(batch.latents_nchw.device()), batch.latents_nchw, batch.states_ntw);
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
  return options_.min_snr_gamma > 0.0 ? losses * inputs.weights_n : losses;
}

}  // namespace darkroom
