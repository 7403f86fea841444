#pragma once

#include <torch/torch.h>

#include "darkroom/core/status.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/tensor/communicator.h"

namespace darkroom {

// What ranks own of flat buffers (slice_of_rank), in the canonical order of what is stored (flat_parameters.h). Where buffers lie
// otherwise, as on a GPU, a rank's elements are not together there: of a parameter that a slice begins or ends within, its ranks tell each
// other all, and each keeps as many elements as it owns, from the same place on. All other parameters need no message.

/// The ranks' slices in canonical order: for parameters that have it, those of their buffers.
RankSlices canonical_slices(const FlatParameters& parameters, int64_t num_ranks);

/// A rank's slice of a buffer, on the parameters' device, as its slice of the canonical order, on the CPU (of its count; page-locked
/// memory, as empty_staging gives it, is filled many times as fast). Waits for the device. All ranks call together. Errors: those of
/// Communicator::exchange.
Status copy_canonical(Communicator& ranks, const FlatParameters& parameters, const torch::Tensor& own_slice,
                      const torch::Tensor& canonical);
/// The way back.
Status copy_from_canonical(Communicator& ranks, const FlatParameters& parameters, const torch::Tensor& canonical,
                           const torch::Tensor& own_slice);

}  // namespace darkroom
