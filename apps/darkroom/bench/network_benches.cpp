#include <torch/torch.h>

#include <utility>

#include "bench.h"
#include "darkroom/diffusion/guidance.h"
#include "darkroom/diffusion/sampler.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"
#include "darkroom/optim/train_step.h"
#include "darkroom/tensor/multiply_adds.h"
#include "measure.h"

namespace darkroom {
namespace {

using nlohmann::json;

constexpr int64_t kTokens = 77;
constexpr double kGuidance = 7.5;
constexpr int kSamplerSteps = 50;
constexpr int64_t kBackwardFactor = 3;      // Forward, and the gradients of inputs and of weights.
constexpr double kSameAnswer = 1e-4;        // Of the largest value: a sample alone against the same one in its batch.
constexpr double kLeastLossOfNoise = 1e-6;  // A network that has seen a few steps cannot predict noise exactly.

/// A preset's U-Net with random weights and one batch of synthetic inputs.
struct UNetSetup {
  UNet2DConditionModel unet{nullptr};
  SchedulerConfig scheduler;
  int64_t resolution = 0;  // Pixels.
  torch::Tensor latents_nchw;
  torch::Tensor states_ntw;
  torch::Tensor timesteps_n;
  int64_t forward_multiply_adds = 0;  // Of the batch.
};

Result<ModelPreset> prepare(const BenchOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  at::set_num_threads(options.threads);
  return find_preset(options.preset);
}

int64_t picture_side(const BenchOptions& options, const ModelPreset& preset) {
  return options.resolution > 0 ? options.resolution : preset.unet.sample_size * preset.vae.factor();
}

torch::Tensor random_normal(const std::vector<int64_t>& shape, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return torch::randn(shape, generator);
}

Result<UNetSetup> set_up_unet(const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, prepare(options));
  const int64_t factor = preset.vae.factor();
  UNetSetup setup;
  setup.resolution = picture_side(options, preset);
  const int64_t side = setup.resolution / factor;
  DARKROOM_ASSIGN_OR_RETURN(setup.scheduler, SchedulerConfig::from_json(preset.scheduler));
  setup.unet = UNet2DConditionModel(preset.unet);
  initialize_parameters(setup.unet, options.seed);
  setup.latents_nchw = random_normal({options.batch_size, preset.unet.in_channels, side, side}, options.seed + 1);
  setup.states_ntw = random_normal({options.batch_size, kTokens, preset.unet.states_width()}, options.seed + 2);
  setup.timesteps_n = torch::arange(options.batch_size) * 37 % 1000;
  const torch::NoGradGuard no_grad;
  setup.forward_multiply_adds = count_multiply_adds([&] { setup.unet(setup.latents_nchw, setup.timesteps_n, setup.states_ntw); });
  return setup;
}

json describe(json figures, const BenchOptions& options, int64_t resolution, int64_t parameters) {
  figures.update({{"preset", options.preset}, {"resolution", resolution}, {"batch_size", options.batch_size}, {"parameters", parameters}});
  return figures;
}

// Whether a sample's output in a batch is its output alone: what is timed computes what it should.
Status check_rows_alone(const torch::Tensor& in_batch, const torch::Tensor& alone) {
  const double difference = (in_batch.slice(0, 0, 1) - alone).abs().max().item<double>();
  const double bound = kSameAnswer * alone.abs().max().item<double>();
  if (!(difference <= bound)) {
    return Status::internal("a sample's result depends on its batch (difference, bound):", difference, bound);
  }
  return Status::ok();
}

}  // namespace

Result<json> bench_train_step(const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(UNetSetup setup, set_up_unet(options));
  FlatParameters parameters(*setup.unet);
  AdamW optimizer(parameters, {});
  Ema ema(parameters, {});
  TrainStep step(parameters, optimizer, &ema,
                 {.micro_batch = options.batch_size, .max_grad_norm = 1.0, .schedule = {.peak = 1e-4, .warmup_steps = 0}});
  const auto noise = random_normal(setup.latents_nchw.sizes().vec(), options.seed + 3);
  const auto losses = [&](int64_t, int64_t) {
    return (setup.unet(setup.latents_nchw, setup.timesteps_n, setup.states_ntw) - noise).square().flatten(1).mean(1);
  };
  std::vector<double> forward_ms, backward_ms, update_ms;
  Status failure;
  double loss = 0.0;
  const auto runs_ms = time_runs(options.repeats, [&] {
    const auto report = step.run(optimizer.num_updates(), options.batch_size, losses);
    if (!report.is_ok()) {
      failure = report.status();
      return;
    }
    forward_ms.push_back(report->forward_ms);
    backward_ms.push_back(report->backward_ms);
    update_ms.push_back(report->update_ms);
    loss = report->loss;
  });
  DARKROOM_RETURN_IF_ERROR(failure);
  if (!(loss > kLeastLossOfNoise)) {
    return Status::internal("a loss that no network can have after so few steps:", loss);
  }
  json figures = figures_of("images", runs_ms, static_cast<double>(options.batch_size), kBackwardFactor * setup.forward_multiply_adds);
  figures["ms"].update({{"forward", median(forward_ms)}, {"backward", median(backward_ms)}, {"update", median(update_ms)}});
  figures["loss"] = loss;
  return describe(std::move(figures), options, setup.resolution, parameters.size());
}

Result<json> bench_forward(const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(UNetSetup setup, set_up_unet(options));
  const torch::NoGradGuard no_grad;
  torch::Tensor output;
  const auto runs_ms = time_runs(options.repeats, [&] { output = setup.unet(setup.latents_nchw, setup.timesteps_n, setup.states_ntw); });
  DARKROOM_RETURN_IF_ERROR(check_rows_alone(
      output, setup.unet(setup.latents_nchw.slice(0, 0, 1), setup.timesteps_n.slice(0, 0, 1), setup.states_ntw.slice(0, 0, 1))));
  json figures = figures_of("images", runs_ms, static_cast<double>(options.batch_size), setup.forward_multiply_adds);
  return describe(std::move(figures), options, setup.resolution, count_parameters(*setup.unet));
}

Result<json> bench_sample(const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(UNetSetup setup, set_up_unet(options));
  const torch::NoGradGuard no_grad;
  const Denoiser denoiser = guided_denoiser([&](const torch::Tensor& noisy, const torch::Tensor& timesteps,
                                                const torch::Tensor& states) { return setup.unet(noisy, timesteps, states); },
                                            torch::zeros_like(setup.states_ntw), setup.states_ntw, {.scale = kGuidance});
  DARKROOM_ASSIGN_OR_RETURN(const auto sampler, make_sampler({.name = "ddim", .num_steps = kSamplerSteps}, setup.scheduler));
  torch::Tensor latents = setup.latents_nchw * sampler->initial_sigma();
  size_t index = 0;
  const auto runs_ms = time_runs(std::min<int64_t>(options.repeats, kSamplerSteps - 2), [&] {
    const auto timesteps = torch::full({options.batch_size}, sampler->timesteps()[index]);
    latents = sampler->step(index, denoiser(sampler->scale_input(index, latents), timesteps), latents, {});
    ++index;
  });
  if (!latents.isfinite().all().item<bool>()) {
    return Status::internal("sampling left the finite numbers at step:", index);
  }
  json figures = figures_of("steps", runs_ms, 1.0, 2 * setup.forward_multiply_adds);
  return describe(std::move(figures), options, setup.resolution, count_parameters(*setup.unet));
}

Result<json> bench_encode_images(const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, prepare(options));
  const torch::NoGradGuard no_grad;
  AutoencoderKL vae(preset.vae);
  initialize_parameters(vae, options.seed);
  const int64_t side = picture_side(options, preset);
  const auto images = random_normal({options.batch_size, 3, side, side}, options.seed + 1).clamp(-1, 1);
  Moments moments;
  const int64_t multiply_adds = count_multiply_adds([&] { moments = vae->encode(images); });
  const auto runs_ms = time_runs(options.repeats, [&] { moments = vae->encode(images); });
  DARKROOM_RETURN_IF_ERROR(check_rows_alone(moments.mean, vae->encode(images.slice(0, 0, 1)).mean));
  json figures = figures_of("images", runs_ms, static_cast<double>(options.batch_size), multiply_adds);
  return describe(std::move(figures), options, side, count_parameters(*vae));
}

Result<json> bench_encode_captions(const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, prepare(options));
  const torch::NoGradGuard no_grad;
  ClipTextModel text_encoder(preset.text_encoder);
  initialize_parameters(text_encoder, options.seed);
  const auto ids =
      (torch::arange(options.batch_size * kTokens) * 7919 % preset.text_encoder.vocab_size).reshape({options.batch_size, kTokens});
  torch::Tensor states;
  const int64_t multiply_adds = count_multiply_adds([&] { states = text_encoder(ids); });
  const auto runs_ms = time_runs(options.repeats, [&] { states = text_encoder(ids); });
  DARKROOM_RETURN_IF_ERROR(check_rows_alone(states, text_encoder(ids.slice(0, 0, 1))));
  json figures = figures_of("captions", runs_ms, static_cast<double>(options.batch_size), multiply_adds);
  return describe(std::move(figures), options, 0, count_parameters(*text_encoder));
}

}  // namespace darkroom
