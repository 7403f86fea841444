#include "darkroom/tensor/kept_memory.h"

#include <malloc.h>

#include <limits>

namespace darkroom {

void keep_freed_memory(const c10::Device& device) {
  if (!device.is_cpu()) {
    return;
  }
  mallopt(M_MMAP_MAX, 0);  // M_MMAP_THRESHOLD takes no more than 32 MiB.
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  malloc_trim(0);
}

}  // namespace darkroom
