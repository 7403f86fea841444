#include "open_painter.h"

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/sha256.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/packing.h"
#include "darkroom/tensor/safetensors.h"
#include "open_picture_model.h"

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

// The safetensors of a component's folder; variants in float16 where there is nothing else.
std::vector<std::string> weight_files(const std::string& folder) {
  std::vector<std::string> files;
  std::vector<std::string> variants;
  std::error_code failure;
  for (const auto& entry : std::filesystem::directory_iterator(folder, failure)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors")) {
      (name.find(".fp16.") == std::string::npos ? files : variants).push_back(entry.path().string());
    }
  }
  return files.empty() ? variants : files;
}

Result<int64_t> count_elements(const std::vector<std::string>& paths) {
  int64_t num_elements = 0;
  for (const std::string& path : paths) {
    DARKROOM_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(path));
    for (const std::string& name : file->names()) {
      DARKROOM_ASSIGN_OR_RETURN(const TensorSpec spec, file->spec(name));
      num_elements += c10::multiply_integers(spec.shape);
    }
  }
  return num_elements;
}

// Fingerprints only where they are asked for: they read every weight.
Result<std::unique_ptr<Painter>> open(const PainterSource& source, std::map<std::string, std::string>* fingerprints) {
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
  DARKROOM_ASSIGN_OR_RETURN(ClipTextModel text_encoder, load_frozen_text_encoder(model.parts));
  DARKROOM_ASSIGN_OR_RETURN(UNet2DConditionModel unet, load_unet(model.parts.unet));
  if (fingerprints != nullptr) {
    *fingerprints = fingerprints_of(unet, vae, text_encoder, *tokenizer, scheduler_config);
  }
  place_network(*vae, source.place.device, torch::kFloat32);
  place_network(*text_encoder, source.place);
  place_network(*unet, source.place);
  pack_network(*unet);
  return Painter::create(std::move(unet), std::move(vae), std::move(text_encoder), std::move(tokenizer), std::move(scheduler));
}

}  // namespace

Result<std::unique_ptr<Painter>> open_painter(const PainterSource& source) { return open(source, nullptr); }

Result<int64_t> painter_bytes(const PainterSource& source) {
  DARKROOM_ASSIGN_OR_RETURN(const FoundModel model, find_model(source));
  DARKROOM_RETURN_IF_ERROR(check_completeness(model));
  const auto placed = static_cast<int64_t>(c10::elementSize(source.place.type));
  int64_t num_bytes = 0;
  if (model.is_single_file) {
    DARKROOM_ASSIGN_OR_RETURN(num_bytes, count_elements({model.folder}));
    return num_bytes * placed;
  }
  for (const auto& [folder, size] : {std::pair(&model.parts.unet, placed), std::pair(&model.parts.text_encoder, placed),
                                     std::pair(&model.parts.vae, static_cast<int64_t>(sizeof(float)))}) {
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_elements, count_elements(weight_files(*folder)));
    num_bytes += num_elements * size;
  }
  return num_bytes;
}

Result<PictureModel> open_picture_model(const PainterSource& source) {
  PictureModel model;
  DARKROOM_ASSIGN_OR_RETURN(model.painter, open(source, &model.fingerprints));
  return model;
}

}  // namespace darkroom
