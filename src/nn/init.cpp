#include "darkroom/nn/init.h"

#include <cmath>
#include <functional>
#include <span>
#include <string>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"

namespace darkroom {
namespace {

std::span<float> values_of(torch::Tensor& parameter) {
  DARKROOM_CHECK(parameter.is_contiguous() && parameter.scalar_type() == torch::kFloat32 && parameter.device().is_cpu(),
                 "parameters are initialised in float32 on the CPU");
  return {parameter.data_ptr<float>(), static_cast<size_t>(parameter.numel())};
}

void fill_uniform(torch::Tensor& parameter, const CounterRandom& random, double bound) {
  const auto values = values_of(parameter);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((2 * random.uniform(i) - 1) * bound);
  }
}

void fill_normal(torch::Tensor& parameter, const CounterRandom& random, double deviation) {
  const auto values = values_of(parameter);
  random.fill_normal(values);
  for (float& value : values) {
    value = static_cast<float>(value * deviation);
  }
}

// Calls fill(name, parameter, random) for every parameter, with the generator of its name, until a stop is requested.
void for_each_parameter(torch::nn::Module& module, const std::string& component, uint64_t seed, const std::stop_token& stop,
                        const std::function<void(const std::string&, torch::Tensor&, const CounterRandom&)>& fill) {
  const torch::NoGradGuard no_grad;
  for (auto& item : module.named_parameters()) {
    if (stop.stop_requested()) {
      return;
    }
    fill(item.key(), item.value(), CounterRandom(seed, Purpose::kInit, 0, component + "/" + item.key()));
  }
}

std::string weight_beside(const std::string& bias_name) { return bias_name.substr(0, bias_name.rfind('.') + 1) + "weight"; }

// PyTorch's reset_parameters: kaiming_uniform(a = sqrt(5)) of the weight is uniform in +-1/sqrt(fan_in), as is the bias.
void initialize_like_pytorch(torch::nn::Module& module, const std::string& component, uint64_t seed, const std::stop_token& stop) {
  const auto parameters = module.named_parameters();
  for_each_parameter(module, component, seed, stop, [&](const std::string& name, torch::Tensor& parameter, const CounterRandom& random) {
    const bool is_bias = name.ends_with("bias");
    const torch::Tensor& weight = is_bias ? parameters[weight_beside(name)] : parameter;
    if (weight.dim() == 1) {  // A norm.
      parameter.fill_(is_bias ? 0 : 1);
      return;
    }
    fill_uniform(parameter, random, 1 / std::sqrt(static_cast<double>(weight.numel() / weight.size(0))));
  });
}

// Standard deviation of a weight of the text encoder (transformers' CLIPPreTrainedModel).
double clip_deviation(const std::string& name, const ClipTextConfig& config) {
  const auto width = static_cast<double>(config.hidden_size);
  if (name.ends_with("embedding.weight")) {
    return 0.02 * config.initializer_factor;
  }
  if (name.ends_with("out_proj.weight") || name == "text_projection.weight") {
    return config.initializer_factor / std::sqrt(width);
  }
  if (name.ends_with("fc1.weight")) {
    return config.initializer_factor / std::sqrt(2 * width);
  }
  return config.initializer_factor / std::sqrt(width * 2 * static_cast<double>(config.num_hidden_layers));  // q, k, v, fc2.
}

}  // namespace

void initialize_parameters(UNet2DConditionModel& unet, uint64_t seed, const std::stop_token& stop) {
  initialize_like_pytorch(*unet, "unet", seed, stop);
}

void initialize_parameters(AutoencoderKL& vae, uint64_t seed, const std::stop_token& stop) {
  initialize_like_pytorch(*vae, "vae", seed, stop);
}

void initialize_parameters(ClipTextModel& text_encoder, uint64_t seed, const std::stop_token& stop) {
  const ClipTextConfig& config = text_encoder->config();
  for_each_parameter(*text_encoder, "text_encoder", seed, stop,
                     [&](const std::string& name, torch::Tensor& parameter, const CounterRandom& random) {
                       if (name.ends_with("bias")) {
                         parameter.zero_();
                       } else if (parameter.dim() == 1) {  // A norm.
                         parameter.fill_(1);
                       } else {
                         fill_normal(parameter, random, clip_deviation(name, config));
                       }
                     });
}

}  // namespace darkroom
