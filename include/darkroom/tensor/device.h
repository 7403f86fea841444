#pragma once

#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// One GPU as the plugin sees it.
struct GpuInfo {
  std::string name;
  uint64_t memory_bytes = 0;
  int compute_major = 0;
  int compute_minor = 0;
};

/// Loads libdarkroom_cuda.so (beside the program, else on the library path) at the first call and lists the GPUs.
/// Loading registers torch's CUDA kernels, too; do it before the first backward pass, because torch's autograd sets up its threads then and
/// serves only the devices that it knows. Later calls return the first answer.
/// Errors: kUnavailable with the reason: no plugin built, NVIDIA libraries or driver missing, no device.
/// Thread safety: safe.
const Result<std::vector<GpuInfo>>& list_gpus();

/// Whether the plugin's kernels run on the GPU: they are compiled for compute capability 8.0 and later (Ampere).
/// Errors: kUnavailable, naming the GPU and its capability.
Status check_capability(const GpuInfo& gpu);

/// What `--device` means on this machine: "cpu", "cuda:0", ... `auto` takes the first GPU that the kernels run on, else the CPU.
/// Errors: kInvalidArgument for text that is no device, kUnavailable for a GPU that is not there or that the kernels do not run on.
Result<std::string> resolve_device(const std::string& text);

}  // namespace darkroom
