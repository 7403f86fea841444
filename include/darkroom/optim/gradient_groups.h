#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/tensor/communicator.h"

namespace darkroom {

// How a batch's gradient is summed so that its bits do not depend on the number of ranks (docs/ranks.md): the batch is cut into G groups,
// the gradient of a group is the sum of its micro-batches in order, and the groups are added in a fixed binary tree. All below is pure
// arithmetic but for what takes ranks.

/// Groups [first, first + count) of a batch: a rank's run of them, or what a node of the tree covers.
struct GroupSpan {
  int64_t first = 0;
  int64_t count = 0;

  int64_t end() const { return first + count; }
  bool operator==(const GroupSpan&) const = default;
};

/// The groups that a rank computes: the r-th of N contiguous, nearly equal runs. REQUIRES: num_ranks <= num_groups.
GroupSpan groups_of_rank(int64_t num_groups, int64_t rank, int64_t num_ranks);

/// The two nodes that a node of at least two groups adds: the left one covers the largest power of two of groups that leaves some.
std::pair<GroupSpan, GroupSpan> children_of(const GroupSpan& node);
/// Whether the tree over `num_groups` groups has such a node.
bool is_tree_node(int64_t num_groups, const GroupSpan& span);
/// The largest nodes that make up a run of groups, in order: what a rank can add up alone.
std::vector<GroupSpan> largest_subtrees(int64_t num_groups, const GroupSpan& run);
/// How many sums a rank holds at most beside the gradients, each of their size, while it adds its run up group by group: two nodes become
/// their parent as soon as both are there, and the last group stays in the gradients.
int64_t most_sums_held(int64_t num_groups, const GroupSpan& run);

/// The part of flat buffers of `size` elements that a rank owns: its moments, its average, its share of the update (ZeRO-1). Slices are in
/// name order, nearly equal in whole chunks of the norm (ops' kNormChunk); of a small network some are empty.
FlatRange slice_of_rank(int64_t size, int64_t rank, int64_t num_ranks);
/// What each rank owns of a buffer: contiguous ranges in the order of the ranks, which make up the whole.
using RankSlices = std::vector<FlatRange>;
RankSlices slices_of_ranks(int64_t size, int64_t num_ranks);

/// Gives every rank the slices that the others own of a flat buffer. Errors: those of Communicator::exchange.
Status gather_slices(Communicator& ranks, const torch::Tensor& flat);
/// After each rank has changed the master weights of its slice: gives every rank all weights that the network computes with, rounded where
/// these are a copy. Errors: as above.
Status gather_weights(Communicator& ranks, FlatParameters& parameters);
/// Gives every rank the parameters of rank 0's module, before there are flat ones. Networks whose parameters have other names or shapes
/// stay as they are: ranks compare what makes them so. REQUIRES: parameters of one type at all ranks. Errors: as above.
Status share_parameters(Communicator& ranks, torch::nn::Module& module);
/// Rank 0's values of `range` to the slices that hold a part of it. `values` (range.count) counts at rank 0 alone; `own_slice` is this
/// rank's of `slices`. On the CPU. Errors: as above.
Status scatter_range(Communicator& ranks, const RankSlices& slices, const FlatRange& range, const torch::Tensor& values,
                     const torch::Tensor& own_slice);
/// The way back: rank 0 gets the values of `range`; undefined elsewhere. Errors: as above.
Result<torch::Tensor> gather_range(Communicator& ranks, const RankSlices& slices, const FlatRange& range, const torch::Tensor& own_slice);

}  // namespace darkroom
