#include "serving/painter_opener.h"

#include <utility>

#include "darkroom/core/machine.h"
#include "darkroom/core/metrics.h"
#include "darkroom/tensor/device.h"
#include "opening/open_stores.h"

namespace darkroom {
namespace {

constexpr double kPicturesInQueue = 32;

// The first picture takes longer than others, and shows whether the model paints at all.
Status warm_up(StepEngine& engine, const ModelFacts& model, const std::stop_token& stop) {
  const PictureSpec spec{.num_steps = 4, .width = model.native_size, .height = model.native_size};  // Every sampler takes 4 steps.
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<EnginePicture> picture, engine.begin(spec));
  EnginePicture* const one = picture.get();
  while (one->num_calls_left() > 0) {
    if (stop.stop_requested()) {
      return Status::cancelled("stopped while the first picture was painted");
    }
    engine.step(std::span(&one, 1));
  }
  return engine.finish(*one).status();
}

}  // namespace

ServedPainters::ServedPainters(PainterFlags flags, int threads, double queue_cost, DeviceLost lost)
    : flags_(std::move(flags)), threads_(threads), queue_cost_(queue_cost), lost_(std::move(lost)) {}

Result<PainterSource> ServedPainters::local_source(const ModelEntry& model, const std::stop_token& stop) {
  if (const auto found = sources_.find(model.address); found != sources_.end()) {
    return found->second;
  }
  PainterFlags flags = flags_;
  flags.source.model = model.address;
  DARKROOM_ASSIGN_OR_RETURN(PainterSource source, chosen_source(flags));
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, stop);
  DARKROOM_ASSIGN_OR_RETURN(SourceCopies copies, fetch_source(*stores, source, stop));
  if (copies.model.has_value() || copies.frozen.has_value()) {
    copies_.insert_or_assign(model.address, std::move(copies));
    sources_.insert_or_assign(model.address, source);
  }
  return source;
}

Result<int64_t> ServedPainters::measure(const ModelEntry& model, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const PainterSource source, local_source(model, stop));
  return painter_bytes(source);
}

Result<std::string> ServedPainters::vae_folder(const ModelEntry& model, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const PainterSource source, local_source(model, stop));
  DARKROOM_ASSIGN_OR_RETURN(const FoundModel found, find_model(source));
  return found.parts.vae;
}

Result<ServedModel> ServedPainters::open(const ModelEntry& model, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const PainterSource source, local_source(model, stop));
  const bool is_on_gpu = !source.place.device.is_cpu();
  DARKROOM_ASSIGN_OR_RETURN(auto painter, open_painter(source, stop, is_on_gpu ? gpu_turn_.get() : nullptr));
  // An engine takes turns itself, when it goes, too.
  DARKROOM_ASSIGN_OR_RETURN(auto engine, PainterEngine::create(std::move(painter), threads_, is_on_gpu ? gpu_turn_ : nullptr, lost_));
  ServedModel served;
  served.facts = engine->facts(model.name);
  served.engine = std::move(engine);
  const PictureSpec usual{.width = served.facts.native_size, .height = served.facts.native_size};
  served.queue_cost = queue_cost_ > 0 ? queue_cost_ : kPicturesInQueue * usual.cost();
  DARKROOM_RETURN_IF_ERROR(warm_up(*served.engine, served.facts, stop));
  return served;
}

Result<int64_t> usual_model_memory(const PainterFlags& flags) {
  constexpr double kShare = 0.75;
  DARKROOM_ASSIGN_OR_RETURN(const PainterSource source, chosen_source(flags));
  int64_t num_bytes = usable_memory_bytes();
  if (!source.place.device.is_cpu()) {
    const auto& gpus = list_gpus();
    DARKROOM_RETURN_IF_ERROR(gpus.status());
    num_bytes =
        static_cast<int64_t>(gpus->at(source.place.device.has_index() ? static_cast<size_t>(source.place.device.index()) : 0).memory_bytes);
  }
  return static_cast<int64_t>(kShare * static_cast<double>(num_bytes));
}

}  // namespace darkroom
