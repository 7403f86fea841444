#include "open_painter.h"

#include <optional>
#include <utility>

#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/train/checkpoint.h"

namespace darkroom {
namespace {

// Where each part lies, and what the checkpoint says that it must be.
struct Places {
  std::string unet_folder;
  ModelFolder frozen;
  std::optional<CheckpointRecord> checkpoint;
};

Status check_model_folder(const ModelFolder& folder, bool needs_unet) {
  for (const auto& [has_part, name] : {std::pair(folder.has_unet || !needs_unet, "unet"), std::pair(folder.has_vae, "vae"),
                                       std::pair(folder.has_text_encoder, "text_encoder"), std::pair(folder.has_tokenizer, "tokenizer"),
                                       std::pair(!folder.scheduler_config.is_null(), "scheduler")}) {
    if (!has_part) {
      return Status::not_found("painting needs a complete model folder; a part is missing (folder, part):", folder.path, name);
    }
  }
  return Status::ok();
}

Result<Places> find_checkpoint_parts(const PainterSource& source) {
  Places places;
  DARKROOM_ASSIGN_OR_RETURN(CheckpointRecord record, read_checkpoint(local_files(), source.model));
  if (record.component != "unet") {
    return Status::failed_precondition("this checkpoint holds no U-Net; paint with one of a diffusion run (path, component):", source.model,
                                       record.component);
  }
  places.unet_folder = join_path(source.model, source.weights);
  DARKROOM_ASSIGN_OR_RETURN(places.frozen, open_model_folder(source.frozen.empty() ? record.frozen_path : source.frozen));
  DARKROOM_RETURN_IF_ERROR(check_model_folder(places.frozen, false));
  places.checkpoint = std::move(record);
  return places;
}

Result<Places> find_parts(const PainterSource& source) {
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, local_files().stat(source.model));  // A single file holds no other file.
  DARKROOM_ASSIGN_OR_RETURN(const bool is_checkpoint,
                            info.is_folder ? local_files().exists(join_path(source.model, "state.json")) : Result<bool>(false));
  if (is_checkpoint) {
    return find_checkpoint_parts(source);
  }
  if (!source.frozen.empty()) {
    return Status::invalid_argument("--frozen belongs to a checkpoint, but --model is a model folder:", source.model);
  }
  Places places;
  DARKROOM_ASSIGN_OR_RETURN(places.frozen, open_model_folder(source.model));
  DARKROOM_RETURN_IF_ERROR(check_model_folder(places.frozen, true));
  places.unet_folder = places.frozen.unet_folder();
  return places;
}

// The U-Net learned with exactly these parts; with others it would paint noise.
Status check_fingerprint(const Places& places, const std::string& part, const std::string& fingerprint) {
  if (!places.checkpoint) {
    return Status::ok();
  }
  const auto wanted = places.checkpoint->frozen_fingerprints.find(part);
  if (wanted != places.checkpoint->frozen_fingerprints.end() && wanted->second != fingerprint) {
    return Status::failed_precondition(
        "the checkpoint was trained with another frozen part; name the right folder with --frozen (part, folder):", part,
        places.frozen.path);
  }
  return Status::ok();
}

Result<TokenizerDialect> choose_dialect(const PainterSource& source, const Places& places) {
  std::string name = source.tokenizer_dialect;
  if (name.empty() && places.checkpoint) {
    name = places.checkpoint->tokenizer_dialect;
  }
  return parse_tokenizer_dialect(name.empty() ? "hf" : name);
}

}  // namespace

Result<std::unique_ptr<Painter>> open_painter(const PainterSource& source) {
  if (source.weights != "ema" && source.weights != "unet") {
    return Status::invalid_argument("--weights must be ema or unet, got:", source.weights);
  }
  DARKROOM_ASSIGN_OR_RETURN(const Places places, find_parts(source));
  DARKROOM_ASSIGN_OR_RETURN(SchedulerConfig scheduler, SchedulerConfig::from_json(places.frozen.scheduler_config));
  DARKROOM_ASSIGN_OR_RETURN(const TokenizerDialect dialect, choose_dialect(source, places));
  DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<const ClipTokenizer> tokenizer,
                            ClipTokenizer::load(local_files(), places.frozen.tokenizer_folder(), dialect));
  DARKROOM_ASSIGN_OR_RETURN(AutoencoderKL vae, load_vae(places.frozen.vae_folder()));
  DARKROOM_ASSIGN_OR_RETURN(ClipTextModel text_encoder, load_text_encoder(places.frozen.text_encoder_folder()));
  if (places.checkpoint) {
    DARKROOM_RETURN_IF_ERROR(check_fingerprint(places, "vae", component_fingerprint(vae)));
    DARKROOM_RETURN_IF_ERROR(check_fingerprint(places, "text_encoder", component_fingerprint(text_encoder)));
  }
  DARKROOM_ASSIGN_OR_RETURN(UNet2DConditionModel unet, load_unet(places.unet_folder));
  return Painter::create(std::move(unet), std::move(vae), std::move(text_encoder), std::move(tokenizer), std::move(scheduler));
}

}  // namespace darkroom
