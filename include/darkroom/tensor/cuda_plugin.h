#pragma once

#include <string>
#include <vector>

#include "darkroom/tensor/device.h"

namespace darkroom {

// The seam between the CPU program and libdarkroom_cuda.so: the plugin exports one C function that returns this table.
// Both sides are built together by one compiler, so the table may use our own and the standard library's types.

inline constexpr const char* kCudaPluginFile = "libdarkroom_cuda.so";
inline constexpr const char* kCudaPluginEntryName = "darkroom_cuda_plugin";
inline constexpr int kCudaPluginVersion = 1;

struct CudaPlugin {
  int version;  ///< kCudaPluginVersion of the plugin.
  /// Fills `gpus`, or returns false with the reason (no driver, no device).
  bool (*list_gpus)(std::vector<GpuInfo>& gpus, std::string& reason);
};

using CudaPluginEntry = const CudaPlugin* (*)();

}  // namespace darkroom
