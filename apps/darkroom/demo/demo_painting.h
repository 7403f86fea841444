#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "corpus_pictures.h"
#include "darkroom/core/result.h"
#include "darkroom/measure/retrieval.h"
#include "darkroom/paint/painter.h"

namespace darkroom {

/// One picture for each caption by 25 steps of DDIM at guidance scale 3, picture i from the noise of seed `first_seed` + i.
/// `what` names the pictures on the progress line. Errors: kCancelled.
Result<std::vector<Image>> paint_captions(Painter& painter, std::span<const std::string> captions, uint64_t first_seed, int resolution,
                                          const std::string& what, const std::stop_token& stop);

/// How often a caption's own picture is the nearest, and among the nearest 5, as fractions.
struct RetrievalShares {
  double top1 = 0;
  double top5 = 0;
};

/// Ranks the whole corpus for each painted picture; painted[i] is of the caption of row rows[i].
/// REQUIRES: pictures of one even size.
RetrievalShares rank_paintings(std::span<const Image> painted, std::span<const size_t> rows, std::span<const ReducedPicture> corpus);

}  // namespace darkroom
