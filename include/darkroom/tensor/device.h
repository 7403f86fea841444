#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

/// Whether the text has the form of a device: auto, cpu, cuda or cuda:N.
bool is_device_text(std::string_view text);

/// What `--device` means on this machine: "cpu", "cuda:0", ... `auto` takes the first GPU that the kernels run on, else the CPU.
/// Errors: kInvalidArgument for text that is no device, kUnavailable for a GPU that is not there or that the kernels do not run on.
Result<std::string> resolve_device(const std::string& text);

/// Set, ranks of one machine may share the GPU that `--device` names. For trying ranks where there is one GPU: NCCL then takes them for
/// ranks of machines apart, which is slow.
inline constexpr const char* kShareGpuVariable = "DARKROOM_RANKS_SHARE_GPU";

/// Who started a rank among others of its machine.
enum class RankStarter : uint8_t {
  kLauncher,     ///< It may show each rank one GPU, which CUDA_VISIBLE_DEVICES names, and no other.
  kThisProgram,  ///< --nproc, whose ranks see what their starter saw: all of them the same.
};

/// The same for one of `local_size` ranks of a machine: each takes the GPU of its number, or the only one that its launcher lets it see.
/// `auto` is the CPU where there are fewer GPUs than ranks.
/// Errors: as above; kInvalidArgument for one GPU of several ranks, unless kShareGpuVariable is set.
Result<std::string> resolve_rank_device(const std::string& text, int64_t local_rank, int64_t local_size, RankStarter starter);

}  // namespace darkroom
