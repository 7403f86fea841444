#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <vector>

namespace darkroom {

/// Standard normal noise from one torch CPU generator a picture, as diffusers draws it from a list of generators: a picture's noise
/// depends on its seed alone, not on its batch. Thread safety: none.
class SeededNoise {
 public:
  /// `shape` is a batch's; its first size is not read.
  SeededNoise(std::span<const uint64_t> seeds, std::vector<int64_t> shape);

  /// The next draw of every picture, float32 on the CPU: (seeds, shape[1], ...).
  torch::Tensor draw();

 private:
  std::vector<int64_t> picture_shape_;
  std::vector<at::Generator> generators_;
};

}  // namespace darkroom
