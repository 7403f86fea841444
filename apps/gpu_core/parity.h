#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// One comparison of a device with the reference.
struct Comparison {
  std::string what;
  std::string dtype;
  double error = 0;
  double bound = 0;

  bool holds() const { return error <= bound; }  // NaN does not.
};

/// Share by which a result that lies behind `num_roundings` roundings to bfloat16 (2^-8 each, of random sign) may be off, doubled.
double bfloat16_bound(double num_roundings);

inline constexpr double kRoundingsForward = 64;  ///< To bfloat16, on the way through a U-Net.

/// Forward passes and gradients of the small networks in tests/golden/nn (made by the reference packages) on `device`, in float32 and
/// bfloat16. Errors: those of reading the files below `source`.
Result<std::vector<Comparison>> compare_with_golden_files(const std::string& source, const torch::Device& device);

/// Five training steps of the preset tiny on `device`, in float32 and bfloat16, against the CPU in float32; on a GPU the last ones are
/// replayed. Errors: those of the steps.
Result<std::vector<Comparison>> compare_training(const torch::Device& device);

/// The loss of `num_steps` training steps in bfloat16 and in float32 on `device`, as CSV with a header: step,float32,bfloat16.
Result<std::string> loss_curves(const std::string& preset, int64_t batch_size, int64_t num_steps, const torch::Device& device);

}  // namespace darkroom
