#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "darkroom/optim/flat_parameters.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/tensor/communicator.h"

namespace darkroom {

/// How sums of groups are kept and sent.
struct GradientSumOptions {
  int64_t num_groups = 1;
  bool is_fast = false;                      ///< Instead a rank adds its groups in order and the library adds the ranks.
  torch::ScalarType wire = torch::kFloat32;  ///< bfloat16: each group's sum and each node below the root is rounded.
};

/// Adds the gradients of a batch's groups, over all ranks, in the fixed tree. A rank adds up the largest subtrees of its run, sends each
/// slice of these sums to the rank that owns it, and finishes the tree for its own slice. Beside the gradients it needs a buffer for each
/// sum that waits (rank_memory.h), and the others' sums of its slice. Thread safety: none, but finish() of ranges may run on another thread
/// than what fills the gradients outside them.
class GradientSum {
 public:
  /// REQUIRES: num_groups >= ranks.size().
  GradientSum(FlatParameters& parameters, const GradientSumOptions& options, Communicator& ranks);

  /// The groups of this rank.
  const GroupSpan& run() const { return run_; }
  /// Forgets a step that was not finished.
  void begin();
  /// Takes parameters.gradients() as the whole of the next group, and zeroes it, unless it is the last one, whose place that is until
  /// finish(). REQUIRES: groups come in order.
  void close_group(int64_t group);
  /// Leaves the sum over all groups and ranks in what this rank's slice has of parameters.gradients(); the rest is not defined.
  /// Errors: those of the ranks.
  Status finish() { return finish(parameters_.whole()); }
  /// The same for a part, whose gradients of the last group are complete. All ranks finish the same parts in the same order.
  Status finish(const FlatRange& part);

 private:
  struct Sum {
    GroupSpan node;
    torch::Tensor gradients;
  };

  bool rounds() const { return options_.wire != torch::kFloat32; }
  void add_up(std::vector<Sum>& sums, std::vector<torch::Tensor>* freed) const;
  torch::Tensor take_buffer();
  std::vector<Sum> own_sums(const FlatRange& part) const;
  void put_root(const std::vector<Sum>& sums, const FlatRange& mine) const;
  Result<std::vector<Sum>> exchange_slices(const std::vector<Sum>& own, const FlatRange& part) const;

  FlatParameters& parameters_;
  const GradientSumOptions options_;
  Communicator& ranks_;
  const GroupSpan run_;
  std::vector<Sum> sums_;               // Of nodes whose parents are not complete, in order; without the last group.
  std::vector<torch::Tensor> buffers_;  // Free ones.
};

}  // namespace darkroom
