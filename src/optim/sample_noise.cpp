#include "sample_noise.h"

#include "darkroom/ops/counter_normal.h"

namespace darkroom {

torch::Tensor noise_coordinates(const std::vector<SampleCoordinates>& samples) {
  const auto num_samples = static_cast<int64_t>(samples.size());
  torch::Tensor coordinates_n2 = torch::empty({num_samples, 2}, torch::kInt64);
  int64_t* values = coordinates_n2.data_ptr<int64_t>();
  for (const SampleCoordinates& sample : samples) {
    *values++ = sample.epoch;
    *values++ = static_cast<int64_t>(sample.key_hash);
  }
  return coordinates_n2;
}

torch::Tensor sample_noise(uint64_t seed, Purpose purpose, const std::vector<SampleCoordinates>& samples, at::IntArrayRef shape) {
  return counter_normal(seed, purpose, noise_coordinates(samples), shape);
}

}  // namespace darkroom
