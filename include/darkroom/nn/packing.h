#pragma once

#include <torch/torch.h>

namespace darkroom {

/// Makes of a network on the CPU that is only run, not trained, one that runs faster: the weights of its linear layers and convolutions
/// are laid out once as oneDNN's kernels read them, instead of in every call, biases and residuals are added while a product is
/// written, and features flow through it channels-last. It computes the same sums in another order: outputs differ by rounding, and
/// keep their bounds against diffusers. Parameters keep names, values and memory; the laid out copies need as much again.
/// Does nothing, and says so by false, where it would not help: on a device, in float16, in bfloat16 on a processor without AVX512-BF16.
/// REQUIRES: the weights stay as they are, and nobody uses the network meanwhile; from then on it runs without gradients only.
bool pack_network(torch::nn::Module& network);

}  // namespace darkroom
