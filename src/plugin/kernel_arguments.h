#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <torch/torch.h>

#include "kernels.h"

namespace darkroom {

/// Whether kernels.h has the type.
inline bool has_kernels(torch::ScalarType type) { return type == torch::kFloat32 || type == torch::kFloat16 || type == torch::kBFloat16; }

/// REQUIRES: has_kernels.
inline Element element_of(const torch::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case torch::kFloat32:
      return Element::kFloat32;
    case torch::kFloat16:
      return Element::kFloat16;
    default:
      return Element::kBFloat16;
  }
}

/// The tensor, or a copy that starts at a multiple of 16 bytes, which the allocator's memory always does. REQUIRES: dense.
inline torch::Tensor aligned(const torch::Tensor& tensor) {
  constexpr uintptr_t kAccessBytes = 16;
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kAccessBytes == 0 ? tensor : tensor.clone(at::MemoryFormat::Preserve);
}

inline cudaStream_t stream_of(const torch::Tensor& tensor) { return at::cuda::getCurrentCUDAStream(tensor.device().index()); }

}  // namespace darkroom
