#pragma once

#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "darkroom/core/status.h"

namespace darkroom {

class GpuMark;
class GraphRecorder;

// What training and sampling ask of a device beside tensor operations. On the CPU each has the obvious meaning, so that callers have no
// device test. REQUIRES: a GPU's functions are called after resolve_device (device.h) gave its name.

/// Waits until everything asked of `device` is done; on the CPU it always is.
void synchronize(const torch::Device& device);

/// Whether a device still does what it is asked, though something has failed there. Errors: kUnavailable (a GPU does nothing any more in
/// this process).
Status try_device(const torch::Device& device);

/// What the boundary of a program that computes on devices makes of an exception: kResourceExhausted where a GPU's memory is used up, else
/// as caught_failure (core/used_up_memory.h), asking for a report of what can be a bug alone.
Status caught_on_device(const std::exception& failure);

/// An uninitialised CPU tensor from and to which copies to `device` can run beside other work (page-locked memory); for the CPU
/// ordinary memory. Such copies are asynchronous with copy_(..., non_blocking = true): synchronize() before the CPU looks.
torch::Tensor empty_staging(at::IntArrayRef shape, torch::ScalarType type, const torch::Device& device);

/// Most bytes of tensors held at a time on a GPU since the start or the last reset; for the CPU the largest resident size of the
/// process, which cannot be reset.
int64_t peak_memory_bytes(const torch::Device& device);
void reset_peak_memory(const torch::Device& device);

/// A place in what a device has been asked for, and when the device came there: an event of a GPU's current stream, on the CPU the time of
/// record(). In a DeviceGraph's function each replay comes there anew. Asking for it waits for nothing. Thread safety: none.
class TimeMark {
 public:
  explicit TimeMark(const torch::Device& device);
  ~TimeMark();
  TimeMark(const TimeMark&) = delete;
  TimeMark& operator=(const TimeMark&) = delete;

  void record();
  /// Milliseconds from the last time that the device came to `earlier` until it came here. REQUIRES: both were recorded on one device,
  /// which has come to both: who calls this has waited for what followed them.
  double ms_since(const TimeMark& earlier) const;

 private:
  std::unique_ptr<GpuMark> mark_;  // Null on the CPU.
  std::chrono::steady_clock::time_point time_;
};

/// A function that is called again and again, recorded on a GPU and then replayed in one launch (a CUDA graph). The first calls of
/// run() call the function (libraries set themselves up then, and allocate), the next one records it and replays, later ones replay;
/// so every run() has the effect of one call. On the CPU, and when `replays` is false, run() just calls the function.
///
/// REQUIRES of the function on a GPU: it reads and writes the same tensors in each call; the CPU's part in it (sizes, branches, numbers
/// that it passes) is the same each time; it does not wait for the device, so it looks at no value. What changes between calls
/// goes through tensors, which the caller fills before run(). Thread safety: none.
class DeviceGraph {
 public:
  static constexpr int64_t kWarmUpCalls = 3;

  DeviceGraph(const torch::Device& device, std::function<void()> function, bool replays = true);
  /// One that shares memory with `beside`, which may go first: recordings that never run at one time need not hold memory each. A run of
  /// either voids the tensors that the other's function has made; those that were made before they were recorded are safe.
  DeviceGraph(const DeviceGraph& beside, std::function<void()> function);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  void run();
  /// Whether the next run() replays.
  bool is_recorded() const { return is_recorded_; }

 private:
  std::function<void()> function_;
  std::unique_ptr<GraphRecorder> recorder_;  // Null where nothing is recorded.
  int64_t num_calls_ = 0;
  bool is_recorded_ = false;
};

}  // namespace darkroom
