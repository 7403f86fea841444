#pragma once

#include <dlfcn.h>

#include <cstdint>

// A GPU that is not there: a stand-in of libdarkroom_cuda.so for machines without one (docs/testing.md). The unmodified program opens it as
// its CUDA plugin when its folder is on the loader's path (LD_LIBRARY_PATH=build/release/tests/fake_device). Every operation of torch that
// has a CPU kernel then runs on `cuda:0`, by that kernel, in memory that the host cannot read.

namespace darkroom {

/// What the fake device was asked for since it was loaded.
struct FakeDeviceCounts {
  int64_t host_to_device = 0;  ///< Copies, by direction.
  int64_t host_to_device_bytes = 0;
  int64_t device_to_host = 0;
  int64_t device_to_device = 0;
  int64_t synchronisations = 0;  ///< The host waited for all of the device: a pageable copy, item(), a shape that depends on values, ...
  int64_t event_waits = 0;       ///< The host waited for what was asked up to a recorded event.
  int64_t late_waits = 0;        ///< Those of them for which nothing was copied since: the device had nothing left to do meanwhile.
  int64_t stream_waits = 0;      ///< One stream was to wait for another's event; what misses such a wait throws.
  int64_t kernels = 0;
  int64_t recordings = 0;  ///< Graphs.
  int64_t replays = 0;
  int64_t live_bytes = 0;  ///< Of tensors.
  int64_t peak_bytes = 0;  ///< Since the start or the last reset_peak_memory().

  /// The device's clock, which its marks (TimeMark) read: a microsecond for each kernel and each copy, so that times are the same in every
  /// run. While a graph is recorded it goes on, as the host does what is recorded.
  int64_t microseconds() const { return kernels + host_to_device + device_to_host + device_to_device; }
};

inline constexpr const char* kFakeDeviceCountsName = "darkroom_fake_device_counts";
using FakeDeviceCountsEntry = const FakeDeviceCounts* (*)();

/// The counts in this process; null where the fake device is not loaded (darkroom/tensor/device.h's list_gpus() loads it).
inline const FakeDeviceCounts* fake_device_counts() {
  void* library = dlopen("libdarkroom_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) {
    return nullptr;
  }
  const auto entry = reinterpret_cast<FakeDeviceCountsEntry>(dlsym(library, kFakeDeviceCountsName));
  return entry == nullptr ? nullptr : entry();
}

/// Bounds the bytes of tensors from now on: who asks for more gets c10::OutOfMemoryError. 0: no bound.
inline constexpr const char* kFakeDeviceBoundName = "darkroom_fake_device_bound";
inline void bound_fake_device_memory(int64_t num_bytes) {
  void* library = dlopen("libdarkroom_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  reinterpret_cast<void (*)(int64_t)>(dlsym(library, kFakeDeviceBoundName))(num_bytes);
}

// Environment variables that it reads when it is loaded:
/// A file into which the counts go as one JSON object when the process ends, with `waits`: synchronisations by what asked for them.
inline constexpr const char* kFakeDeviceCountsVariable = "DARKROOM_FAKE_DEVICE_COUNTS";
/// "given": convolutions take their weights in the layout in which they lie, as a GPU's do. Otherwise as O, I, H, W, so that every result
/// has the bits of a run on the CPU, whose weights lie so.
inline constexpr const char* kFakeDeviceLayoutVariable = "DARKROOM_FAKE_DEVICE_LAYOUT";
/// A mistake: "item", "event" (waits for the one just recorded), "forgotten_to" or "host_read". norm_partials makes it, of a training
/// step's update; with ":counter_normal" behind it that operation does, of every pass over a micro-batch of latents. For tests of the
/// tests. "lost_rank:N": after N exchanges the connections between ranks' devices are lost. "lost_device:N": the replay after N others
/// reads what it must not, and from then on the device refuses everything in this process. "lost_at_kernel:N": so
/// does the kernel after N others. "unordered_stream:0" or ":1": the default
/// stream, or each other one, waits for no event.
inline constexpr const char* kFakeDeviceFaultVariable = "DARKROOM_FAKE_DEVICE_FAULT";

}  // namespace darkroom
