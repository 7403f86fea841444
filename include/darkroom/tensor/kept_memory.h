#pragma once

#include <c10/core/Device.h>

namespace darkroom {

/// For a program that runs networks on `device`; on another device than the CPU nothing happens. From now on the process keeps memory that
/// it frees for what it allocates next, and gives back now what is free already. Else glibc hands each large tensor back to the kernel,
/// which clears the same pages for the next one: a fifth of the time of the VAE's encoder. Sets torch's allocator and glibc's for the whole
/// process, so not for libraries; its memory stays near its peak until malloc_trim() or the end. Threads other than the first keep what
/// their heaps of 64 MiB hold. A tensor for which there is no memory throws std::bad_alloc. Thread safety: by any thread, before others
/// allocate tensors.
void keep_freed_memory(const c10::Device& device);

}  // namespace darkroom
