#include "opening/open_painter.h"

#include <map>
#include <string>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/packing.h"
#include "darkroom/nn/stored_size.h"
#include "darkroom/paint/recorded_memory.h"
#include "opening/open_picture_model.h"

namespace darkroom {
namespace {

Status check_completeness(const FoundModel& model) {
  for (const auto& [place, name] :
       {std::pair(&model.parts.unet, "unet"), std::pair(&model.parts.vae, "vae"), std::pair(&model.parts.text_encoder, "text_encoder"),
        std::pair(&model.tokenizer_folder, "tokenizer")}) {
    if (place->empty()) {
      return Status::not_found("painting needs a complete model folder; a part is missing (folder, part):", model.folder, name);
    }
  }
  return Status::ok();
}

Result<TokenizerDialect> choose_dialect(const PainterSource& source, const FoundModel& model) {
  std::string name = source.tokenizer_dialect;
  if (name.empty() && model.checkpoint) {
    name = model.checkpoint->tokenizer_dialect;
  }
  return parse_tokenizer_dialect(name.empty() ? "hf" : name);
}

// Before the networks are placed and packed: then weights have other types, or read as NaN.
std::map<std::string, std::string> fingerprints_of(const UNet2DConditionModel& unet, const AutoencoderKL& vae,
                                                   const ClipTextModel& text_encoder, const ClipTokenizer& tokenizer,
                                                   const nlohmann::json& scheduler_config) {
  return {{"unet", component_fingerprint(unet)},
          {"vae", component_fingerprint(vae)},
          {"text_encoder", component_fingerprint(text_encoder)},
          {"tokenizer", tokenizer.fingerprint()},
          {"scheduler", sha256_hex(scheduler_config.dump())}};
}

// Between two parts, each of which takes seconds where weights are converted.
Status check_going(const std::stop_token& stop) {
  return stop.stop_requested() ? Status::cancelled("stopped while the model was loaded") : Status::ok();
}

// First the type, on the CPU: that takes longer than the copies, for which alone the GPU is asked.
Status place_parts(const PainterSource& source, AutoencoderKL& vae, ClipTextModel& text_encoder, UNet2DConditionModel& unet,
                   const std::stop_token& stop, GpuTurn* gpu_turn) {
  place_network(*text_encoder, torch::kCPU, source.place.type);
  DARKROOM_RETURN_IF_ERROR(check_going(stop));
  place_network(*unet, torch::kCPU, source.place.type);
  DARKROOM_RETURN_IF_ERROR(check_going(stop));
  const auto turn = take_turn(gpu_turn);
  with_memory_for([&] {
    place_network(*vae, source.place.device, torch::kFloat32);
    place_network(*text_encoder, source.place);
    place_network(*unet, source.place);
  });
  return Status::ok();
}

// Fingerprints only where they are asked for: they read every weight.
Result<std::unique_ptr<Painter>> open(const PainterSource& source, std::map<std::string, std::string>* fingerprints,
                                      const std::stop_token& stop = {}, GpuTurn* gpu_turn = nullptr) {
  DARKROOM_ASSIGN_OR_RETURN(const FoundModel model, find_model(source));
  if (model.checkpoint && model.checkpoint->component != "unet") {
    return Status::failed_precondition("this checkpoint holds no U-Net; paint with one of a diffusion run (path, component):", source.model,
                                       model.checkpoint->component);
  }
  DARKROOM_RETURN_IF_ERROR(check_completeness(model));
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json scheduler_config, require_scheduler(model));
  DARKROOM_ASSIGN_OR_RETURN(SchedulerConfig scheduler, SchedulerConfig::from_json(scheduler_config));
  DARKROOM_ASSIGN_OR_RETURN(const TokenizerDialect dialect, choose_dialect(source, model));
  DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<const ClipTokenizer> tokenizer, load_tokenizer(model, dialect));
  DARKROOM_ASSIGN_OR_RETURN(AutoencoderKL vae, load_frozen_vae(model.parts));
  DARKROOM_RETURN_IF_ERROR(check_going(stop));
  DARKROOM_ASSIGN_OR_RETURN(ClipTextModel text_encoder, load_frozen_text_encoder(model.parts));
  DARKROOM_RETURN_IF_ERROR(check_going(stop));
  DARKROOM_ASSIGN_OR_RETURN(UNet2DConditionModel unet, load_unet(model.parts.unet));
  if (fingerprints != nullptr) {
    *fingerprints = fingerprints_of(unet, vae, text_encoder, *tokenizer, scheduler_config);
  }
  DARKROOM_RETURN_IF_ERROR(check_going(stop));
  DARKROOM_RETURN_IF_ERROR(place_parts(source, vae, text_encoder, unet, stop, gpu_turn));
  DARKROOM_RETURN_IF_ERROR(check_going(stop));
  pack_network(*unet);
  return Painter::create(std::move(unet), std::move(vae), std::move(text_encoder), std::move(tokenizer), std::move(scheduler));
}

}  // namespace

Result<std::unique_ptr<Painter>> open_painter(const PainterSource& source, const std::stop_token& stop, GpuTurn* gpu_turn) {
  return open(source, nullptr, stop, gpu_turn);
}

Result<int64_t> painter_bytes(const PainterSource& source) {
  DARKROOM_ASSIGN_OR_RETURN(const FoundModel model, find_model(source));
  DARKROOM_RETURN_IF_ERROR(check_completeness(model));
  DARKROOM_ASSIGN_OR_RETURN(const int64_t unet, count_stored_unet(model.parts.unet));
  DARKROOM_ASSIGN_OR_RETURN(const int64_t text_encoder, count_stored_text_encoder(model.parts.text_encoder));
  DARKROOM_ASSIGN_OR_RETURN(const int64_t vae, count_stored_vae(model.parts.vae));
  return (unet + text_encoder) * static_cast<int64_t>(c10::elementSize(source.place.type)) + vae * static_cast<int64_t>(sizeof(float));
}

Result<PictureModel> open_picture_model(const PainterSource& source) {
  PictureModel model;
  DARKROOM_ASSIGN_OR_RETURN(model.painter, open(source, &model.fingerprints));
  return model;
}

}  // namespace darkroom
