// One target as a program of libFuzzer; DARKROOM_FUZZ_TARGET names its function.

#include <cstddef>
#include <cstdint>

#include "fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t num_bytes) {
  darkroom::DARKROOM_FUZZ_TARGET({reinterpret_cast<const char*>(bytes), num_bytes});
  return 0;
}
