#pragma once

#include <math.h>

#include <cstdint>
#include <type_traits>

// What src/plugin's kernels use of CUDA's header of this name, on the CPU. Emulated threads run one at a time, so the built-in variables
// are plain ones, which emulated_grid.cpp sets. Meaning and limits: CUDA C++ Programming Guide 13.0, 10.4 and 10.6.

enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9, cudaErrorLaunchFailure = 719 };
using cudaStream_t = struct CUstream_st*;

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  dim3(unsigned x_size = 1, unsigned y_size = 1, unsigned z_size = 1) : x(x_size), y(y_size), z(z_size) {}
  unsigned x, y, z;
};

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

/// The error of the launches since the last call; emulation::take_fault() says more.
cudaError_t cudaGetLastError();

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(threads)
#define __syncthreads() ::emulation::wait_for_block(__FILE__, __LINE__)

namespace emulation {

void wait_for_block(const char* file, int line);

}  // namespace emulation

// Of floating-point numbers CUDA's are those of IEEE 754-2008: a NaN loses.
template <typename Number>
Number min(Number a, Number b) {
  if constexpr (std::is_floating_point_v<Number>) {
    return static_cast<Number>(fmin(a, b));
  } else {
    return b < a ? b : a;
  }
}
template <typename Number>
Number max(Number a, Number b) {
  if constexpr (std::is_floating_point_v<Number>) {
    return static_cast<Number>(fmax(a, b));
  } else {
    return a < b ? b : a;
  }
}
