#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/status.h"
#include "darkroom/tensor/device.h"

namespace at {
class Tensor;
}

namespace darkroom {

struct OperationTable;  // ops/operation_table.h: a module above this one.
struct Transfer;        // communicator.h

// The seam between the CPU program and libdarkroom_cuda.so: the plugin exports one C function that returns this table.
// Both sides are built together by one compiler, so the table may use our own and the standard library's types. The plugin is opened
// with RTLD_LOCAL and neither side links the other: whatever one needs of the other goes through here.

inline constexpr const char* kCudaPluginFile = "libdarkroom_cuda.so";
inline constexpr const char* kCudaPluginEntryName = "darkroom_cuda_plugin";
inline constexpr int kCudaPluginVersion = 5;

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
  /// A recorder whose recording takes its memory where this one's does: a replay of either voids what the other's has left there.
  virtual std::unique_ptr<GraphRecorder> beside() const = 0;
};

/// A place in what a GPU has been asked for, and when it came there. Thread safety: none.
class GpuMark {
 public:
  virtual ~GpuMark() = default;
  /// The place behind what the caller's current stream holds; in a recording, the one to which each replay comes anew.
  virtual void record() = 0;
  /// Milliseconds from the last time that the GPU came to `earlier` until it came here. REQUIRES: it has come to both.
  virtual double ms_since(const GpuMark& earlier) const = 0;
};

/// A GPU of this process among those of other ranks, joined by NCCL. What is asked goes on the caller's current stream of the GPU, in its
/// order, and nobody waits for it; all ranks ask the same in the same order. Thread safety: one thread asks, health() and abort() are for
/// any.
class GpuRanks {
 public:
  /// Ends what is under way.
  virtual ~GpuRanks() = default;
  /// As Communicator's, of tensors on this GPU. Errors: kUnavailable (NCCL's reason); what was asked is void then.
  virtual Status exchange(const std::vector<Transfer>& sends, const std::vector<Transfer>& receives) = 0;
  virtual Status all_reduce(const at::Tensor& tensor) = 0;
  /// Whether what was asked so far goes well. Errors: kUnavailable.
  virtual Status health() = 0;
  /// Ends what is under way, on the GPU, too: who waits for it goes on, and has garbage. Later calls fail.
  virtual void abort() = 0;
};

/// Which ranks meet, and for how long they wait for each other.
struct GpuMeeting {
  std::string id;  ///< make_gpu_ranks_id() of rank 0.
  int gpu = 0;
  int64_t rank = 0;
  int64_t size = 1;
  std::chrono::milliseconds patience{0};
  bool is_loopback = false;  ///< Listen to this machine alone.
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
  std::unique_ptr<GpuMark> (*make_mark)(int gpu);
  /// The operations on GPU tensors. `reference` serves what the plugin has no kernel for; it lives as long as the program.
  const OperationTable* (*operations)(const OperationTable& reference);
  /// A name for a new group of ranks, any bytes; `is_loopback` as in GpuMeeting.
  Status (*make_gpu_ranks_id)(bool is_loopback, std::string& id);
  /// Joins them. Errors: kUnavailable (nobody came in time, no connection); kFailedPrecondition (a GPU of two ranks).
  Status (*join_gpu_ranks)(const GpuMeeting& meeting, std::unique_ptr<GpuRanks>& ranks);
};

using CudaPluginEntry = const CudaPlugin* (*)();

/// The plugin once list_gpus() (device.h) has loaded it with success; null before, and where there is no GPU. Loads nothing.
/// Thread safety: safe.
const CudaPlugin* loaded_cuda_plugin();

}  // namespace darkroom
