#include "gradient_sum.h"

#include "darkroom/core/check.h"

namespace darkroom {

GradientSum::GradientSum(FlatParameters& parameters, int64_t num_groups, bool is_fast, Communicator& ranks)
    : parameters_(parameters),
      num_groups_(num_groups),
      is_fast_(is_fast),
      ranks_(ranks),
      run_(groups_of_rank(num_groups, ranks.rank(), ranks.size())) {}

void GradientSum::begin() {
  for (Sum& sum : sums_) {
    keep_buffer(std::move(sum.gradients), buffers_);
  }
  sums_.clear();
}

void GradientSum::keep_buffer(torch::Tensor buffer, std::vector<torch::Tensor>& buffers) const {
  if (!buffer.is_alias_of(parameters_.gradients())) {
    buffers.push_back(std::move(buffer));
  }
}

torch::Tensor GradientSum::take_buffer() {
  if (buffers_.empty()) {
    return torch::empty_like(parameters_.gradients());
  }
  torch::Tensor buffer = std::move(buffers_.back());
  buffers_.pop_back();
  return buffer;
}

void GradientSum::close_group(int64_t group) {
  if (is_fast_) {
    return;  // The next group goes on adding.
  }
  const torch::NoGradGuard no_grad;
  DARKROOM_CHECK(group == (sums_.empty() ? run_.first : sums_.back().node.end()), "gradient groups come in order:", group);
  if (group + 1 == run_.end()) {
    sums_.push_back({{group, 1}, parameters_.gradients()});  // Nothing follows it there.
  } else {
    sums_.push_back({{group, 1}, take_buffer()});
    sums_.back().gradients.copy_(parameters_.gradients());
    parameters_.zero_gradients();
  }
  add_up(sums_, buffers_);
}

// The last two sums become their parent's as long as they are the children of one.
void GradientSum::add_up(std::vector<Sum>& sums, std::vector<torch::Tensor>& freed) const {
  while (sums.size() > 1) {
    Sum& left = sums[sums.size() - 2];
    Sum& right = sums.back();
    const GroupSpan parent{left.node.first, left.node.count + right.node.count};
    if (!is_tree_node(num_groups_, parent) || children_of(parent) != std::pair(left.node, right.node)) {
      return;
    }
    left.gradients.add_(right.gradients);
    left.node = parent;
    keep_buffer(std::move(right.gradients), freed);
    sums.pop_back();
  }
}

Status GradientSum::finish() {
  const torch::NoGradGuard no_grad;
  if (is_fast_) {
    return ranks_.all_reduce(parameters_.gradients());
  }
  std::vector<Sum> slices;
  DARKROOM_RETURN_IF_ERROR(exchange_slices(slices));
  std::vector<Sum> added;
  std::vector<torch::Tensor> freed;
  for (Sum& slice : slices) {
    added.push_back(std::move(slice));
    add_up(added, freed);
  }
  DARKROOM_CHECK(added.size() == 1 && added[0].node == GroupSpan({0, num_groups_}), "the tree of gradients has one root:", added.size());
  slice_of_rank(parameters_.size(), ranks_.rank(), ranks_.size()).of(parameters_.gradients()).copy_(added[0].gradients);
  begin();
  return {};
}

// All ranks' sums of this rank's slice, in the order of their groups.
Status GradientSum::exchange_slices(std::vector<Sum>& slices) const {
  const int64_t size = parameters_.size();
  const FlatRange mine = slice_of_rank(size, ranks_.rank(), ranks_.size());
  std::vector<Transfer> sends, receives;
  for (int64_t rank = 0; rank < ranks_.size(); ++rank) {
    if (rank == ranks_.rank()) {
      for (const Sum& sum : sums_) {
        slices.push_back({sum.node, mine.of(sum.gradients)});
      }
      continue;
    }
    for (const Sum& sum : sums_) {
      sends.push_back({rank, slice_of_rank(size, rank, ranks_.size()).of(sum.gradients)});
    }
    for (const GroupSpan& node : largest_subtrees(num_groups_, groups_of_rank(num_groups_, rank, ranks_.size()))) {
      slices.push_back({node, torch::empty({mine.count}, parameters_.gradients().options())});
      receives.push_back({rank, slices.back().gradients});
    }
  }
  return ranks_.exchange(sends, receives);
}

}  // namespace darkroom
