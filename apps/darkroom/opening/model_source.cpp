#include "opening/model_source.h"

#include <utility>

#include "darkroom/files/file_system.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/checkpoint_folder.h"
#include "darkroom/nn/config_file.h"

namespace darkroom {
namespace {

// What paints, trains and is exported. `models check` and `models forward` read more.
Result<FoundModel> find_usable_folder(const std::string& path, const ModelSource& source) {
  DARKROOM_ASSIGN_OR_RETURN(const FoundModel found, find_model_folder(path, source.shipped_tokenizer));
  DARKROOM_ASSIGN_OR_RETURN(const ModelFolder folder, open_model_folder(found.folder));
  if (folder.has_text_encoder_2) {
    return Status::failed_precondition(
        "this is a model of SDXL, which `models check` and `models forward` read, and nothing else (folder):", path);
  }
  return found;
}

// Checks what there is of it.
Result<CheckpointRecord> read_used_part(const ModelSource& source) {
  DARKROOM_ASSIGN_OR_RETURN(RecordedCheckpoint checkpoint, read_checkpoint_record(local_files(), source.model));
  const std::string part = (source.weights == "ema" ? "ema" : checkpoint.record.component) + "/";
  for (const auto& [name, digest] : checkpoint.digests) {
    DARKROOM_RETURN_IF_ERROR(name.starts_with(part) ? verify_checkpoint_file(local_files(), source.model, name, digest) : Status::ok());
  }
  return std::move(checkpoint.record);
}

Result<FoundModel> find_checkpoint(const ModelSource& source) {
  FoundModel found;
  DARKROOM_ASSIGN_OR_RETURN(CheckpointRecord record,
                            source.has_used_part_only ? read_used_part(source) : read_checkpoint(local_files(), source.model));
  const std::string& frozen = source.frozen.empty() ? record.frozen_path : source.frozen;
  if (!frozen.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(found, find_usable_folder(frozen, source));
  }
  const std::string trained = join_path(source.model, source.weights == "ema" ? "ema" : record.component);
  (record.component == "vae" ? found.parts.vae : found.parts.unet) = trained;
  found.parts.frozen_fingerprints = record.frozen_fingerprints;
  found.checkpoint = std::move(record);
  return found;
}

Status choose_prediction_type(const ModelSource& source, nlohmann::json& scheduler) {
  const std::string& type = source.prediction_type;
  const bool says_its_own = scheduler.is_object() && !scheduler.empty();
  if (type.empty() || (source.is_one_of_several && says_its_own)) {
    return Status::ok();
  }
  if (type != "epsilon" && type != "v_prediction") {
    return Status::invalid_argument("--prediction-type must be epsilon or v_prediction, got:", type);
  }
  if (!says_its_own) {
    DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, find_preset(type == "epsilon" ? "sd2-base" : "sd2-768"));
    scheduler = preset.scheduler;
  }
  scheduler["prediction_type"] = type;
  return Status::ok();
}

// The tokenizer of a folder, but padding with its end token, as version 1's does.
Result<std::unique_ptr<ClipTokenizer>> load_padding_with_end(const std::string& folder, TokenizerDialect dialect) {
  MemoryFileSystem files;
  for (const char* name : {"vocab.json", "merges.txt"}) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string bytes, read_file(local_files(), join_path(folder, name)));
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, join_path("tokenizer", name), bytes));
  }
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    DARKROOM_ASSIGN_OR_RETURN(nlohmann::json settings, read_config_file(local_files(), join_path(folder, name)));
    settings["pad_token"] = settings.value("eos_token", nlohmann::json("<|endoftext|>"));
    DARKROOM_RETURN_IF_ERROR(write_file_atomic(files, join_path("tokenizer", name), settings.dump()));
  }
  return ClipTokenizer::load(files, "tokenizer", dialect);
}

}  // namespace

const std::vector<std::pair<std::string, std::string>>& prediction_choices() {
  static const std::vector<std::pair<std::string, std::string>> choices = {
      {"auto", ""}, {"epsilon", "epsilon"}, {"v_prediction", "v_prediction"}};
  return choices;
}

Result<FoundModel> find_model_folder(const std::string& path, const std::string& shipped_tokenizer) {
  FoundModel found;
  found.folder = without_trailing_slashes(path);
  DARKROOM_ASSIGN_OR_RETURN(const ModelFolder folder, open_model_folder(found.folder));
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, local_files().stat(found.folder));
  found.parts = parts_of(folder);
  found.is_single_file = !info.is_folder;
  found.has_own_tokenizer = folder.has_tokenizer;
  if (folder.has_tokenizer) {
    found.tokenizer_folder = folder.tokenizer_folder();
  } else if (found.is_single_file) {
    found.tokenizer_folder = shipped_tokenizer;
  }
  if (found.is_single_file && folder.has_text_encoder) {
    DARKROOM_ASSIGN_OR_RETURN(const ClipTextModel text_encoder, load_text_encoder(found.parts.text_encoder));
    found.is_version_1 = text_encoder->config().hidden_act == ClipActivation::kQuickGelu;
  }
  return found;
}

Result<bool> is_local_checkpoint(const std::string& model) {
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, local_files().stat(model));  // A single file holds no other file.
  return info.is_folder ? local_files().exists(join_path(model, kCheckpointRecordFile)) : Result<bool>(false);
}

Result<FoundModel> find_model(const ModelSource& source) {
  if (source.weights != "ema" && source.weights != "unet") {
    return Status::invalid_argument("--weights must be ema or unet, got:", source.weights);
  }
  DARKROOM_ASSIGN_OR_RETURN(const bool is_checkpoint, is_local_checkpoint(source.model));
  FoundModel found;
  if (is_checkpoint) {
    DARKROOM_ASSIGN_OR_RETURN(found, find_checkpoint(source));
  } else if (!source.frozen.empty() && !source.is_one_of_several) {
    return Status::invalid_argument("--frozen belongs to a checkpoint, but the model is a folder or file:", source.model);
  } else {
    DARKROOM_ASSIGN_OR_RETURN(found, find_usable_folder(source.model, source));
  }
  DARKROOM_RETURN_IF_ERROR(choose_prediction_type(source, found.parts.scheduler));
  return found;
}

Result<nlohmann::json> require_scheduler(const FoundModel& model) {
  if (model.parts.scheduler.is_object() && !model.parts.scheduler.empty()) {
    return model.parts.scheduler;
  }
  if (model.is_single_file) {
    return Status::failed_precondition(
        "a single file of version 2 does not say what its U-Net predicts; give --prediction-type epsilon (models made for 512 pixels) or "
        "v_prediction (768 pixels), or lay scheduler/scheduler_config.json beside it (file):",
        model.folder);
  }
  return Status::not_found("the model folder has no scheduler/scheduler_config.json (folder):", model.folder);
}

Result<std::unique_ptr<ClipTokenizer>> load_tokenizer(const FoundModel& model, TokenizerDialect dialect) {
  if (model.tokenizer_folder.empty()) {
    return Status::not_found("the model has no tokenizer (folder):", model.folder);
  }
  if (!model.has_own_tokenizer && model.is_version_1) {
    return load_padding_with_end(model.tokenizer_folder, dialect);
  }
  return ClipTokenizer::load(local_files(), model.tokenizer_folder, dialect);
}

TokenizerWriter tokenizer_writer(const FoundModel& model) {
  if (model.tokenizer_folder.empty()) {
    return {};
  }
  return [model](const std::string& folder) -> Status {
    DARKROOM_ASSIGN_OR_RETURN(const auto tokenizer, load_tokenizer(model, TokenizerDialect::kHuggingFace));
    return tokenizer->save(local_files(), folder);
  };
}

}  // namespace darkroom
