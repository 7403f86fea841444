#include "darkroom/diffusion/seeded_noise.h"

#include <ATen/CPUGeneratorImpl.h>

namespace darkroom {

SeededNoise::SeededNoise(std::span<const uint64_t> seeds, std::vector<int64_t> shape) : picture_shape_(std::move(shape)) {
  picture_shape_[0] = 1;
  for (const uint64_t seed : seeds) {
    generators_.push_back(at::make_generator<at::CPUGeneratorImpl>(seed));
  }
}

torch::Tensor SeededNoise::draw() {
  std::vector<torch::Tensor> pictures;
  for (at::Generator& generator : generators_) {
    pictures.push_back(torch::randn(picture_shape_, generator, torch::kFloat32));
  }
  return torch::cat(pictures);
}

}  // namespace darkroom
