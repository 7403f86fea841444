#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include "cuda_operations.h"
#include "darkroom/tensor/cuda_plugin.h"
#include "graph_recorder.h"
#include "nccl_ranks.h"
#include "time_mark.h"

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

void synchronize_gpu(int gpu) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu));
  c10::cuda::device_synchronize();
}

// The allocator knows no device, and refuses every question, before CUDA's first use.
void wake_allocator() { at::globalContext().lazyInitDevice(c10::DeviceType::CUDA); }

int64_t peak_gpu_memory(int gpu) {
  wake_allocator();
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(gpu));
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
}

void reset_peak_gpu_memory(int gpu) {
  wake_allocator();
  c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(gpu));
}

constexpr CudaPlugin kPlugin = {.version = kCudaPluginVersion,
                                .list_gpus = list_cuda_gpus,
                                .synchronize = synchronize_gpu,
                                .peak_memory_bytes = peak_gpu_memory,
                                .reset_peak_memory = reset_peak_gpu_memory,
                                .make_graph_recorder = make_cuda_graph_recorder,
                                .make_mark = make_cuda_mark,
                                .operations = cuda_operations,
                                .make_gpu_ranks_id = make_nccl_id,
                                .join_gpu_ranks = join_nccl_ranks};

}  // namespace
}  // namespace darkroom

extern "C" __attribute__((visibility("default"))) const darkroom::CudaPlugin* darkroom_cuda_plugin() { return &darkroom::kPlugin; }
