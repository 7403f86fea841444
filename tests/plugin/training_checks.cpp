#include "checks.h"
#include "darkroom/core/random.h"
#include "darkroom/ops/adamw_update.h"
#include "darkroom/ops/add_noise.h"
#include "darkroom/ops/counter_normal.h"

namespace darkroom::plugin_checks {
namespace {

void check_add_noise(Findings& findings, const torch::Device& device) {
  for (const auto& shape : std::vector<std::vector<int64_t>>{{4, 4, 32, 32}, {3, 4, 5, 7}, {1, 1}, {0, 4}}) {
    const auto clean = torch::randn(shape), noise = torch::randn(shape), scales = torch::rand({shape[0], 2});
    const auto want = add_noise_with_velocity(clean, noise, scales);
    const auto got = add_noise_with_velocity(clean.to(device), noise.to(device), scales.to(device));
    findings.same_bits(c10::str("noisy ", shape), got.first, want.first);
    findings.same_bits(c10::str("velocity ", shape), got.second, want.second);
    findings.same_bits(c10::str("alone ", shape), add_noise(clean.to(device), noise.to(device), scales.to(device)), want.first);
  }
}

void check_counter_normal(Findings& findings, const torch::Device& device) {
  constexpr int64_t kSamples = 5;
  const auto coordinates = torch::empty({kSamples, 2}, torch::kInt64);
  for (int64_t n = 0; n < kSamples; ++n) {
    coordinates[n][0] = n * 1'000'003 % (1 << 24);
    coordinates[n][1] = static_cast<int64_t>(hash_key(std::to_string(n)));
  }
  for (const int64_t row : {1, 2, 3, 4, 5, 16384, 100'003}) {
    const uint64_t seed = 0xfedcba9876543210;
    findings.same_bits(c10::str("row of ", row), counter_normal(seed, Purpose::kNoise, coordinates.to(device), {kSamples, row}),
                       counter_normal(seed, Purpose::kNoise, coordinates, {kSamples, row}));
  }
}

AdamWArrays random_arrays(int64_t size, torch::ScalarType gradients, bool with_ema) {
  AdamWArrays arrays{.weights = torch::randn({size}),
                     .gradients = torch::randn({size}).to(gradients),
                     .first_moment = torch::randn({size}) * 0.1,
                     .second_moment = torch::rand({size}) * 0.01,
                     .ema = with_ema ? torch::randn({size}) : torch::Tensor(),
                     .compute = gradients == torch::kBFloat16 ? torch::zeros({size}, torch::kBFloat16) : torch::Tensor()};
  return arrays;
}

AdamWArrays moved(const AdamWArrays& arrays, const torch::Device& device) {
  const auto move = [&](const torch::Tensor& tensor) { return tensor.defined() ? tensor.to(device) : tensor; };
  return {move(arrays.weights),       move(arrays.gradients), move(arrays.first_moment),
          move(arrays.second_moment), move(arrays.ema),       move(arrays.compute)};
}

torch::Tensor scalars_of_a_late_update() {
  torch::Tensor scalars = torch::empty({AdamWScalar::kCount}, torch::kFloat64);
  const std::vector<double> values = {
      1.0, 0.7, 1.0 - 3e-4 * 1e-2, 0.1, 0.999, 0.001, std::sqrt(1 - std::pow(0.999, 41)), 1e-8, -3e-4 / (1 - std::pow(0.9, 41)), 1e-4};
  std::copy(values.begin(), values.end(), scalars.data_ptr<double>());
  return scalars;
}

void check_update(Findings& findings, const torch::Device& device) {
  for (const int64_t size : {1, 3, 4, 1023, 4096, 1'000'003}) {
    for (const auto gradients : {torch::kFloat32, torch::kBFloat16}) {
      for (const bool with_ema : {true, false}) {
        const AdamWArrays want = random_arrays(size, gradients, with_ema), got = moved(want, device);
        const torch::Tensor scalars = scalars_of_a_late_update();
        adamw_update(want, scalars);
        adamw_update(got, scalars.to(device));
        const std::string name = c10::str(c10::toString(gradients), " ", size, with_ema ? " with EMA" : "");
        findings.same_bits(name + " weights", got.weights, want.weights);
        findings.same_bits(name + " first moment", got.first_moment, want.first_moment);
        findings.same_bits(name + " second moment", got.second_moment, want.second_moment);
        if (with_ema) {
          findings.same_bits(name + " EMA", got.ema, want.ema);
        }
        if (want.compute.defined()) {
          findings.same_bits(name + " compute copy", got.compute, want.compute);
        }
      }
    }
  }
}

void check_skipped_update(Findings& findings, const torch::Device& device) {
  const AdamWArrays before = random_arrays(1000, torch::kBFloat16, true), arrays = moved(before, device);
  const torch::Tensor scalars = scalars_of_a_late_update().to(device);
  const auto scale_for = [&](double squared, double loss) {
    clip_scale(torch::full({1}, squared, torch::dtype(torch::kFloat64).device(device)), torch::full({700}, loss, torch::device(device)),
               scalars);
    return scalars.to(torch::kCPU).data_ptr<double>()[AdamWScalar::kGradientScale];
  };
  findings.holds("a finite step is clipped", std::abs(scale_for(16.0, 1.0) - 0.7 / (4.0 + 1e-6)) < 1e-15);
  findings.holds("a small gradient is not", scale_for(0.01, 1.0) == 1.0);
  for (const auto& [squared, loss] : {std::pair(std::nan(""), 1.0), std::pair(1.0, std::nan("")), std::pair(1.0, 1.0 / 0.0)}) {
    findings.holds("a step that is not finite has no scale", std::isnan(scale_for(squared, loss)));
    adamw_update(arrays, scalars);
    findings.same_bits("weights of a skipped update", arrays.weights, before.weights);
    findings.same_bits("EMA of a skipped update", arrays.ema, before.ema);
    findings.same_bits("copy of a skipped update", arrays.compute, before.compute);
  }
}

void check_squared_norm(Findings& findings, const torch::Device& device) {
  for (const int64_t size : {0, 1, 7, 8, 16'383, 16'384, 16'385, 3'000'017}) {
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      const auto values = torch::randn({size}).to(type), on_gpu = values.to(device);
      const auto got = squared_norm(on_gpu);
      // Sums of squares in double: at most a rounding of 2^-53 a term.
      findings.close(c10::str(c10::toString(type), " ", size), got, squared_norm(values), static_cast<double>(size + 1) * 0x1p-52);
      findings.same_bits(c10::str(c10::toString(type), " ", size, " again"), squared_norm(on_gpu), got);
      const int64_t cut = size / 2 / kNormChunk * kNormChunk;
      const auto parts = torch::cat({norm_partials(on_gpu.narrow(0, 0, cut)), norm_partials(on_gpu.narrow(0, cut, size - cut))});
      findings.same_bits(c10::str(c10::toString(type), " ", size, " in two parts"), add_norm_partials(parts), got);
    }
  }
}

}  // namespace

std::vector<Check> training_checks() {
  return {{"kernel: add_noise has the CPU's bits", check_add_noise},
          {"kernel: counter_normal has the CPU's bits", check_counter_normal},
          {"kernel: adamw_update has the CPU's bits", check_update},
          {"kernel: a step that is not finite changes nothing", check_skipped_update},
          {"kernel: squared_norm equals the CPU's and itself", check_squared_norm}};
}

}  // namespace darkroom::plugin_checks
