#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// What kernels need of CUDA beyond plain C++: a launch, shared memory, alignment. nvcc compiles it to the language's own; any other
// compiler takes tests/kernel_emulation/include/emulated_launch.h, under which the same .cu files run on the CPU (docs/plugin.md).

#ifdef __CUDACC__

namespace darkroom {

constexpr int64_t kMostBlocks = 1 << 16;            // Of a kernel whose threads walk on from there.
constexpr int64_t kMostIndices = int64_t{1} << 31;  // Of a kernel that counts in 32 bits, one launch; its last stride fits, too.

template <typename Type>
struct AsDeclared {
  using type = Type;
};

/// kernel<<<grid, threads, 0, stream>>>(arguments...).
template <typename... Parameters>
void launch_kernel(void (*kernel)(Parameters...), dim3 grid, int threads, cudaStream_t stream,
                   typename AsDeclared<Parameters>::type... arguments) {
  kernel<<<grid, threads, 0, stream>>>(arguments...);
}

/// Does nothing; the emulation fails when `address` is no multiple of `alignment`.
__device__ inline void require_aligned(const void*, size_t) {}

}  // namespace darkroom

/// Declares an array in a block's shared memory.
#define DARKROOM_SHARED_ARRAY(Type, name, count) __shared__ Type name[count]

#else
#include <emulated_launch.h>
#endif

namespace darkroom {

/// Blocks of one thread per piece of work: at least one, at most `most`.
inline unsigned blocks_for(int64_t work, int threads, int64_t most) {
  return static_cast<unsigned>(std::clamp<int64_t>((work + threads - 1) / threads, 1, most));
}

}  // namespace darkroom
