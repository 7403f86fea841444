#pragma once

#include <torch/torch.h>

#include <string>
#include <string_view>

#include "darkroom/core/result.h"

namespace darkroom {

/// Where a network that is only run, not trained, lies and in which float type it computes.
struct NetworkPlace {
  torch::Device device = torch::kCPU;
  torch::ScalarType type = torch::kFloat32;  ///< kFloat32, kFloat16 or kBFloat16.

  /// "cpu" or "cuda": what results depend on, whichever GPU of a machine it is.
  std::string device_class() const { return device.is_cpu() ? "cpu" : "cuda"; }
  bool operator==(const NetworkPlace&) const = default;
};

/// "float32", "float16", "bfloat16": the types' names in flags, recipes and fingerprints.
std::string_view float_type_name(torch::ScalarType type);

/// The place that a command line names: `device` as resolve_device takes it; `type` one of float_type_name()'s names, or "auto" for
/// float32 on the CPU and `type_on_gpu` on a GPU. For a GPU it also chooses, for the whole process, kernels that give the same bits for the
/// same call (cuDNN's deterministic ones, chosen without timing; attention without cuDNN's, which are compiled at their first use) and
/// compute float32 as float32 (no TF32).
/// Errors: those of resolve_device, which say why there is no GPU; kInvalidArgument for another type.
Result<NetworkPlace> find_network_place(const std::string& device, const std::string& type, torch::ScalarType type_on_gpu);

/// Where `network` lies now: its first parameter's device and type. REQUIRES: it has a parameter.
NetworkPlace place_of(const torch::nn::Module& network);

/// Moves a network that is only run, not trained, to a device and a float type, and on a GPU its convolution weights to channels-last,
/// which convolutions there take without a copy; features then flow through the network in that layout, too. Names and shapes stay; what
/// lies there in that type already is not copied.
/// (Trained networks are placed by optim's FlatParameters.) Thread safety: nobody may use the network meanwhile.
void place_network(torch::nn::Module& network, const torch::Device& device, torch::ScalarType type);
void place_network(torch::nn::Module& network, const NetworkPlace& place);

/// A CPU tensor's values on `device`, without waiting for it: through page-locked memory. On the CPU the tensor itself.
torch::Tensor upload(const torch::Tensor& host, const torch::Device& device);

}  // namespace darkroom
