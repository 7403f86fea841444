#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

// CUDA's block model on the CPU: blocks one after the other, a fiber per thread, all on the calling thread. What a GPU would let pass
// unnoticed is a fault here: a launch beyond the limits of a grid or of static shared memory, a misaligned access, a barrier that only
// some threads of a block reach. Shared memory is full of NaN when a block starts. Blocks, and threads between barriers, run in an order
// that a seed shuffles: a kernel that lacks a barrier reads NaN, or gives other results in another order. Heap blocks of exact size
// show AddressSanitizer what overruns. Not covered: warps, caches, coalescing, streams, atomics.

namespace emulation {

/// Of all launches that follow.
void set_order(uint64_t seed);

/// Runs `thread` once for every thread of the grid. A fault ends the grid; cudaGetLastError() then returns an error, and until it was
/// called further launches do nothing, as on a GPU.
void run_grid(dim3 grid, int threads, const std::function<void()>& thread);

/// What the fault was that cudaGetLastError() last returned; empty when there was none.
std::string take_fault();

// For kernels, inside run_grid.

/// Memory that the threads of a block share, the same for the same `place`: NaN in whatever type when a block asks first.
void* shared_array(const char* place, size_t bytes);
void require_aligned(const void* address, size_t alignment);

}  // namespace emulation
