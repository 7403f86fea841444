#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "emulated_grid.h"

// src/plugin/kernel_launch.cuh for any compiler but nvcc: kernels run on the CPU, see emulated_grid.h.

namespace darkroom {

constexpr int64_t kMostBlocks = 3;      // Few, so that small arrays make threads walk on,
constexpr int64_t kMostIndices = 2000;  // and take several launches.

template <typename... Parameters>
void launch_kernel(void (*kernel)(Parameters...), dim3 grid, int threads, cudaStream_t, std::type_identity_t<Parameters>... arguments) {
  emulation::run_grid(grid, threads, [&] { kernel(arguments...); });
}

inline void require_aligned(const void* address, size_t alignment) { emulation::require_aligned(address, alignment); }

}  // namespace darkroom

// The variable's address tells the arrays apart.
#define DARKROOM_SHARED_ARRAY(Type, name, count) \
  static char name##_place;                      \
  Type* const name = static_cast<Type*>(::emulation::shared_array(&name##_place, sizeof(Type) * (count)))
