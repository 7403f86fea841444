#pragma once

#include <ATen/ATen.h>

#include <mutex>

#include "fake_device.h"

namespace darkroom::fake {

inline constexpr auto kDeviceType = c10::DeviceType::CUDA;
inline const c10::Device kDevice(kDeviceType, 0);

/// Guards all that the host's thread and autograd's device thread share.
std::recursive_mutex& device_lock();
FakeDeviceCounts& counts();  // Under the lock.
/// The device's clock: a microsecond for each kernel and each copy.
int64_t elapsed_microseconds();
int64_t& memory_bound();  // As bound_fake_device_memory() says. Under the lock.

/// Where a pointer of the device lies on the host; other pointers as they are. Device pointers carry bit 62, so that they are not canonical
/// on x86-64: every access through one faults at once.
void* host_pointer(const void* pointer);

/// Makes CPU memory the device's own, without a copy: what a CPU kernel allocated for its result.
c10::DataPtr adopt(const c10::Storage& cpu);

c10::Allocator& device_allocator();
/// Page-locked memory is ordinary memory whose ranges are known.
c10::Allocator& pinned_allocator();
bool is_pinned(const void* pointer);

}  // namespace darkroom::fake
