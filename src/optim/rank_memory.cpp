#include "darkroom/optim/rank_memory.h"

#include "darkroom/optim/gradient_groups.h"

namespace darkroom {
namespace {

// Nodes of all ranks but one, each of which comes as a sum of that one's slice.
int64_t num_foreign_subtrees(const RankMemorySpec& spec) {
  int64_t count = 0;
  for (int64_t rank = 0; rank < spec.flat.num_ranks; ++rank) {
    if (rank != spec.flat.rank) {
      const GroupSpan run = groups_of_rank(spec.gradient_groups, rank, spec.flat.num_ranks);
      count += static_cast<int64_t>(largest_subtrees(spec.gradient_groups, run).size());
    }
  }
  return count;
}

}  // namespace

RankMemory rank_memory(const RankMemorySpec& spec) {
  constexpr int64_t kFloat = sizeof(float);
  const auto compute = static_cast<int64_t>(c10::elementSize(spec.flat.compute_type));
  const int64_t slice = slice_of_rank(spec.size, spec.flat.rank, spec.flat.num_ranks).count;
  RankMemory memory;
  memory.compute = compute * spec.size;
  memory.master = spec.flat.compute_type == torch::kFloat32 ? 0 : kFloat * slice;
  memory.moments = 2 * kFloat * slice;
  memory.average = spec.averages ? kFloat * slice : 0;
  memory.gradients = kFloat * spec.size;
  if (!spec.fast_reduction && (spec.gradient_groups > 1 || spec.flat.num_ranks > 1)) {
    const GroupSpan run = groups_of_rank(spec.gradient_groups, spec.flat.rank, spec.flat.num_ranks);
    const auto wire = static_cast<int64_t>(c10::elementSize(spec.gradient_wire));
    memory.partial_sums = most_sums_held(spec.gradient_groups, run) * wire * spec.size;
    memory.received_sums = num_foreign_subtrees(spec) * wire * slice;
    if (spec.gradient_wire != torch::kFloat32) {  // The last group's sum, rounded.
      memory.received_sums += wire * spec.size;
    }
  }
  return memory;
}

int64_t flat_size(const torch::nn::Module& module, const FlatParametersOptions& options) {
  int64_t size = 0;
  for (const torch::Tensor& parameter : module.parameters()) {
    size += (parameter.numel() + options.alignment - 1) / options.alignment * options.alignment;
  }
  return size;
}

}  // namespace darkroom
