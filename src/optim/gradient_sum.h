#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "darkroom/optim/flat_parameters.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/tensor/communicator.h"

namespace darkroom {

/// Adds the gradients of a batch's groups, over all ranks, in the fixed tree. A rank adds up the largest subtrees of its run, sends each
/// slice of these sums to the rank that owns it, and finishes the tree for its own slice. Beside the gradients it needs most_sums_held()
/// buffers, a level of the tree within its run each, and the others' sums of its slice. Thread safety: none.
class GradientSum {
 public:
  /// `is_fast`: instead a rank adds its groups in order and the library adds the ranks. REQUIRES: num_groups >= ranks.size().
  GradientSum(FlatParameters& parameters, int64_t num_groups, bool is_fast, Communicator& ranks);

  /// The groups of this rank.
  const GroupSpan& run() const { return run_; }
  /// Forgets a step that was not finished.
  void begin();
  /// Takes parameters.gradients() as the whole of the next group, and zeroes it, unless it is the last one, whose place that is until
  /// finish(). REQUIRES: groups come in order.
  void close_group(int64_t group);
  /// Leaves the sum over all groups and ranks in this rank's slice of parameters.gradients(); the rest is not defined.
  /// Errors: those of the ranks.
  Status finish();

 private:
  struct Sum {
    GroupSpan node;
    torch::Tensor gradients;
  };

  void add_up(std::vector<Sum>& sums, std::vector<torch::Tensor>& freed) const;
  torch::Tensor take_buffer();
  void keep_buffer(torch::Tensor buffer, std::vector<torch::Tensor>& buffers) const;
  Status exchange_slices(std::vector<Sum>& slices) const;

  FlatParameters& parameters_;
  const int64_t num_groups_;
  const bool is_fast_;
  Communicator& ranks_;
  const GroupSpan run_;
  std::vector<Sum> sums_;               // Of nodes whose parents are not complete, in order.
  std::vector<torch::Tensor> buffers_;  // Free ones.
};

}  // namespace darkroom
