#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "darkroom/feed/dataset_index.h"
#include "darkroom/optim/flat_parameters.h"
#include "darkroom/optim/rank_memory.h"
#include "darkroom/optim/train_step.h"
#include "darkroom/train/recipe.h"

namespace darkroom {

// What a recipe asks of a step, for those who build one and for those who say beforehand what it will take.

/// What the network computes in on `device`: the recipe's runtime.precision, where "auto" is bfloat16 on a GPU and float32 on the CPU.
std::string precision_on(const Recipe& recipe, const torch::Device& device);

/// How the parameters lie on `device`.
FlatParametersOptions flat_options(const Recipe& recipe, const torch::Device& device);

/// What sums of gradient groups are kept and sent in.
torch::ScalarType gradient_wire(const Recipe& recipe);

/// Whether checkpoints between steps are written while training goes on; the last one never is.
bool saves_in_background(const Recipe& recipe);

/// What torch takes of a machine's memory for a page-locked tensor of so many bytes: blocks whose sizes are powers of two.
int64_t page_locked_bytes(int64_t bytes);

/// What a copy takes in the machine's memory from which checkpoints are written in the background, and all those of several ranks on GPUs;
/// 0: none is made. A GPU's is page-locked, in blocks whose sizes are powers of two.
int64_t snapshot_bytes(const Recipe& recipe, const RankMemory& memory, const FlatParametersOptions& flat);

/// What the buffers of a step over `module` depend on, for the one rank of a run of one.
RankMemorySpec rank_memory_spec(const Recipe& recipe, const torch::nn::Module& module, const FlatParametersOptions& flat);

/// Micro-batches that are computed side by side on the CPU.
int64_t num_workers(const Recipe& recipe, int64_t local_ranks);

/// The step itself, of a rank that shares a machine with so many.
TrainStepOptions train_step_options(const Recipe& recipe, const torch::Device& device, int64_t local_ranks);

/// Micro-batches of `num_samples` of a batch, all groups of it.
int64_t num_passes(const Recipe& recipe, int64_t num_samples);

/// Passes that a rank of so many samples of a batch computes side by side on `device`: a GPU one.
int64_t passes_at_a_time(const Recipe& recipe, const torch::Device& device, int64_t rank_samples, int64_t local_ranks);

/// Samples of one gradient group.
int64_t group_size(const Recipe& recipe);

/// Samples of a batch that a rank computes.
FlatRange samples_of_rank(const Recipe& recipe, int64_t rank, int64_t num_ranks);

/// Rows that a rank's lanes shuffle at a time: what it reads again and again where less is kept in memory.
int64_t window_rows(const Recipe& recipe, int64_t num_ranks);

/// Whether a rank's buffers fit into `memory_bytes` (0: nobody knows) beside those of the other ranks there. `of` says whose memory it is.
/// Errors: kFailedPrecondition.
Status check_rank_memory(const Recipe& recipe, const RankMemory& memory, int64_t local_ranks, int64_t memory_bytes, const std::string& of);

/// Whether a rank's copy (snapshot_bytes) fits into the machine's memory beside what else the rank keeps there. Errors:
/// kFailedPrecondition, naming the field that turns it off where one does.
Status check_snapshot_memory(const Recipe& recipe, int64_t copy, int64_t beside_bytes, int64_t local_ranks, int64_t memory_bytes);

/// A dataset as the window's check sees it.
struct DatasetSize {
  std::string name;  ///< For people.
  int64_t num_rows = 0;
  int64_t num_blocks = 0;
  int64_t row_bytes = 0;  ///< At least, as kept.
  RowGroups row_groups = {};
};

/// Whether data.memory_bytes, here the rank's share of it (memory_of_rank), keeps what its lanes shuffle of a dataset, or its whole part
/// of a smaller one, so that each row is read once an epoch. Blocks of a window lie all over a dataset, so that of row groups larger than
/// blocks each block may keep another one. Errors: kFailedPrecondition, naming the fields, and row groups that are to blame.
Status check_window_memory(const Recipe& recipe, const DatasetSize& dataset, int64_t num_ranks);

}  // namespace darkroom
