#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "emulated_grid.h"
#include "kernels.h"
#include "support/error_bound.h"

// Random shapes, arrays of exact size and comparisons, element by element, for tests of kernels under emulation.

namespace darkroom::kernel_tests {

// Bounds are sums of first-order terms in the unit roundoff u of float32; this covers the products of two such terms, which are below
// 2^-6 of the first-order ones as long as no relative error is above 2^-7 (that of a bfloat16 is 2^-8, of a float16 2^-11).
constexpr double kSecondOrder = 1.0 + 0x1p-6;
constexpr double kUnit = 0x1p-24;
constexpr double kSmallest = 0x1p-126;  // Below it numbers lose digits, or become 0.

/// Largest relative error of rounding to the type, where its numbers keep all their digits.
template <typename Scalar>
constexpr double kRounding = std::is_same_v<Scalar, float>    ? 0x1p-24
                             : std::is_same_v<Scalar, __half> ? 0x1p-11
                                                              : 0x1p-8;

/// Largest error of rounding a number to the type, as far as it holds such large ones. Below 2^-14 float16 has multiples of 2^-24; the
/// other types lose digits below kSmallest only.
template <typename Scalar>
double rounding_of(double value) {
  const double relative = kRounding<Scalar> * std::abs(value);
  return std::is_same_v<Scalar, __half> ? std::max(relative, 0x1p-25) : relative;
}

template <typename Scalar>
constexpr Element kElement = std::is_same_v<Scalar, float>    ? Element::kFloat32
                             : std::is_same_v<Scalar, __half> ? Element::kFloat16
                                                              : Element::kBFloat16;

/// Random shapes a test tries; DARKROOM_SHAPES asks for more, or for fewer.
inline int num_shapes() {
  constexpr int kDefault = 500;
  const char* asked = std::getenv("DARKROOM_SHAPES");
  const int count = asked != nullptr ? std::atoi(asked) : kDefault;
  if (count < 1) {
    std::fprintf(stderr, "DARKROOM_SHAPES is no number of shapes: %s\n", asked);
    std::abort();
  }
  return count;
}

/// Numbers that a seed gives (splitmix64); the same on every machine.
class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}

  uint64_t bits() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
  }
  /// From `least` to `most`, both included.
  int64_t between(int64_t least, int64_t most) { return least + static_cast<int64_t>(bits() % static_cast<uint64_t>(most - least + 1)); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// Deviation 1, at most 4 in size: the sum of twelve uniform numbers would be as good and slower.
  double normal() { return (uniform() + uniform() + uniform() + uniform() - 2.0) * std::sqrt(3.0); }
  bool chance(double share) { return uniform() < share; }

 private:
  uint64_t state_;
};

inline double as_double(float value) { return value; }
inline double as_double(__half value) { return __half2float(value); }
inline double as_double(__nv_bfloat16 value) { return __bfloat162float(value); }
inline double as_double(double value) { return value; }

template <typename Scalar>
Scalar rounded_to(double value) {
  if constexpr (std::is_same_v<Scalar, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(value));
  } else if constexpr (std::is_same_v<Scalar, __half>) {
    return __float2half_rn(static_cast<float>(value));
  } else {
    return static_cast<Scalar>(value);
  }
}

/// `size` elements in a heap block that holds nothing else, all NaN, at a multiple of 16 bytes plus `offset` elements.
template <typename Scalar>
class Array {
 public:
  explicit Array(int64_t size, int64_t offset = 0)
      : size_(size), offset_(offset), memory_(std::make_unique_for_overwrite<std::byte[]>(bytes())) {
    std::memset(memory_.get(), 0xFF, bytes());
  }
  Array(int64_t size, Draws& draws, const std::function<double(Draws&)>& draw, int64_t offset = 0) : Array(size, offset) {
    for (int64_t i = 0; i < size; ++i) {
      data()[i] = rounded_to<Scalar>(draw(draws));
    }
  }
  Array(const Array& other) : Array(other.size_, other.offset_) { std::memcpy(memory_.get(), other.memory_.get(), bytes()); }
  Array& operator=(const Array&) = delete;

  Scalar* data() { return reinterpret_cast<Scalar*>(memory_.get()) + offset_; }
  const Scalar* data() const { return reinterpret_cast<const Scalar*>(memory_.get()) + offset_; }
  int64_t size() const { return size_; }
  double operator[](int64_t i) const { return as_double(data()[i]); }
  bool has_bits_of(const Array& other) const {
    return size_ == other.size_ && std::memcmp(data(), other.data(), static_cast<size_t>(size_) * sizeof(Scalar)) == 0;
  }

 private:
  size_t bytes() const { return static_cast<size_t>(size_ + offset_) * sizeof(Scalar); }

  int64_t size_;
  int64_t offset_;
  std::unique_ptr<std::byte[]> memory_;
};

/// Collects one result's errors and reports the worst; one expectation per array instead of one per element.
class Comparison {
 public:
  explicit Comparison(std::string what) : what_(std::move(what)) {}
  Comparison(const Comparison&) = delete;
  Comparison& operator=(const Comparison&) = delete;
  ~Comparison() {
    const double bound = worst_bound_ > 0.0 ? worst_bound_ : 1.0;
    EXPECT_TRUE(error_within(worst_error_, bound)) << what_ << ", element " << place_ << ": got " << got_ << ", want " << want_;
  }

  void near(int64_t place, double got, double want, double bound) {
    const double error = std::abs(got - want), allowed = bound * kSecondOrder + kSmallest;
    if (!(error * worst_bound_ <= worst_error_ * allowed) || worst_bound_ == 0.0) {  // Also where it is not a number.
      worst_error_ = error;
      worst_bound_ = allowed;
      place_ = place;
      got_ = got;
      want_ = want;
      if (std::isnan(error)) {
        worst_error_ = std::numeric_limits<double>::infinity();
      }
    }
  }

 private:
  std::string what_;
  double worst_error_ = 0.0, worst_bound_ = 0.0, got_ = 0.0, want_ = 0.0;
  int64_t place_ = 0;
};

/// Whether both are NaN, or the same infinity, or finite.
inline bool is_of_kind(double got, double want) {
  return std::isfinite(want) ? std::isfinite(got) : std::isnan(want) ? std::isnan(got) : got == want;
}

/// Runs the launches in one order of blocks and threads.
inline void run_in_order(uint64_t seed, const std::function<cudaError_t()>& launch) {
  emulation::set_order(seed);
  const cudaError_t error = launch();
  ASSERT_EQ(error, cudaSuccess) << emulation::take_fault();
}

/// Orders in which each shape runs; all must give the same bits.
constexpr uint64_t kOrders[] = {1, 2};

}  // namespace darkroom::kernel_tests
