#include "painter_engine.h"

#include <utility>
#include <vector>

namespace darkroom {
namespace {

struct PaintedPicture final : EnginePicture {
  explicit PaintedPicture(std::unique_ptr<PictureInWork> begun) : work(std::move(begun)) {}
  size_t num_calls_left() const override { return work->num_calls_left(); }
  std::unique_ptr<PictureInWork> work;
};

}  // namespace

Result<std::unique_ptr<EnginePicture>> PainterEngine::begin(const PictureSpec& spec) {
  at::set_num_threads(threads_);
  PaintRequest request;
  request.prompts = {spec.prompt};
  request.seeds = {spec.seed};
  request.negative = spec.negative;
  request.sampler = {.name = spec.sampler, .num_steps = spec.num_steps};
  request.guidance = spec.guidance;
  request.width = spec.width;
  request.height = spec.height;
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<PictureInWork> work, painter_->begin(request));
  return std::unique_ptr<EnginePicture>(std::make_unique<PaintedPicture>(std::move(work)));
}

void PainterEngine::step(std::span<EnginePicture* const> pictures) {
  std::vector<PictureInWork*> works;
  for (EnginePicture* picture : pictures) {
    works.push_back(static_cast<PaintedPicture&>(*picture).work.get());
  }
  painter_->step(works);
}

Image PainterEngine::finish(const EnginePicture& picture) { return painter_->finish(*static_cast<const PaintedPicture&>(picture).work); }

ModelFacts PainterEngine::facts(std::string name) const {
  const auto samplers = sampler_names();
  return {.name = std::move(name),
          .native_size = painter_->native_size(),
          .size_multiple = painter_->latent_factor(),
          .samplers = {samplers.begin(), samplers.end()}};
}

}  // namespace darkroom
