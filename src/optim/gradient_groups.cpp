#include "darkroom/optim/gradient_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <string>

#include "darkroom/core/check.h"
#include "darkroom/ops/adamw_update.h"

namespace darkroom {

GroupSpan groups_of_rank(int64_t num_groups, int64_t rank, int64_t num_ranks) {
  DARKROOM_CHECK(rank >= 0 && rank < num_ranks && num_ranks <= num_groups, "a rank has gradient groups (rank, ranks, groups):", rank,
                 num_ranks, num_groups);
  const int64_t first = num_groups * rank / num_ranks;
  return {first, num_groups * (rank + 1) / num_ranks - first};
}

std::pair<GroupSpan, GroupSpan> children_of(const GroupSpan& node) {
  DARKROOM_CHECK(node.count > 1, "a node of one group is a leaf:", node.first);
  const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(node.count - 1)));
  return {{node.first, left}, {node.first + left, node.count - left}};
}

bool is_tree_node(int64_t num_groups, const GroupSpan& span) {
  GroupSpan node{0, num_groups};
  while (node != span && node.count > 1) {
    const auto [left, right] = children_of(node);
    node = span.first < right.first ? left : right;
  }
  return node == span;
}

std::vector<GroupSpan> largest_subtrees(int64_t num_groups, const GroupSpan& run) {
  std::vector<GroupSpan> found;
  std::vector<GroupSpan> pending = {{0, num_groups}};  // The leftmost last.
  while (!pending.empty()) {
    const GroupSpan node = pending.back();
    pending.pop_back();
    if (node.end() <= run.first || node.first >= run.end()) {
      continue;
    }
    if (node.first >= run.first && node.end() <= run.end()) {
      found.push_back(node);
      continue;
    }
    const auto [left, right] = children_of(node);
    pending.push_back(right);
    pending.push_back(left);
  }
  return found;
}

int64_t most_sums_held(int64_t num_groups, const GroupSpan& run) {
  size_t most = 0;
  std::vector<GroupSpan> held;
  for (int64_t group = run.first; group < run.end(); ++group) {
    held.push_back({group, 1});
    most = group + 1 < run.end() ? std::max(most, held.size()) : most;
    while (held.size() > 1) {
      const GroupSpan left = held[held.size() - 2], parent{left.first, left.count + held.back().count};
      if (!is_tree_node(num_groups, parent) || children_of(parent) != std::pair(left, held.back())) {
        break;
      }
      held.pop_back();
      held.back() = parent;
    }
  }
  return static_cast<int64_t>(most);
}

FlatRange slice_of_rank(int64_t size, int64_t rank, int64_t num_ranks) {
  const int64_t num_chunks = (size + kNormChunk - 1) / kNormChunk;
  const int64_t begin = std::min(size, num_chunks * rank / num_ranks * kNormChunk);
  const int64_t end = std::min(size, num_chunks * (rank + 1) / num_ranks * kNormChunk);
  return {begin, end - begin};
}

RankSlices slices_of_ranks(int64_t size, int64_t num_ranks) {
  RankSlices slices;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    slices.push_back(slice_of_rank(size, rank, num_ranks));
  }
  return slices;
}

Status gather_slices(Communicator& ranks, const torch::Tensor& flat) {
  std::vector<torch::Tensor> parts;
  for (const FlatRange& slice : slices_of_ranks(flat.numel(), ranks.size())) {
    parts.push_back(slice.of(flat));
  }
  return all_gather(ranks, parts);
}

Status gather_weights(Communicator& ranks, FlatParameters& parameters) {
  const torch::NoGradGuard no_grad;
  parameters.refresh_compute_copy();
  return gather_slices(ranks, parameters.compute_copy().defined() ? parameters.compute_copy() : parameters.values());
}

Status share_parameters(Communicator& ranks, torch::nn::Module& module) {
  if (ranks.size() == 1) {
    return {};
  }
  const torch::NoGradGuard no_grad;
  std::string layout;
  for (const auto& item : module.named_parameters()) {
    layout += fmt::format("{} {} {}\n", item.key(), c10::toString(item.value().scalar_type()), fmt::join(item.value().sizes().vec(), " "));
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string first, broadcast_text(ranks, 0, layout));
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<int64_t> differs, gather_numbers(ranks, first == layout ? 0 : 1));
  if (std::ranges::find(differs, 1) != differs.end()) {
    return {};
  }
  for (const auto& item : module.named_parameters()) {
    const torch::Tensor plain = item.value().detach().contiguous();
    DARKROOM_RETURN_IF_ERROR(broadcast(ranks, 0, plain));
    if (!plain.is_alias_of(item.value())) {
      item.value().copy_(plain);
    }
  }
  return {};
}

namespace {

// The part of a slice's values that lies in a range, and of a range's values that lies in a slice.
torch::Tensor shared_part(const FlatRange& part, const FlatRange& of, const torch::Tensor& values) {
  return values.narrow(0, part.count == 0 ? 0 : part.first - of.first, part.count);
}

}  // namespace

Status scatter_range(Communicator& ranks, const RankSlices& slices, const FlatRange& range, const torch::Tensor& values,
                     const torch::Tensor& own_slice) {
  const torch::NoGradGuard no_grad;
  const FlatRange own = slices[static_cast<size_t>(ranks.rank())];
  const FlatRange mine = own.overlap(range);
  if (ranks.rank() != 0) {
    return ranks.exchange({}, {{0, shared_part(mine, own, own_slice)}});
  }
  std::vector<Transfer> sends;
  for (int64_t rank = 1; rank < ranks.size(); ++rank) {
    sends.push_back({rank, shared_part(slices[static_cast<size_t>(rank)].overlap(range), range, values)});
  }
  shared_part(mine, own, own_slice).copy_(shared_part(mine, range, values));
  return ranks.exchange(sends, {});
}

Result<torch::Tensor> gather_range(Communicator& ranks, const RankSlices& slices, const FlatRange& range, const torch::Tensor& own_slice) {
  const torch::NoGradGuard no_grad;
  const FlatRange own = slices[static_cast<size_t>(ranks.rank())];
  const FlatRange mine = own.overlap(range);
  if (ranks.rank() != 0) {
    DARKROOM_RETURN_IF_ERROR(ranks.exchange({{0, shared_part(mine, own, own_slice)}}, {}));
    return torch::Tensor();
  }
  if (mine == range) {
    return shared_part(mine, own, own_slice);
  }
  const torch::Tensor values = torch::empty({range.count}, own_slice.options());
  std::vector<Transfer> receives;
  for (int64_t rank = 1; rank < ranks.size(); ++rank) {
    receives.push_back({rank, shared_part(slices[static_cast<size_t>(rank)].overlap(range), range, values)});
  }
  shared_part(mine, range, values).copy_(shared_part(mine, own, own_slice));
  DARKROOM_RETURN_IF_ERROR(ranks.exchange({}, receives));
  return values;
}

}  // namespace darkroom
