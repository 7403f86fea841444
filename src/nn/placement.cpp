#include "darkroom/nn/placement.h"

#include <fmt/format.h>

#include <array>

#include "darkroom/core/check.h"
#include "darkroom/tensor/device.h"
#include "darkroom/tensor/device_runtime.h"

namespace darkroom {
namespace {

constexpr std::array kNetworkTypes = {torch::kFloat32, torch::kFloat16, torch::kBFloat16};

Result<torch::ScalarType> parse_network_type(const std::string& name) {
  for (const torch::ScalarType type : kNetworkTypes) {
    if (name == float_type_name(type)) {
      return type;
    }
  }
  return Status::invalid_argument("networks compute in auto, float32, float16 or bfloat16, got:", name);
}

// The same bits for the same call, and no call that waits for a library's search: cuDNN's attention is compiled for every shape and thread,
// which takes seconds where a picture takes a quarter of one.
void choose_kernels() {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuDNN(false);
  context.setAllowTF32CuBLAS(false);
  context.setBenchmarkCuDNN(false);
  context.setDeterministicCuDNN(true);
  context.setSDPUseCuDNN(false);
}

}  // namespace

std::string_view float_type_name(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat16:
      return "float16";
    case torch::kBFloat16:
      return "bfloat16";
    default:
      DARKROOM_CHECK(type == torch::kFloat32, "networks do not compute in:", torch::toString(type));
      return "float32";
  }
}

Result<NetworkPlace> find_network_place(const std::string& device, const std::string& type, torch::ScalarType type_on_gpu) {
  NetworkPlace place;
  DARKROOM_ASSIGN_OR_RETURN(const std::string name, resolve_device(device));
  place.device = torch::Device(name);
  if (type != "auto") {
    DARKROOM_ASSIGN_OR_RETURN(place.type, parse_network_type(type));
  } else if (!place.device.is_cpu()) {
    place.type = type_on_gpu;
  }
  if (!place.device.is_cpu()) {
    choose_kernels();
  }
  return place;
}

NetworkPlace place_of(const torch::nn::Module& network) {
  const std::vector<torch::Tensor> parameters = network.parameters();
  DARKROOM_CHECK(!parameters.empty(), "a network without parameters lies nowhere");
  return {.device = parameters.front().device(), .type = parameters.front().scalar_type()};
}

void place_network(torch::nn::Module& network, const torch::Device& device, torch::ScalarType type) {
  constexpr int64_t kConvolutionDimensions = 4;
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : network.parameters()) {
    const bool is_convolution = parameter.dim() == kConvolutionDimensions;
    const auto layout = is_convolution && !device.is_cpu() ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    parameter.set_data(parameter.detach().to(device, type).contiguous(layout));
  }
}

void place_network(torch::nn::Module& network, const NetworkPlace& place) { place_network(network, place.device, place.type); }

torch::Tensor upload(const torch::Tensor& host, const torch::Device& device) {
  if (device.is_cpu()) {
    return host;
  }
  // The allocator of page-locked memory keeps it until the copy is done.
  return empty_staging(host.sizes(), host.scalar_type(), device).copy_(host).to(device, host.scalar_type(), /*non_blocking=*/true);
}

}  // namespace darkroom
