#include "darkroom/tensor/kept_memory.h"

#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>

namespace darkroom {
namespace {

constexpr uintptr_t kAlignment = 64;  // Of torch's own allocator.

// What malloc gave stands before the aligned bytes.
void*& given(void* aligned) { return static_cast<void**>(aligned)[-1]; }

void free_aligned(void* aligned) {
  if (aligned != nullptr) {
    c10::profiledCPUMemoryReporter().Delete(aligned);
    std::free(given(aligned));
  }
}

// Malloc's blocks, aligned by hand: glibc's own aligned ones are cut at both ends, so that none fits where one as large was before.
class RoundedUpBlocks final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t num_bytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (num_bytes == 0) {
      return {nullptr, nullptr, &free_aligned, cpu};
    }
    void* const block = num_bytes < SIZE_MAX - kAlignment ? std::malloc(num_bytes + kAlignment) : nullptr;
    if (block == nullptr) {
      throw std::bad_alloc();
    }
    // At least 16 bytes behind the block's beginning, as malloc aligns to 16.
    void* const aligned = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(block) + kAlignment) / kAlignment * kAlignment);
    given(aligned) = block;
    c10::profiledCPUMemoryReporter().New(aligned, num_bytes);  // As torch's own allocator does; nothing where nobody counts.
    return {aligned, aligned, &free_aligned, cpu};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_aligned; }

  void copy_data(void* to, const void* from, size_t num_bytes) const override { default_copy_data(to, from, num_bytes); }
};

}  // namespace

void keep_freed_memory(const c10::Device& device) {
  if (!device.is_cpu()) {
    return;
  }
  static std::once_flag set;
  std::call_once(set, [] {
    c10::SetCPUAllocator(new RoundedUpBlocks);  // It is torch's from now on.
    mallopt(M_MMAP_MAX, 0);                     // M_MMAP_THRESHOLD takes no more than 32 MiB.
    mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  });
  malloc_trim(0);
}

}  // namespace darkroom
