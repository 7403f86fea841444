#pragma once

#include <torch/torch.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/source_path.h"

namespace darkroom {

/// tests/golden/diffusion/diffusers.json, made by tools/goldens/make_diffusion_goldens.py.
inline nlohmann::json read_diffusion_goldens() {
  std::ifstream file(source_path("tests/golden/diffusion/diffusers.json"));
  return nlohmann::json::parse(file);
}

/// Start of every golden run: arange(768) / 768 viewed as (3, 8, 8, 4), then moved to (4, 3, 8, 8).
inline torch::Tensor golden_start() {
  return (torch::arange(768, torch::kFloat32).view({3, 8, 8, 4}) / 768).permute({3, 0, 1, 2}).contiguous();
}

/// The network of every golden run.
inline torch::Tensor golden_network(const torch::Tensor& noisy, const torch::Tensor& timesteps_n) {
  const double timestep = timesteps_n[0].item<double>();
  return noisy * timestep / (timestep + 1);
}

}  // namespace darkroom
