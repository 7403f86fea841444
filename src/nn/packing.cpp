#include "darkroom/nn/packing.h"

#include "darkroom/nn/placement.h"
#include "layers.h"

namespace darkroom {
namespace {

bool has_bfloat16_products() {
#ifdef __x86_64__
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return false;
#endif
}

bool packing_helps(const NetworkPlace& place) {
  if (!place.device.is_cpu() || !at::hasMKLDNN() || !at::globalContext().userEnabledMkldnn()) {
    return false;
  }
  return place.type == torch::kFloat32 || (place.type == torch::kBFloat16 && has_bfloat16_products());
}

}  // namespace

bool pack_network(torch::nn::Module& network) {
  if (!packing_helps(place_of(network))) {
    return false;
  }
  const torch::NoGradGuard no_grad;
  for (const auto& module : network.modules()) {
    if (auto* const linear = module->as<LinearImpl>()) {
      linear->pack();
    } else if (auto* const convolution = module->as<Conv2dImpl>()) {
      convolution->pack();
    }
  }
  return true;
}

}  // namespace darkroom
