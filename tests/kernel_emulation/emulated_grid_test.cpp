#include "emulated_grid.h"

#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "kernel_launch.cuh"
#include "vector_access.cuh"

// The emulation itself: what it promises to notice is planted in small kernels here.

namespace darkroom {
namespace {

constexpr int kThreads = 64;

__global__ void count_threads(int* visits) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  visits[block * blockDim.x + threadIdx.x] += 1;
}

__global__ void reverse(const double* in, double* out, bool with_barrier) {
  DARKROOM_SHARED_ARRAY(double, values, kThreads);
  const int thread = static_cast<int>(threadIdx.x), base = static_cast<int>(blockIdx.x) * kThreads;
  values[thread] = in[base + thread];
  if (with_barrier) {
    __syncthreads();
  }
  out[base + thread] = values[kThreads - 1 - thread];
}

__global__ void add_up(const double* in, double* out) {
  DARKROOM_SHARED_ARRAY(double, values, kThreads);
  values[threadIdx.x] = in[threadIdx.x];
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      values[threadIdx.x] += values[threadIdx.x + half];
    }
  }
  if (threadIdx.x == 0) {
    *out = values[0];
  }
}

__global__ void leave_some_behind(unsigned stay) {
  if (threadIdx.x < stay) {
    __syncthreads();
  }
}

__global__ void wait_apart() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

__global__ void record_order(std::vector<unsigned>* order) { order->push_back(blockIdx.x * kThreads + threadIdx.x); }

__global__ void load_four(const float* source, float* out) {
  float values[4];
  load<4>(source, values);
  store<4>(out, values);
}

__global__ void take_shared_memory() {
  DARKROOM_SHARED_ARRAY(double, most, 6144);
  DARKROOM_SHARED_ARRAY(char, more, 1);
  most[0] = more[0] = 0;
}

__global__ void write_at(float* out, int64_t place) { out[place] = 1.0F; }

__global__ void write_shared_at(int64_t place) {
  DARKROOM_SHARED_ARRAY(float, values, kThreads);
  values[place] = 1.0F;
}

std::string fault_of(cudaError_t want) {
  EXPECT_EQ(cudaGetLastError(), want);
  return emulation::take_fault();
}

std::vector<double> counted(int count) {
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

TEST(emulated_grid, runs_every_thread_of_every_block_once) {
  std::vector<int> visits(size_t{3} * 2 * 4 * kThreads);
  launch_kernel(count_threads, dim3(3, 2, 4), kThreads, nullptr, visits.data());
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(visits, std::vector<int>(visits.size(), 1));
}

TEST(emulated_grid, a_barrier_shows_every_thread_what_the_others_wrote) {
  const std::vector<double> in = counted(2 * kThreads);
  for (uint64_t seed = 0; seed < 8; ++seed) {
    emulation::set_order(seed);
    std::vector<double> out(in.size());
    launch_kernel(reverse, 2, kThreads, nullptr, in.data(), out.data(), true);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
    for (int i = 0; i < kThreads; ++i) {
      EXPECT_EQ(out[static_cast<size_t>(i)], kThreads - i);
      EXPECT_EQ(out[static_cast<size_t>(kThreads + i)], 2 * kThreads - i);
    }
    double sum = 0.0;
    launch_kernel(add_up, 1, kThreads, nullptr, in.data(), &sum);
    EXPECT_EQ(sum, kThreads * (kThreads + 1) / 2);
  }
}

TEST(emulated_grid, without_the_barrier_a_thread_reads_nan) {
  const std::vector<double> in = counted(2 * kThreads);
  std::vector<double> out(in.size());
  launch_kernel(reverse, 2, kThreads, nullptr, in.data(), out.data(), false);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  for (int block = 0; block < 2; ++block) {
    int unread = 0;
    for (int i = 0; i < kThreads; ++i) {
      unread += std::isnan(out[static_cast<size_t>(block * kThreads + i)]) ? 1 : 0;
    }
    EXPECT_EQ(unread, kThreads / 2) << "of each pair of threads the first has nothing to read, in block " << block;
  }
}

TEST(emulated_grid, fails_when_only_some_threads_come_to_a_barrier) {
  launch_kernel(leave_some_behind, 1, kThreads, nullptr, 0U);
  launch_kernel(leave_some_behind, 1, kThreads, nullptr, 64U);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  launch_kernel(leave_some_behind, 1, kThreads, nullptr, 63U);
  EXPECT_NE(fault_of(cudaErrorLaunchFailure).find("only 63 of 64 threads come to the barrier"), std::string::npos);
  launch_kernel(wait_apart, 1, kThreads, nullptr);
  EXPECT_NE(fault_of(cudaErrorLaunchFailure).find("several barriers"), std::string::npos);
}

TEST(emulated_grid, launches_nothing_after_a_fault_until_it_was_asked_for) {
  std::vector<int> visits(kThreads);
  launch_kernel(leave_some_behind, 1, kThreads, nullptr, 1U);
  launch_kernel(count_threads, 1, kThreads, nullptr, visits.data());
  EXPECT_NE(fault_of(cudaErrorLaunchFailure), "");
  EXPECT_EQ(visits, std::vector<int>(kThreads, 0));
  launch_kernel(count_threads, 1, kThreads, nullptr, visits.data());
  EXPECT_EQ(fault_of(cudaSuccess), "");
  EXPECT_EQ(visits, std::vector<int>(kThreads, 1));
}

TEST(emulated_grid, a_seed_gives_an_order) {
  const auto order_of = [](uint64_t seed) {
    std::vector<unsigned> order;
    emulation::set_order(seed);
    launch_kernel(record_order, 3, kThreads, nullptr, &order);
    return order;
  };
  std::set<std::vector<unsigned>> orders;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EXPECT_EQ(order_of(seed), order_of(seed));
    orders.insert(order_of(seed));
  }
  EXPECT_EQ(orders.size(), 10U);
}

TEST(emulated_grid, refuses_what_no_grid_can_have) {
  int visits[2] = {};
  for (const auto& [grid, threads] : std::vector<std::pair<dim3, int>>{{dim3(0), 1},
                                                                       {dim3(1, 0), 1},
                                                                       {dim3(1, 1, 0), 1},
                                                                       {dim3(1U << 31), 1},
                                                                       {dim3(1, 65536), 1},
                                                                       {dim3(1, 1, 65536), 1},
                                                                       {dim3(1), 0},
                                                                       {dim3(1), 1025}}) {
    launch_kernel(count_threads, grid, threads, nullptr, visits);
    EXPECT_NE(fault_of(cudaErrorInvalidConfiguration), "") << grid.x << " " << grid.y << " " << grid.z << " " << threads;
  }
  launch_kernel(take_shared_memory, 1, 1, nullptr);
  EXPECT_NE(fault_of(cudaErrorInvalidConfiguration).find("shared memory is 49153 bytes"), std::string::npos);
  EXPECT_EQ(visits[0], 0);
}

TEST(emulated_grid, refuses_a_misaligned_access) {
  alignas(16) float values[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  launch_kernel(load_four, 1, 1, nullptr, values, values + 4);
  EXPECT_EQ(fault_of(cudaSuccess), "");
  EXPECT_EQ(values[7], 4.0F);
  launch_kernel(load_four, 1, 1, nullptr, values + 2, values + 4);
  EXPECT_NE(fault_of(cudaErrorLaunchFailure).find("16 bytes is misaligned, in thread 0 of block (0, 0, 0)"), std::string::npos);
  launch_kernel(load_four, 1, 1, nullptr, values, values + 1);
  EXPECT_NE(fault_of(cudaErrorLaunchFailure).find("misaligned"), std::string::npos);
}

TEST(emulated_grid, rounds_to_bfloat16_as_a_gpu) {
  // All halves between neighbours, and what lies beside them: the nearest of two neighbours, or the even one.
  for (uint32_t upper = 0; upper < 0x7F80; ++upper) {
    for (const uint32_t lower : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      const auto value = std::bit_cast<float>((upper << 16) | lower);
      const bool is_up = lower > 0x8000U || (lower == 0x8000U && upper % 2 == 1);
      const auto want = static_cast<uint16_t>(upper + (is_up ? 1 : 0));
      ASSERT_EQ(__float2bfloat16_rn(value).bits, want) << value;
      ASSERT_EQ(__float2bfloat16_rn(-value).bits, want | 0x8000) << value;
    }
  }
  EXPECT_EQ(__float2bfloat16_rn(std::nanf("")).bits, 0x7FFF);
  EXPECT_EQ(__float2bfloat16_rn(-std::numeric_limits<float>::infinity()).bits, 0xFF80);
  EXPECT_EQ(__bfloat162float({0x3FC0}), 1.5F);
}

#ifdef __SANITIZE_ADDRESS__
TEST(emulated_grid_death_test, an_access_outside_of_an_array_ends_the_program) {
  const auto out = std::make_unique<float[]>(5);
  for (const int64_t place : {-1, 5}) {
    EXPECT_DEATH(launch_kernel(write_at, 1, 1, nullptr, out.get(), place), "heap-buffer-overflow");
  }
  for (const int64_t place : {-1, kThreads}) {
    EXPECT_DEATH(launch_kernel(write_shared_at, 1, 1, nullptr, place), "heap-buffer-overflow");
  }
}
#else
TEST(emulated_grid, without_a_sanitizer_takes_accesses_inside_of_an_array) {
  float out[2] = {};
  launch_kernel(write_at, 1, 1, nullptr, out, int64_t{1});
  launch_kernel(write_shared_at, 1, 1, nullptr, int64_t{kThreads - 1});
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(out[1], 1.0F);
}
#endif

}  // namespace
}  // namespace darkroom
