#pragma once

#include <memory>
#include <string>

#include "darkroom/tensor/cuda_plugin.h"

namespace darkroom {

/// The plugin table's make_gpu_ranks_id and join_gpu_ranks, by NCCL.
Status make_nccl_id(bool is_loopback, std::string& id);
Status join_nccl_ranks(const GpuMeeting& meeting, std::unique_ptr<GpuRanks>& ranks);

}  // namespace darkroom
