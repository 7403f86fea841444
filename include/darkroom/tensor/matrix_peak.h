#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace darkroom {

/// What a device reaches in products of square matrices, which bound what a network can.
struct MatrixPeak {
  int64_t side = 0;    ///< Of the matrices.
  double best_ms = 0;  ///< Of the fastest product.

  /// Floating-point operations per second, in 10^12: a product of side n has n^2 sums of n products.
  double tflops() const;
};

/// The fastest of `repeats` products of random matrices of `type` on `device`, after one that does not count, with this thread's settings.
/// Draws nothing from torch's generators. REQUIRES: side is a multiple of 512.
MatrixPeak time_products(const torch::Device& device, torch::ScalarType type, int64_t side, int64_t repeats);

/// The same of a side that the device is neither through with at once nor long at: doubled from 512 until a product takes a millisecond,
/// up to 8192. Takes some ten times that product, and the memory of three matrices.
MatrixPeak measure_matrix_peak(const torch::Device& device, torch::ScalarType type);

}  // namespace darkroom
