#include "gradient_sum.h"

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

// What a part of the flat buffers has in common with a slice, of a tensor that holds the part alone.
torch::Tensor shared(const FlatRange& common, const FlatRange& part, const torch::Tensor& values) {
  return FlatRange{common.count == 0 ? 0 : common.first - part.first, common.count}.of(values);
}

}  // namespace

GradientSum::GradientSum(FlatParameters& parameters, const GradientSumOptions& options, Communicator& ranks)
    : parameters_(parameters), options_(options), ranks_(ranks), run_(groups_of_rank(options.num_groups, ranks.rank(), ranks.size())) {}

void GradientSum::begin() {
  for (Sum& sum : sums_) {
    buffers_.push_back(std::move(sum.gradients));
  }
  sums_.clear();
}

torch::Tensor GradientSum::take_buffer() {
  if (buffers_.empty()) {
    return torch::empty_like(parameters_.gradients(), parameters_.gradients().options().dtype(options_.wire));
  }
  torch::Tensor buffer = std::move(buffers_.back());
  buffers_.pop_back();
  return buffer;
}

void GradientSum::close_group(int64_t group) {
  DARKROOM_CHECK(options_.is_fast || group == (sums_.empty() ? run_.first : sums_.back().node.end()),
                 "gradient groups come in order:", group);
  if (options_.is_fast || group + 1 == run_.end()) {
    return;  // The next group goes on adding, or nothing follows.
  }
  const torch::NoGradGuard no_grad;
  sums_.push_back({{group, 1}, take_buffer()});
  sums_.back().gradients.copy_(parameters_.gradients());
  parameters_.zero_gradients();
  add_up(sums_, &buffers_);
}

// The last two sums become their parent's as long as they are the children of one. Where sums are rounded the root's children stay: it is
// put together in float32.
void GradientSum::add_up(std::vector<Sum>& sums, std::vector<torch::Tensor>* freed) const {
  const GroupSpan root{0, options_.num_groups};
  while (sums.size() > 1) {
    Sum& left = sums[sums.size() - 2];
    Sum& right = sums.back();
    const GroupSpan parent{left.node.first, left.node.count + right.node.count};
    const bool is_node = is_tree_node(options_.num_groups, parent) && children_of(parent) == std::pair(left.node, right.node);
    if (!is_node || (rounds() && parent == root)) {
      return;
    }
    left.gradients.add_(right.gradients);
    left.node = parent;
    if (freed != nullptr) {
      freed->push_back(std::move(right.gradients));
    }
    sums.pop_back();
  }
}

// This rank's largest subtrees, the last group among them.
std::vector<GradientSum::Sum> GradientSum::own_sums(const FlatRange& part) const {
  std::vector<Sum> sums;
  for (const Sum& sum : sums_) {
    sums.push_back({sum.node, part.of(sum.gradients)});
  }
  const torch::Tensor last = part.of(parameters_.gradients());
  sums.push_back({{run_.end() - 1, 1}, rounds() ? last.to(options_.wire) : last});
  add_up(sums, nullptr);
  return sums;
}

Status GradientSum::finish(const FlatRange& part) {
  const torch::NoGradGuard no_grad;
  if (options_.is_fast) {
    return ranks_.all_reduce(part.of(parameters_.gradients()));
  }
  DARKROOM_ASSIGN_OR_RETURN(std::vector<Sum> slices, exchange_slices(own_sums(part), part));
  std::vector<Sum> added;
  for (Sum& slice : slices) {
    added.push_back(std::move(slice));
    add_up(added, nullptr);
  }
  put_root(added, slice_of_rank(parameters_.size(), ranks_.rank(), ranks_.size()).overlap(part));
  return {};
}

void GradientSum::put_root(const std::vector<Sum>& sums, const FlatRange& mine) const {
  const bool has_root = sums.size() == 1 && sums[0].node == GroupSpan({0, options_.num_groups});
  const bool has_children = rounds() && sums.size() == 2;
  DARKROOM_CHECK(has_root || has_children, "the tree of gradients has one root:", sums.size());
  const torch::Tensor root = parameters_.gradients().narrow(0, mine.count == 0 ? 0 : mine.first, mine.count);
  root.copy_(sums[0].gradients);
  if (has_children) {
    root.add_(sums[1].gradients);
  }
}

// All ranks' sums of what this rank's slice has of a part, in the order of their groups.
Result<std::vector<GradientSum::Sum>> GradientSum::exchange_slices(const std::vector<Sum>& own, const FlatRange& part) const {
  const auto of_rank = [&](int64_t rank) { return slice_of_rank(parameters_.size(), rank, ranks_.size()).overlap(part); };
  const FlatRange mine = of_rank(ranks_.rank());
  std::vector<Sum> slices;
  std::vector<Transfer> sends, receives;
  for (int64_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank()) {
      for (const Sum& sum : own) {
        slices.push_back({sum.node, shared(mine, part, sum.gradients)});
      }
      continue;
    }
    for (const Sum& sum : own) {
      sends.push_back({rank, shared(of_rank(rank), part, sum.gradients)});
    }
    for (const GroupSpan& node : largest_subtrees(options_.num_groups, groups_of_rank(options_.num_groups, rank, ranks_.size()))) {
      slices.push_back({node, torch::empty({mine.count}, parameters_.gradients().options().dtype(options_.wire))});
      receives.push_back({rank, slices.back().gradients});
    }
  }
  DARKROOM_RETURN_IF_ERROR(ranks_.exchange(sends, receives));
  return slices;
}

}  // namespace darkroom
