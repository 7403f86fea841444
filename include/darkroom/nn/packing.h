#pragma once

#include <torch/torch.h>

namespace darkroom {

/// Makes of a network on the CPU that is only run, not trained, one that runs faster: the weights of its linear layers and convolutions
/// are laid out once as oneDNN's kernels read them, instead of in every call, biases and residuals are added while a product is
/// written, and features flow through it channels-last. It computes the same sums in another order: outputs differ by rounding, and
/// keep their bounds against diffusers. Layer by layer the packed weight takes the place of the plain one, so no second copy of the
/// network lies in memory; the plain weight keeps name, shape, type and place, and reads as NaN. Biases and norms keep their values.
/// Does nothing, and says so by false, where it would not help: on a device, in float16, in bfloat16 on a processor without AVX512-BF16.
/// From then on the network runs without gradients only, in any number of threads; a pass throws CheckFailure with gradients and after
/// a weight was loaded, moved or cast anew.
/// REQUIRES: it was not packed before, and nobody uses it meanwhile.
bool pack_network(torch::nn::Module& network);

}  // namespace darkroom
