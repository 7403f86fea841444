#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace darkroom {

/// The implementations of the fused operations for one kind of device. Every entry starts as the reference, which is
/// written in ATen operations and therefore runs everywhere and is differentiated by autograd; the CUDA plugin overrides
/// entries when it is loaded. The contracts are in the headers named beside the entries.
struct OperationTable {
  using GroupNormSilu = torch::Tensor (*)(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                                          int64_t num_groups, double eps);
  using Geglu = torch::Tensor (*)(const torch::Tensor& x);

  GroupNormSilu group_norm_silu;  ///< group_norm_silu.h
  Geglu geglu;                    ///< geglu.h
};

/// The table that serves tensors on `device`. Thread safety: any thread.
const OperationTable& operations_for(torch::DeviceType device);

/// Replaces the table for `device`; the default is the reference for every device. REQUIRES: called before the first
/// operation runs on that device, from one thread.
void install_operations(torch::DeviceType device, const OperationTable& table);

/// The reference implementations.
const OperationTable& reference_operations();

}  // namespace darkroom
