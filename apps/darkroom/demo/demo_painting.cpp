#include "demo_painting.h"

#include <fmt/format.h>

#include <algorithm>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"

namespace darkroom {
namespace {

constexpr int kSteps = 25;
constexpr double kGuidance = 3.0;
constexpr size_t kPicturesAtOnce = 40;

}  // namespace

Result<std::vector<Image>> paint_captions(Painter& painter, std::span<const std::string> captions, uint64_t first_seed, int resolution,
                                          const std::string& what, const std::stop_token& stop) {
  std::vector<Image> images;
  for (size_t first = 0; first < captions.size(); first += kPicturesAtOnce) {
    show_progress(fmt::format("painting {}: {} of {} pictures", what, first, captions.size()));
    PaintRequest request;
    request.sampler = {.name = "ddim", .num_steps = kSteps};
    request.guidance = kGuidance;
    request.width = resolution;
    request.height = resolution;
    request.batch_size = kPicturesAtOnce;
    for (size_t i = first; i < std::min(first + kPicturesAtOnce, captions.size()); ++i) {
      request.prompts.push_back(captions[i]);
      request.seeds.push_back(first_seed + i);
    }
    DARKROOM_ASSIGN_OR_RETURN(Painting painting, painter.paint(request, stop));
    std::move(painting.images.begin(), painting.images.end(), std::back_inserter(images));
  }
  show_progress("");
  return images;
}

RetrievalShares rank_paintings(std::span<const Image> painted, std::span<const size_t> rows, std::span<const ReducedPicture> corpus) {
  DARKROOM_CHECK(painted.size() == rows.size(), "every painted picture needs the row of its caption:", painted.size(), rows.size());
  std::vector<int64_t> ranks;
  for (size_t i = 0; i < painted.size(); ++i) {
    ranks.push_back(rank_of_own(reduce_picture(painted[i]), rows[i], corpus));
  }
  return {share_within(ranks, 1), share_within(ranks, 5)};
}

}  // namespace darkroom
