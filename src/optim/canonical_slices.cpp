#include "darkroom/optim/canonical_slices.h"

#include <algorithm>
#include <vector>

#include "darkroom/tensor/device_runtime.h"

namespace darkroom {
namespace {

// What a rank has of one parameter.
struct Piece {
  const FlatParameters::Entry* entry;
  FlatRange held;           // Within the parameter.
  torch::Tensor stored;     // This rank's, as a buffer has it.
  torch::Tensor canonical;  // The same number of elements in canonical order, on the CPU.
  torch::Tensor whole;      // Of a parameter that other ranks have parts of and that lies otherwise here; else undefined.

  bool is_all() const { return held.count == entry->count; }
};

// Where an element of a buffer, or the gap before the next parameter, comes in canonical order.
int64_t canonical_place(const FlatParameters& parameters, int64_t place) {
  int64_t first = 0;
  for (const FlatParameters::Entry& entry : parameters.entries()) {
    if (place < entry.first + entry.count) {
      return first + std::max<int64_t>(0, place - entry.first);
    }
    first += entry.count;
  }
  return first;
}

FlatRange within(const FlatParameters::Entry& entry, const FlatRange& slice) {
  const FlatRange shared = slice.overlap({entry.first, entry.count});
  return {shared.count == 0 ? 0 : shared.first - entry.first, shared.count};
}

// Those of this rank's slice, in order.
std::vector<Piece> pieces_of(const FlatParameters& parameters, const FlatRange& slice, const torch::Tensor& own_slice,
                             const torch::Tensor& canonical) {
  std::vector<Piece> pieces;
  int64_t done = 0;
  for (const FlatParameters::Entry& entry : parameters.entries()) {
    const FlatRange held = within(entry, slice);
    if (held.count == 0) {
      continue;
    }
    Piece piece{
        &entry, held, own_slice.narrow(0, entry.first + held.first - slice.first, held.count), canonical.narrow(0, done, held.count), {}};
    if (!piece.is_all() && !parameters.shaped(torch::empty({entry.count}, torch::kMeta), entry).is_contiguous()) {
      piece.whole = torch::empty({entry.count}, own_slice.options());
    }
    done += held.count;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// Fills `whole` of the pieces that have one from `part` of all ranks' pieces.
Status share_parts(Communicator& ranks, const FlatParameters& parameters, const std::vector<Piece>& pieces, torch::Tensor Piece::*part) {
  const RankSlices slices = slices_of_ranks(parameters.size(), ranks.size());
  std::vector<Transfer> sends, receives;
  for (const Piece& piece : pieces) {
    if (!piece.whole.defined()) {
      continue;
    }
    const torch::Tensor own = piece.whole.narrow(0, piece.held.first, piece.held.count);
    own.copy_(piece.*part);
    for (int64_t rank = 0; rank < ranks.size(); ++rank) {
      const FlatRange theirs = within(*piece.entry, slices[static_cast<size_t>(rank)]);
      if (rank != ranks.rank() && theirs.count > 0) {
        sends.push_back({rank, own});
        receives.push_back({rank, piece.whole.narrow(0, theirs.first, theirs.count)});
      }
    }
  }
  return sends.empty() ? Status::ok() : ranks.exchange(sends, receives);
}

}  // namespace

RankSlices canonical_slices(const FlatParameters& parameters, int64_t num_ranks) {
  RankSlices slices = slices_of_ranks(parameters.size(), num_ranks);
  if (parameters.is_canonical()) {
    return slices;
  }
  for (FlatRange& slice : slices) {
    const int64_t first = canonical_place(parameters, slice.first);
    slice = {first, canonical_place(parameters, slice.first + slice.count) - first};
  }
  return slices;
}

Status copy_canonical(Communicator& ranks, const FlatParameters& parameters, const torch::Tensor& own_slice,
                      const torch::Tensor& canonical) {
  const torch::NoGradGuard no_grad;
  if (parameters.is_canonical()) {
    canonical.copy_(own_slice);
    return {};
  }
  const FlatRange slice = slice_of_rank(parameters.size(), ranks.rank(), ranks.size());
  const std::vector<Piece> pieces = pieces_of(parameters, slice, own_slice, canonical);
  DARKROOM_RETURN_IF_ERROR(share_parts(ranks, parameters, pieces, &Piece::stored));
  for (const Piece& piece : pieces) {
    if (piece.is_all()) {
      piece.canonical.copy_(parameters.shaped(piece.stored, *piece.entry).contiguous().view({-1}), /*non_blocking=*/true);
    } else if (piece.whole.defined()) {
      const torch::Tensor plain = parameters.shaped(piece.whole, *piece.entry).contiguous().view({-1});
      piece.canonical.copy_(plain.narrow(0, piece.held.first, piece.held.count), /*non_blocking=*/true);
    } else {
      piece.canonical.copy_(piece.stored, /*non_blocking=*/true);
    }
  }
  synchronize(parameters.options().device);
  return ranks.exchange({}, {});  // Whether what other ranks have of it came.
}

Status copy_from_canonical(Communicator& ranks, const FlatParameters& parameters, const torch::Tensor& canonical,
                           const torch::Tensor& own_slice) {
  const torch::NoGradGuard no_grad;
  if (parameters.is_canonical()) {
    own_slice.copy_(canonical);
    return {};
  }
  const FlatRange slice = slice_of_rank(parameters.size(), ranks.rank(), ranks.size());
  const std::vector<Piece> pieces = pieces_of(parameters, slice, own_slice, canonical);
  DARKROOM_RETURN_IF_ERROR(share_parts(ranks, parameters, pieces, &Piece::canonical));
  for (const Piece& piece : pieces) {
    if (piece.is_all()) {
      parameters.shaped(piece.stored, *piece.entry).copy_(piece.canonical.view(piece.entry->shape));
    } else if (piece.whole.defined()) {
      const torch::Tensor laid_out = torch::empty_like(piece.whole);
      parameters.shaped(laid_out, *piece.entry).copy_(piece.whole.view(piece.entry->shape));
      piece.stored.copy_(laid_out.narrow(0, piece.held.first, piece.held.count));
    } else {
      piece.stored.copy_(piece.canonical);
    }
  }
  return {};
}

}  // namespace darkroom
