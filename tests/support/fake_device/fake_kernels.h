#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

namespace darkroom::fake {

/// Gives torch's CUDA key a kernel for every operation that has one on the CPU. REQUIRES: called once, before the first tensor on the
/// device, in a process without torch's own CUDA kernels.
void register_kernels();

/// A kernel of one's own: `run` gets CPU tensors that share the memory of `tensors`. Recorded where a graph is.
void launch(const std::string& name, std::vector<at::Tensor> tensors, std::function<void(std::vector<at::Tensor>&)> run);

}  // namespace darkroom::fake
