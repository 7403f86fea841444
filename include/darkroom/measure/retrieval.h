#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "darkroom/image/image.h"

namespace darkroom {

// Does a painted picture show its caption? Rank all corpus pictures by mean squared error to it, both reduced to half
// their size by the exact mean of 2x2 pixels; the caption's own picture should come first (docs/demo.md).

/// A picture at half its size: sums of 2x2 pixels, that is four times their mean, so that distances are exact integers.
using ReducedPicture = std::vector<uint16_t>;

/// REQUIRES: even width and height.
ReducedPicture reduce_picture(const Image& picture);

/// Sum of squared differences. REQUIRES: pictures of one size.
int64_t squared_distance(const ReducedPicture& a, const ReducedPicture& b);

/// How many pictures of the corpus are strictly nearer to `painted` than its own one: 0 means that it is the nearest.
/// Pictures with the same pixels are equally near and so count as one. REQUIRES: own < corpus.size().
int64_t rank_of_own(const ReducedPicture& painted, size_t own, std::span<const ReducedPicture> corpus);

/// Share of ranks below `limit`; 0 without ranks.
double share_within(std::span<const int64_t> ranks, int64_t limit);

/// `count` different numbers below `num_rows`: the beginning of the order that (seed, kSelect, epoch 0, name) shuffles them
/// into. REQUIRES: count <= num_rows.
std::vector<size_t> draw_rows(uint64_t seed, std::string_view name, size_t num_rows, size_t count);

}  // namespace darkroom
