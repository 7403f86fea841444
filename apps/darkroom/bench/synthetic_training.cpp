#include "synthetic_training.h"

#include "bench_setup.h"
#include "darkroom/core/check.h"
#include "darkroom/core/random.h"

namespace darkroom {
namespace {

constexpr double kCaptionDrop = 0.1;

FlatParametersOptions flat_options(const SyntheticTrainingOptions& options) {
  return options.device.is_cpu() ? FlatParametersOptions{.compute_type = options.type}
                                 : FlatParametersOptions::for_gpu(options.device, options.type);
}

torch::Tensor random_normal(at::IntArrayRef shape, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return torch::randn(shape, generator);
}

}  // namespace

SyntheticTraining::SyntheticTraining(UNet2DConditionModel unet, const NoiseScheduleConfig& noise, const SyntheticTrainingOptions& options)
    : options_(options),
      unet_(std::move(unet)),
      flat_(*unet_, flat_options(options)),
      all_latents_nchw_(random_normal({options.num_samples, unet_->config().in_channels, options.side, options.side}, options.seed + 1)
                            .to(options.device)),
      all_states_ntw_(
          random_normal({options.num_samples, kNumTokens, unet_->config().states_width()}, options.seed + 2).to(options.device)),
      objective_(NoiseSchedule(noise), {.seed = options.seed, .caption_drop = kCaptionDrop}, torch::zeros_like(all_states_ntw_[0])),
      loaded_{DiffusionDraws::empty(options.batch_size, options.device), all_latents_nchw_.narrow(0, 0, options.batch_size).clone(),
              all_states_ntw_.narrow(0, 0, options.batch_size).clone()},
      step_(flat_, adamw_, &ema_, step_options(false)),
      step_by_phases_(flat_, adamw_, &ema_, step_options(true)) {
  DARKROOM_CHECK(options.num_samples % options.batch_size == 0,
                 "a synthetic dataset is a number of batches (samples, batch):", options.num_samples, options.batch_size);
  load_batch();
}

TrainStepOptions SyntheticTraining::step_options(bool waits_between_phases) const {
  return {.micro_batch = options_.batch_size,
          .max_grad_norm = 1.0,
          .schedule = {.peak = options_.learning_rate, .warmup_steps = 0},
          .replays = options_.replays,
          .waits_between_phases = waits_between_phases};
}

// The batch whose number is that of the updates done.
void SyntheticTraining::load_batch() {
  const int64_t position = adamw_.num_updates() * options_.batch_size, first = position % options_.num_samples;
  std::vector<SampleCoordinates> samples;
  for (int64_t n = first; n < first + options_.batch_size; ++n) {
    samples.push_back({static_cast<uint32_t>(position / options_.num_samples), hash_key(std::to_string(n))});
  }
  loaded_.draws.copy_from(objective_.draw(samples));
  loaded_.latents_nchw.copy_(all_latents_nchw_.narrow(0, first, options_.batch_size));
  loaded_.states_ntw.copy_(all_states_ntw_.narrow(0, first, options_.batch_size));
}

DeviceBatch SyntheticTraining::batch() {
  const auto losses = [this](const std::vector<torch::Tensor>& inputs) {
    const auto network = [this](const torch::Tensor& noisy, const torch::Tensor& timesteps, const torch::Tensor& states) {
      return unet_(noisy, timesteps, states);
    };
    return objective_.losses(network, objective_.mix(LoadedDiffusion::of(inputs)));
  };
  return {.size = options_.batch_size, .inputs = loaded_.tensors(), .losses = losses};
}

Result<StepReport> SyntheticTraining::step() {
  load_batch();
  return step_.run(adamw_.num_updates(), batch());
}

Result<StepReport> SyntheticTraining::step_by_phases() {
  load_batch();
  return step_by_phases_.run(adamw_.num_updates(), batch());
}

}  // namespace darkroom
