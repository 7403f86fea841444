#include <torch/torch.h>

#include <utility>

#include "bench_setup.h"
#include "darkroom/diffusion/guidance.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/one_run.h"
#include "darkroom/nn/placement.h"
#include "darkroom/tensor/device_runtime.h"
#include "darkroom/tensor/multiply_adds.h"
#include "measure.h"

namespace darkroom {
namespace {

using nlohmann::json;

constexpr double kGuidance = 7.5;
constexpr int kSamplerSteps = 50;

// Attention as the verbs have it that run networks (nn/placement.h).
Result<BenchPlace> set_up_to_run(const BenchOptions& options) {
  auto place = set_up_place(options);
  at::globalContext().setSDPUseCuDNN(false);
  return place;
}

}  // namespace

Result<json> bench_forward(const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const BenchPlace place, set_up_to_run(options));
  DARKROOM_ASSIGN_OR_RETURN(UNetSetup setup, set_up_unet(options, place));
  const torch::NoGradGuard no_grad;
  place_network(*setup.unet, place.device, place.type);
  const int64_t multiply_adds = forward_multiply_adds(setup);
  DARKROOM_ASSIGN_OR_RETURN(const bool packed, pack_unet(setup, options));
  torch::Tensor output;
  DeviceGraph graph(
      place.device, [&] { output = setup.unet(setup.latents_nchw, setup.timesteps_n, setup.states_ntw); }, place.replays);
  const auto runs_ms = time_runs(options.repeats, place.device, options.stop, [&] { graph.run(); });
  DARKROOM_RETURN_IF_ERROR(check_rows_alone(output, first_sample(setup)));
  json figures = figures_of("images", runs_ms, static_cast<double>(options.batch_size), multiply_adds, place);
  figures["packed"] = packed;
  return describe(std::move(figures), options, place, setup.resolution, count_parameters(*setup.unet));
}

Result<json> bench_sample(const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const BenchPlace place, set_up_to_run(options));
  DARKROOM_ASSIGN_OR_RETURN(UNetSetup setup, set_up_unet(options, place));
  const torch::NoGradGuard no_grad;
  place_network(*setup.unet, place.device, place.type);
  const int64_t multiply_adds = forward_multiply_adds(setup);
  DARKROOM_ASSIGN_OR_RETURN(const bool packed, pack_unet(setup, options));
  const Denoiser denoiser =
      guided_denoiser(for_one_run(setup.unet), torch::zeros_like(setup.states_ntw), setup.states_ntw, {.scale = kGuidance});
  DARKROOM_ASSIGN_OR_RETURN(const auto sampler, make_sampler({.name = "ddim", .num_steps = kSamplerSteps}, setup.scheduler));
  torch::Tensor latents = setup.latents_nchw * sampler->initial_sigma();
  const torch::Tensor timesteps_k = upload_timesteps(*sampler, place.device);
  const Denoiser recorded = recorded_denoiser(denoiser, place.device, place.replays);
  const int64_t num_warm_up = place.device.is_cpu() ? kWarmUpRuns : kWarmUpRunsOnAGpu;
  size_t index = 0;
  const auto runs_ms = time_runs(std::min<int64_t>(options.repeats, kSamplerSteps - num_warm_up), place.device, options.stop, [&] {
    const torch::Tensor timesteps_n = timesteps_k[static_cast<int64_t>(index)].expand({options.batch_size});
    const torch::Tensor output = recorded(sampler->scale_input(index, latents), timesteps_n);
    latents = sampler->step(index, output, latents, {});
    ++index;
  });
  if (!latents.isfinite().all().item<bool>()) {
    return Status::internal("sampling left the finite numbers at step:", index);
  }
  json figures = figures_of("steps", runs_ms, 1.0, 2 * multiply_adds, place);
  figures["packed"] = packed;
  return describe(std::move(figures), options, place, setup.resolution, count_parameters(*setup.unet));
}

Result<json> bench_encode_images(const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const BenchPlace place, set_up_to_run(options));
  DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, find_preset(options.preset));
  const torch::NoGradGuard no_grad;
  AutoencoderKL vae(preset.vae);
  initialize_parameters(vae, options.seed);
  place_network(*vae, place.device, place.type);
  const int64_t side = picture_side(options, preset);
  const auto images = random_normal({options.batch_size, 3, side, side}, options.seed + 1, place).clamp(-1, 1).to(place.type);
  Moments moments;
  const int64_t multiply_adds = count_multiply_adds([&] { moments = vae->encode(images); });
  DeviceGraph graph(
      place.device, [&] { moments = vae->encode(images); }, place.replays);
  const auto runs_ms = time_runs(options.repeats, place.device, options.stop, [&] { graph.run(); });
  DARKROOM_RETURN_IF_ERROR(check_rows_alone(moments.mean, vae->encode(images.slice(0, 0, 1)).mean));
  json figures = figures_of("images", runs_ms, static_cast<double>(options.batch_size), multiply_adds, place);
  return describe(std::move(figures), options, place, side, count_parameters(*vae));
}

Result<json> bench_encode_captions(const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const BenchPlace place, set_up_to_run(options));
  DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, find_preset(options.preset));
  const torch::NoGradGuard no_grad;
  ClipTextModel text_encoder(preset.text_encoder);
  initialize_parameters(text_encoder, options.seed);
  place_network(*text_encoder, place.device, place.type);
  const auto ids = (torch::arange(options.batch_size * kNumTokens) * 7919 % preset.text_encoder.vocab_size)
                       .reshape({options.batch_size, kNumTokens})
                       .to(place.device);
  torch::Tensor states;
  const int64_t multiply_adds = count_multiply_adds([&] { states = text_encoder(ids); });
  DeviceGraph graph(
      place.device, [&] { states = text_encoder(ids); }, place.replays);
  const auto runs_ms = time_runs(options.repeats, place.device, options.stop, [&] { graph.run(); });
  DARKROOM_RETURN_IF_ERROR(check_rows_alone(states, text_encoder(ids.slice(0, 0, 1))));
  json figures = figures_of("captions", runs_ms, static_cast<double>(options.batch_size), multiply_adds, place);
  return describe(std::move(figures), options, place, 0, count_parameters(*text_encoder));
}

}  // namespace darkroom
