#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

namespace darkroom::fake {

/// Gives torch's CUDA key a kernel for every operation that has one on the CPU. REQUIRES: called once, before the first tensor on the
/// device, in a process without torch's own CUDA kernels.
void register_kernels();

/// A kernel of one's own: `run` gets CPU tensors that share the memory of what it changes, then of what it reads alone. Recorded where a
/// graph is.
void launch(const std::string& name, const std::vector<at::Tensor>& changed, const std::vector<at::Tensor>& read,
            std::function<void(std::vector<at::Tensor>&)> run);

}  // namespace darkroom::fake
