#pragma once

#include <memory>
#include <string>

#include "darkroom/tensor/cuda_plugin.h"

namespace darkroom::fake {

/// The plugin table's entries for ranks: processes of this machine, each with a fake device, joined by Gloo on the loopback.
Status make_ranks_id(bool is_loopback, std::string& id);
Status join_ranks(const GpuMeeting& meeting, std::unique_ptr<GpuRanks>& ranks);

}  // namespace darkroom::fake
