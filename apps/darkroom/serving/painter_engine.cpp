#include "serving/painter_engine.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/diffusion/sampler.h"
#include "darkroom/paint/usable_samplers.h"
#include "darkroom/tensor/device_runtime.h"

namespace darkroom {
namespace {

struct PaintedPicture final : EnginePicture {
  explicit PaintedPicture(std::unique_ptr<PictureInWork> begun) : work(std::move(begun)) {}
  size_t num_calls_left() const override { return work->num_calls_left(); }
  std::unique_ptr<PictureInWork> work;
};

}  // namespace

Result<std::unique_ptr<PainterEngine>> PainterEngine::create(std::unique_ptr<Painter> painter, int threads,
                                                             std::shared_ptr<GpuTurn> gpu_turn, DeviceLost lost) {
  auto engine = std::unique_ptr<PainterEngine>(new PainterEngine(std::move(painter), threads, std::move(gpu_turn), std::move(lost)));
  const SchedulerConfig& scheduler = engine->painter_->scheduler();
  engine->samplers_ = usable_samplers(scheduler);
  if (const Status own = try_sampler("", scheduler); !own.is_ok()) {
    if (engine->samplers_.empty()) {
      return own;
    }
    engine->default_sampler_ = engine->samplers_.front();
    log_warning("serve: pictures without a sampler are painted with {}: {}", engine->default_sampler_, own.message());
  }
  return engine;
}

PainterEngine::~PainterEngine() {
  const auto turn = take_turn(gpu_turn_.get());
  painter_.reset();
}

template <typename Work>
auto PainterEngine::in_turn(const Work& work) {
  const auto turn = take_turn(gpu_turn_.get());
  return telling_of_lost_device(painter_->place().device, lost_, work);
}

PaintRequest PainterEngine::request_of(const PictureSpec& spec) const {
  PaintRequest request;
  request.prompts = {spec.prompt};
  request.seeds = {spec.seed};
  request.negative = spec.negative;
  request.reading.syntax = spec.has_weight_syntax ? PromptSyntax::kWeighted : PromptSyntax::kPlain;
  request.sampler = {.name = spec.sampler.empty() ? default_sampler_ : spec.sampler, .num_steps = spec.num_steps, .eta = spec.eta};
  request.guidance = spec.guidance;
  request.width = spec.width;
  request.height = spec.height;
  if (spec.init_image != nullptr) {
    request.init_images = {*spec.init_image};
    request.strength = spec.strength;
  }
  return request;
}

Status PainterEngine::check(const PictureSpec& spec) const {
  const PaintRequest request = request_of(spec);
  if (const Status checked = painter_->check(request); !checked.is_ok()) {
    return Status::invalid_argument(checked.message());
  }
  return spec.has_weight_syntax ? check_chunks(request) : Status::ok();
}

// Plain prompts are of one chunk. Text states of any number of chunks, of each picture, would take all memory.
Status PainterEngine::check_chunks(const PaintRequest& request) const {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<int64_t> counts, painter_->chunk_counts(request));
  for (const int64_t count : counts) {
    if (count > kMostChunks) {
      return Status::invalid_argument(
          fmt::format("a prompt has more chunks of {} tokens than this server reads (bound, got):", kChunkTokens), kMostChunks, count);
    }
  }
  return Status::ok();
}

UnreadTexts PainterEngine::unread(const PictureSpec& spec) const {
  if (spec.has_weight_syntax) {
    return {};  // Read in chunks, to their ends.
  }
  const auto lost = [&](const std::string& text) {
    const auto found = painter_->lost_text(text, {});
    return found.is_ok() ? *found : std::string();
  };
  return {.prompt = lost(spec.prompt), .negative = spec.guidance > 1.0 ? lost(spec.negative) : std::string()};
}

Result<std::unique_ptr<EnginePicture>> PainterEngine::begin(const PictureSpec& spec) {
  at::set_num_threads(threads_);
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<PictureInWork> work, in_turn([&] { return painter_->begin(request_of(spec)); }));
  return std::unique_ptr<EnginePicture>(std::make_unique<PaintedPicture>(std::move(work)));
}

void PainterEngine::step(std::span<EnginePicture* const> pictures) {
  std::vector<PictureInWork*> works;
  for (EnginePicture* picture : pictures) {
    works.push_back(static_cast<PaintedPicture&>(*picture).work.get());
  }
  in_turn([&] { painter_->step(works); });
}

Image PainterEngine::preview(const EnginePicture& picture) {
  return in_turn([&] { return painter_->preview(*static_cast<const PaintedPicture&>(picture).work, kMaxPreviewSide); });
}

Result<Image> PainterEngine::finish(const EnginePicture& picture) {
  return in_turn([&] { return painter_->finish(*static_cast<const PaintedPicture&>(picture).work); });
}

ModelFacts PainterEngine::facts(std::string name) const {
  const auto own = resolve_sampler_name({.name = default_sampler_}, painter_->scheduler());
  return {.name = std::move(name),
          .native_size = painter_->native_size(),
          .size_multiple = painter_->latent_factor(),
          .samplers = samplers_,
          .default_sampler = own.is_ok() ? *own : std::string()};
}

}  // namespace darkroom
