#pragma once

#include <ATen/ATen.h>

#include <string>
#include <unordered_map>

namespace darkroom::fake {

/// CPU tensors that share the memory of one call's device tensors, so that a CPU kernel computes on them, and the way back. Thread safety:
/// none; one object a call.
class CpuViews {
 public:
  /// The CPU's view of a device tensor. A host tensor throws, naming the operation, unless it is a number (no dimensions), which GPUs'
  /// kernels take as an argument.
  at::Tensor view(const at::Tensor& tensor, const std::string& operation);
  /// The device's tensor of a result: an argument itself, a view of one, or memory that is new and becomes the device's.
  at::Tensor device(const at::Tensor& cpu);
  /// Hands on what a kernel did to its arguments' sizes and storages (out=).
  void write_back();

 private:
  struct Pair {
    at::Tensor device, cpu;
  };
  struct SharedStorage {
    c10::Storage device, cpu;
  };
  c10::Storage& cpu_storage(const c10::Storage& device);
  at::Tensor view_of_input(const c10::Storage& storage, const at::Tensor& like);

  std::unordered_map<c10::TensorImpl*, Pair> tensors_;             // By the device's.
  std::unordered_map<c10::StorageImpl*, SharedStorage> storages_;  // By the device's.
};

}  // namespace darkroom::fake
