#include "fake_memory.h"

#include <algorithm>
#include <map>

#include "fake_order.h"
#include "fake_stream.h"

namespace darkroom::fake {
namespace {

constexpr uintptr_t kDeviceBit = uintptr_t{1} << 62;

void* device_pointer(const void* host) {
  return host == nullptr ? nullptr : reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(host) | kDeviceBit);
}

// Lives as long as the device tensor's storage.
struct Adopted {
  c10::Storage cpu;
  int64_t stream = 0;  // Whose it is.
};

std::map<uintptr_t, size_t>& pinned_ranges() {
  static auto* ranges = new std::map<uintptr_t, size_t>;  // Never destroyed: tensors may outlive this library's statics.
  return *ranges;
}

void release(void* context) {
  const std::lock_guard lock(device_lock());
  auto* adopted = static_cast<Adopted*>(context);
  counts().live_bytes -= static_cast<int64_t>(adopted->cpu.nbytes());
  note_release(adopted->cpu.data(), adopted->cpu.nbytes(), adopted->stream);
  delete adopted;
}

void release_pinned(void* memory) {
  const std::lock_guard lock(device_lock());
  pinned_ranges().erase(reinterpret_cast<uintptr_t>(memory));
  c10::GetAllocator(c10::kCPU)->raw_deallocate(memory);
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    return adopt(c10::Storage(c10::Storage::use_byte_size_t(), num_bytes, c10::GetAllocator(c10::kCPU), /*resizable=*/true));
  }
  void copy_data(void* to, const void* from, size_t num_bytes) const override {
    default_copy_data(host_pointer(to), host_pointer(from), num_bytes);
  }
};

class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    void* memory = c10::GetAllocator(c10::kCPU)->raw_allocate(num_bytes);
    const std::lock_guard lock(device_lock());
    if (memory != nullptr) {
      pinned_ranges()[reinterpret_cast<uintptr_t>(memory)] = num_bytes;
    }
    return {memory, memory, &release_pinned, c10::kCPU};
  }
  void copy_data(void* to, const void* from, size_t num_bytes) const override { default_copy_data(to, from, num_bytes); }
};

}  // namespace

std::recursive_mutex& device_lock() {
  static auto* lock = new std::recursive_mutex;
  return *lock;
}

int64_t elapsed_microseconds() {
  const std::lock_guard lock(device_lock());
  return counts().microseconds();
}

FakeDeviceCounts& counts() {
  static FakeDeviceCounts counts;
  return counts;
}

int64_t& memory_bound() {
  static int64_t bound = 0;
  return bound;
}

void* host_pointer(const void* pointer) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(pointer) & ~kDeviceBit); }

c10::DataPtr adopt(const c10::Storage& cpu) {
  const std::lock_guard lock(device_lock());
  TORCH_CHECK_WITH(OutOfMemoryError, memory_bound() == 0 || counts().live_bytes + static_cast<int64_t>(cpu.nbytes()) <= memory_bound(),
                   "fake device: no memory is left for bytes: ", cpu.nbytes());
  counts().live_bytes += static_cast<int64_t>(cpu.nbytes());
  counts().peak_bytes = std::max(counts().peak_bytes, counts().live_bytes);
  note_allocation();
  add_to_recording(cpu);
  auto* adopted = new Adopted{cpu, current_stream()};
  return {device_pointer(cpu.data()), adopted, &release, kDevice};
}

c10::Allocator& device_allocator() {
  static auto* allocator = new DeviceAllocator;
  return *allocator;
}

c10::Allocator& pinned_allocator() {
  static auto* allocator = new PinnedAllocator;
  return *allocator;
}

bool is_pinned(const void* pointer) {
  const std::lock_guard lock(device_lock());
  const auto place = reinterpret_cast<uintptr_t>(pointer);
  const auto after = pinned_ranges().upper_bound(place);
  return after != pinned_ranges().begin() && place < std::prev(after)->first + std::prev(after)->second;
}

}  // namespace darkroom::fake
