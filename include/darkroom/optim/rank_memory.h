#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "darkroom/optim/flat_parameters.h"

namespace darkroom {

/// Who trains what: all that the sizes of a rank's buffers depend on.
struct RankMemorySpec {
  int64_t size = 0;                 ///< Elements of the flat buffers: flat_size().
  FlatParametersOptions flat = {};  ///< With the rank and how many there are.
  bool averages = true;             ///< There is a moving average.
  int64_t gradient_groups = 1;
  bool fast_reduction = false;
  torch::ScalarType gradient_wire = torch::kFloat32;
};

/// Bytes that a rank holds of the parameters and of what trains them, as FlatParameters, AdamW, Ema and TrainStep allocate them
/// (docs/ranks.md). Samples and what a pass keeps of them are not in it.
struct RankMemory {
  int64_t master = 0;        ///< float32 weights of the rank's slice beside the compute weights; 0 where these are the float32 ones.
  int64_t compute = 0;       ///< What the network computes with.
  int64_t moments = 0;       ///< Both, of the rank's slice.
  int64_t average = 0;       ///< Of the rank's slice.
  int64_t gradients = 0;     ///< float32, what backward() adds to.
  int64_t partial_sums = 0;  ///< Nodes of the gradient tree that wait for their neighbours, most at a time; kept between steps.
  int64_t received_sums =
      0;  ///< Other ranks' sums of the slice: after the passes, with overlap beside the last; in bfloat16 the last group's, too.

  /// What a pass runs beside.
  int64_t kept() const { return master + compute + moments + average + gradients + partial_sums; }
};

RankMemory rank_memory(const RankMemorySpec& spec);

/// Elements of the flat buffers of a module, alignment included.
int64_t flat_size(const torch::nn::Module& module, const FlatParametersOptions& options);

}  // namespace darkroom
