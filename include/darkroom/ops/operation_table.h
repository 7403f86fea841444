#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <vector>

#include "darkroom/ops/adamw_update.h"

namespace darkroom {

/// What the forward entry of a differentiable operation gives: the value, and whatever the backward entry of the same table wants to
/// see again, inputs included.
struct ForwardResult {
  torch::Tensor value;
  std::vector<torch::Tensor> saved;
};

/// How a group norm is to be computed.
struct GroupNormSettings {
  int64_t num_groups = 1;
  double eps = 1e-5;         ///< Added to the variance.
  bool for_gradient = true;  ///< Whether backward will follow; if not, `saved` may stay empty.
};

/// The implementations of the fused operations for one kind of device. Every entry starts as the reference, which is written in ATen
/// operations or plain loops; the CUDA plugin's table serves GPUs. Entries run without autograd: the functions in the headers named
/// beside them, whose contracts they implement, record the gradient and call the backward entry. Forward and backward entries are
/// replaced together, because what is saved is their own matter.
struct OperationTable {
  using GroupNormForward = ForwardResult (*)(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                                             const GroupNormSettings& settings);
  /// Gradients of x, weight and bias; an unwanted one may be undefined.
  using GroupNormBackward = std::array<torch::Tensor, 3> (*)(const torch::Tensor& grad, const std::vector<torch::Tensor>& saved,
                                                             const GroupNormSettings& settings, std::array<bool, 3> wanted);
  using GegluForward = ForwardResult (*)(const torch::Tensor& x);
  using GegluBackward = torch::Tensor (*)(const torch::Tensor& grad, const std::vector<torch::Tensor>& saved);
  using AddNoise = void (*)(const torch::Tensor& clean, const torch::Tensor& noise, const torch::Tensor& scales_n2, torch::Tensor& noisy,
                            torch::Tensor* velocity);
  using CounterNormal = void (*)(torch::Tensor& out, uint64_t seed, uint8_t purpose, const torch::Tensor& coordinates_n2);
  using NormPartials = torch::Tensor (*)(const torch::Tensor& flat);
  using AddNormPartials = torch::Tensor (*)(const torch::Tensor& partials);
  using ClipScale = void (*)(const torch::Tensor& squared_norm, const torch::Tensor& losses, const torch::Tensor& scalars);
  using AdamWUpdate = void (*)(const AdamWArrays& arrays, const torch::Tensor& scalars);

  GroupNormForward group_norm;                 ///< group_norm.h
  GroupNormBackward group_norm_backward;       ///< group_norm.h
  GroupNormForward group_norm_silu;            ///< group_norm_silu.h
  GroupNormBackward group_norm_silu_backward;  ///< group_norm_silu.h
  GegluForward geglu;                          ///< geglu.h
  GegluBackward geglu_backward;                ///< geglu.h
  AddNoise add_noise;                          ///< add_noise.h; velocity may be null
  CounterNormal counter_normal;                ///< counter_normal.h
  NormPartials norm_partials;                  ///< adamw_update.h
  AddNormPartials add_norm_partials;           ///< adamw_update.h
  ClipScale clip_scale;                        ///< adamw_update.h
  AdamWUpdate adamw_update;                    ///< adamw_update.h
};

/// The table that serves tensors on `device`; for CUDA that of the plugin, once it is loaded. Thread safety: any thread.
const OperationTable& operations_for(torch::DeviceType device);

/// Replaces the table for `device`; the default is the reference for every device but CUDA. REQUIRES: no entry is null; called before
/// the first operation runs on that device, from one thread.
void install_operations(torch::DeviceType device, const OperationTable& table);

/// The reference implementations.
const OperationTable& reference_operations();

}  // namespace darkroom
