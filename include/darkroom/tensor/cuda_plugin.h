#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/tensor/device.h"

namespace darkroom {

struct OperationTable;  // ops/operation_table.h: a module above this one.

// The seam between the CPU program and libdarkroom_cuda.so: the plugin exports one C function that returns this table.
// Both sides are built together by one compiler, so the table may use our own and the standard library's types. The plugin is opened
// with RTLD_LOCAL and neither side links the other: whatever one needs of the other goes through here.

inline constexpr const char* kCudaPluginFile = "libdarkroom_cuda.so";
inline constexpr const char* kCudaPluginEntryName = "darkroom_cuda_plugin";
inline constexpr int kCudaPluginVersion = 2;

/// Runs functions on a stream of its own, ordered after what the caller's current stream holds and before what it gets next, and
/// can record one. Thread safety: none.
class GraphRecorder {
 public:
  virtual ~GraphRecorder() = default;
  /// Calls `run` with that stream as the current one.
  virtual void run(const std::function<void()>& run) = 0;
  /// Records what `run` asks of the device, without doing it. REQUIRES: `run` neither waits for the device nor copies from unpinned memory,
  /// and has run() at least once. Errors: throws what `run` or CUDA throws; nothing is recorded then.
  virtual void record(const std::function<void()>& run) = 0;
  /// Does what was recorded. REQUIRES: record() has returned.
  virtual void replay() = 0;
};

/// GPUs are counted from 0. Functions throw c10::Error where CUDA fails.
struct CudaPlugin {
  int version;  ///< kCudaPluginVersion of the plugin.
  /// Fills `gpus`, or returns false with the reason (no driver, no device).
  bool (*list_gpus)(std::vector<GpuInfo>& gpus, std::string& reason);
  /// Waits for everything asked of a GPU.
  void (*synchronize)(int gpu);
  /// Most bytes of tensors held at a time on a GPU since the start or the last reset.
  int64_t (*peak_memory_bytes)(int gpu);
  void (*reset_peak_memory)(int gpu);
  std::unique_ptr<GraphRecorder> (*make_graph_recorder)(int gpu);
  /// The operations on GPU tensors. `reference` serves what the plugin has no kernel for; it lives as long as the program.
  const OperationTable* (*operations)(const OperationTable& reference);
};

using CudaPluginEntry = const CudaPlugin* (*)();

/// The plugin once list_gpus() (device.h) has loaded it with success; null before, and where there is no GPU. Loads nothing.
/// Thread safety: safe.
const CudaPlugin* loaded_cuda_plugin();

}  // namespace darkroom
