#include "darkroom/tensor/kept_memory.h"

#include <malloc.h>

#include <limits>

namespace darkroom {

void keep_freed_memory(const c10::Device& device) {
  constexpr int kNoLimit = std::numeric_limits<int>::max();
  if (!device.is_cpu()) {
    return;
  }
  mallopt(M_MMAP_THRESHOLD, kNoLimit);
  mallopt(M_TRIM_THRESHOLD, kNoLimit);
  malloc_trim(0);
}

}  // namespace darkroom
