#include "sample_noise.h"

#include <ATen/Parallel.h>

#include <span>

namespace darkroom {

torch::Tensor sample_noise(uint64_t seed, Purpose purpose, const std::vector<SampleCoordinates>& samples, at::IntArrayRef shape) {
  torch::Tensor noise = torch::empty(shape, torch::kFloat32);
  const auto num_samples = static_cast<int64_t>(samples.size());
  if (num_samples == 0) {
    return noise;
  }
  const int64_t row = noise.numel() / num_samples;
  at::parallel_for(0, num_samples, 4, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const auto [epoch, key_hash] = samples[static_cast<size_t>(n)];
      const CounterRandom random(seed, purpose, epoch, key_hash);
      random.fill_normal(std::span(noise.data_ptr<float>() + n * row, static_cast<size_t>(row)));
    }
  });
  return noise;
}

}  // namespace darkroom
