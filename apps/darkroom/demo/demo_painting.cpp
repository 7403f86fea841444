#include "demo_painting.h"

#include <fmt/format.h>

#include <atomic>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"
#include "darkroom/paint/sample_job.h"

namespace darkroom {
namespace {

constexpr int kSteps = 25;
constexpr double kGuidance = 3.0;
constexpr int64_t kPicturesAtOnce = 20;  // A worker.

}  // namespace

Result<std::vector<Image>> paint_captions(Painter& painter, std::span<const std::string> captions, uint64_t first_seed, int resolution,
                                          const std::string& what, const std::stop_token& stop) {
  PaintRequest request;
  request.prompts.assign(captions.begin(), captions.end());
  for (size_t i = 0; i < captions.size(); ++i) {
    request.seeds.push_back(first_seed + i);
  }
  request.sampler = {.name = "ddim", .num_steps = kSteps};
  request.guidance = kGuidance;
  request.width = resolution;
  request.height = resolution;
  request.batch_size = kPicturesAtOnce;
  std::atomic<int64_t> num_painted{0};
  const auto show = [&](int64_t count) {
    show_progress(fmt::format("painting {}: {} of {} pictures", what, num_painted += count, captions.size()));
  };
  show(0);
  auto painting = paint_side_by_side(painter, request, /*workers=*/0, stop, show);
  show_progress("");
  DARKROOM_RETURN_IF_ERROR(painting.status());
  return std::move(painting->images);
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
