#include "darkroom/tensor/gpu_advice.h"

#include <filesystem>

#include "darkroom/tensor/cuda_plugin.h"

namespace darkroom {

bool has_nvidia_driver(const std::string& root) {
  // The second is all that some container engines show of it.
  for (const char* file : {"proc/driver/nvidia/version", "dev/nvidiactl"}) {
    std::error_code error;
    if (std::filesystem::exists(std::filesystem::path(root) / file, error)) {
      return true;
    }
  }
  return false;
}

std::string gpu_advice(std::string_view loader_error) {
  const std::string is_missing = std::string(kCudaPluginFile) + ": cannot open shared object file";
  if (loader_error.find(is_missing) != std::string_view::npos) {
    return std::string("this machine has a GPU of NVIDIA, but there is no ") + kCudaPluginFile +
           " beside the program: make install CUDA=1, or make wheel CUDA=1 (docs/installing.md)";
  }
  return "this machine has a GPU of NVIDIA, but the plugin does not open it: see docs/installing.md for the libraries that it needs";
}

}  // namespace darkroom
