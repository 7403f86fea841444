#include <ATen/cuda/CUDAContext.h>
#include <cuda_runtime_api.h>

#include "darkroom/tensor/cuda_plugin.h"

namespace darkroom {
namespace {

bool list_cuda_gpus(std::vector<GpuInfo>& gpus, std::string& reason) {
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess || count == 0) {
    reason = error != cudaSuccess ? cudaGetErrorString(error) : "the driver reports no device";
    return false;
  }
  for (int index = 0; index < count; ++index) {
    const cudaDeviceProp* properties = at::cuda::getDeviceProperties(index);  // Keeps libtorch_cuda linked, too.
    gpus.push_back({properties->name, properties->totalGlobalMem, properties->major, properties->minor});
  }
  return true;
}

constexpr CudaPlugin kPlugin = {.version = kCudaPluginVersion, .list_gpus = list_cuda_gpus};

}  // namespace
}  // namespace darkroom

extern "C" __attribute__((visibility("default"))) const darkroom::CudaPlugin* darkroom_cuda_plugin() { return &darkroom::kPlugin; }
