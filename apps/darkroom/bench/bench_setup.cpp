#include "bench_setup.h"

#include <cmath>
#include <utility>

#include "darkroom/nn/init.h"
#include "darkroom/nn/packing.h"
#include "darkroom/nn/placement.h"
#include "darkroom/tensor/device.h"
#include "darkroom/tensor/device_runtime.h"
#include "darkroom/tensor/multiply_adds.h"

namespace darkroom {
namespace {

constexpr double kSameAnswer = 1e-4;          // float32: of the largest value, for the same sums in another order.
constexpr double kBFloat16Roundoff = 0x1p-8;  // Half of the distance of 1 to the next number.
constexpr double kRoundingsInARow = 64;       // On the way through a network, of random sign.

Status check_same_answer(const char* fault, const torch::Tensor& got, const torch::Tensor& want) {
  const double share = want.scalar_type() == torch::kFloat32 ? kSameAnswer : 2 * kBFloat16Roundoff * std::sqrt(kRoundingsInARow);
  const double difference = (got - want).abs().max().item<double>();
  const double bound = share * want.abs().max().item<double>();
  return difference <= bound ? Status::ok() : Status::internal(fault, difference, bound);
}

}  // namespace

Result<BenchPlace> set_up_place(const BenchOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  DARKROOM_ASSIGN_OR_RETURN(const std::string device, resolve_device(options.device));
  at::set_num_threads(options.threads);
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setAllowTF32CuBLAS(false);
  at::globalContext().setBenchmarkCuDNN(true);  // Warm-up runs find the fastest convolutions.
  BenchPlace place{.device = torch::Device(device), .type = options.dtype == "float32" ? torch::kFloat32 : torch::kBFloat16};
  place.replays = options.graph && !place.device.is_cpu();
  reset_peak_memory(place.device);
  return place;
}

torch::Tensor random_normal(at::IntArrayRef shape, uint64_t seed, const BenchPlace& place) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return torch::randn(shape, generator).to(place.device);
}

int64_t picture_side(const BenchOptions& options, const ModelPreset& preset) {
  return options.resolution > 0 ? options.resolution : preset.unet.sample_size * preset.vae.factor();
}

Result<UNetSetup> set_up_unet(const BenchOptions& options, const BenchPlace& place) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, find_preset(options.preset));
  UNetSetup setup;
  setup.resolution = picture_side(options, preset);
  const int64_t side = setup.resolution / preset.vae.factor();
  DARKROOM_ASSIGN_OR_RETURN(setup.scheduler, SchedulerConfig::from_json(preset.scheduler));
  setup.unet = UNet2DConditionModel(preset.unet);
  initialize_parameters(setup.unet, options.seed);
  setup.latents_nchw = random_normal({options.batch_size, preset.unet.in_channels, side, side}, options.seed + 1, place);
  setup.states_ntw = random_normal({options.batch_size, kNumTokens, preset.unet.states_width()}, options.seed + 2, place);
  setup.timesteps_n = (torch::arange(options.batch_size) * 37 % 1000).to(place.device);
  return setup;
}

int64_t forward_multiply_adds(UNetSetup& setup) {
  const torch::NoGradGuard no_grad;
  return count_multiply_adds([&] { setup.unet(setup.latents_nchw, setup.timesteps_n, setup.states_ntw); });
}

torch::Tensor first_sample(UNetSetup& setup) {
  return setup.unet(setup.latents_nchw.slice(0, 0, 1), setup.timesteps_n.slice(0, 0, 1), setup.states_ntw.slice(0, 0, 1));
}

Result<bool> pack_unet(UNetSetup& setup, const BenchOptions& options) {
  if (!options.packing || !place_of(*setup.unet).device.is_cpu()) {
    return false;
  }
  const torch::NoGradGuard no_grad;
  const torch::Tensor plain = first_sample(setup);
  if (!pack_network(*setup.unet)) {
    return false;
  }
  DARKROOM_RETURN_IF_ERROR(
      check_same_answer("a sample's result depends on packed weights (difference, bound):", first_sample(setup), plain));
  return true;
}

Status check_rows_alone(const torch::Tensor& in_batch, const torch::Tensor& alone) {
  return check_same_answer("a sample's result depends on its batch (difference, bound):", in_batch.slice(0, 0, 1), alone);
}

nlohmann::json describe(nlohmann::json figures, const BenchOptions& options, const BenchPlace& place, int64_t resolution,
                        int64_t parameters) {
  figures.update({{"preset", options.preset},
                  {"resolution", resolution},
                  {"batch_size", options.batch_size},
                  {"parameters", parameters},
                  {"device", place.device.str()},
                  {"dtype", options.dtype},
                  {"graph", place.replays}});
  return figures;
}

}  // namespace darkroom
