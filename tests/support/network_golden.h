#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "darkroom/core/random.h"
#include "darkroom/core/result.h"
#include "darkroom/tensor/safetensors.h"

namespace darkroom {

/// What the reference packages made of a small network: tensors, and the network's config. tools/goldens/make_nn_goldens.py and
/// tools/goldens/make_training_goldens.py make the files and say what is in them.
struct NetworkGolden {
  std::shared_ptr<SafetensorsFile> file;
  nlohmann::json config;

  static Result<NetworkGolden> open(const std::string& path) {
    DARKROOM_ASSIGN_OR_RETURN(auto file, SafetensorsFile::open(path));
    auto config = nlohmann::json::parse(file->metadata().at("config"));
    return NetworkGolden{std::move(file), std::move(config)};
  }

  torch::Tensor tensor(const std::string& name) const { return file->tensor(name).value(); }
};

/// Draws every parameter as tools/goldens/nn_reference.py does.
inline void fill_parameters(torch::nn::Module& module) {
  constexpr uint64_t kSeed = 1;
  constexpr double kScale = 0.2;
  const torch::NoGradGuard no_grad;
  for (auto& item : module.named_parameters()) {
    const CounterRandom random(kSeed, Purpose::kInit, 0, item.key());
    const bool is_norm_weight = item.value().dim() == 1 && item.key().ends_with("weight");
    float* values = item.value().data_ptr<float>();
    for (int64_t i = 0; i < item.value().numel(); ++i) {
      const auto value = static_cast<float>((2 * random.uniform(static_cast<uint64_t>(i)) - 1) * kScale);
      values[i] = is_norm_weight ? value + 1 : value;
    }
  }
}

/// What the files keep of a parameter or gradient: all of a small one, of a larger one every sixteenth element.
inline torch::Tensor thinned(const torch::Tensor& tensor) {
  constexpr int64_t kStride = 16;
  constexpr int64_t kStrideFrom = 32;
  const auto whole = tensor.detach().contiguous();
  return whole.numel() > kStrideFrom ? whole.view(-1).slice(0, 0, std::nullopt, kStride) : whole;
}

}  // namespace darkroom
