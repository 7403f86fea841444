#include "darkroom/nn/write_model.h"

#include <utility>

#include "darkroom/files/paths.h"
#include "darkroom/files/publication.h"
#include "darkroom/nn/init.h"

namespace darkroom {
namespace {

// `write` makes the folder or file whose path it is given.
Status write_new(FileSystem& files, const std::string& path, const std::function<Status(const std::string&)>& write) {
  const std::string output(without_trailing_slashes(path));
  DARKROOM_ASSIGN_OR_RETURN(const bool is_taken, files.exists(output));
  if (is_taken) {
    return Status::already_exists("the output is there already; remove it or name another (path):", output);
  }
  // A file, too, is written into a folder of its own, which goes with all that is left in it.
  DARKROOM_ASSIGN_OR_RETURN(const auto work, FolderPublication::begin_beside(files, parent_folder(output), file_name(output)));
  const std::string temporary = join_path(work->folder(), file_name(output));
  const Status status = write(temporary);
  if (status.code() == StatusCode::kCancelled) {
    return Status::cancelled("stopped, and nothing is left of the output:", output);
  }
  DARKROOM_RETURN_IF_ERROR(status);
  DARKROOM_RETURN_IF_ERROR(files.rename_no_replace(temporary, output));
  return files.sync_folder(parent_folder(output));
}

template <typename Model>
using SaveNetwork = Status (*)(FileSystem&, const Model&, const std::string&, WeightsDtype, const std::stop_token&);

template <typename Model>
Status write_random_network(FileSystem& files, Model model, uint64_t seed, SaveNetwork<Model> save, const std::string& folder,
                            WeightsDtype dtype, const std::stop_token& stop) {
  initialize_parameters(model, seed, stop);
  return save(files, model, folder, dtype, stop);
}

Status write_side_parts(FileSystem& files, const TokenizerWriter& write_tokenizer, const nlohmann::json& scheduler,
                        const std::string& folder) {
  if (write_tokenizer) {
    DARKROOM_RETURN_IF_ERROR(write_tokenizer(join_path(folder, "tokenizer")));
  }
  return save_model_index(files, folder, scheduler);
}

// Hashes the network only where `parts` says what it must be.
template <typename Model>
Status check_frozen_part(const ModelParts& parts, const std::string& part, const std::string& folder, const Model& model) {
  const auto wanted = parts.frozen_fingerprints.find(part);
  if (wanted == parts.frozen_fingerprints.end() || wanted->second == component_fingerprint(model)) {
    return Status::ok();
  }
  return Status::failed_precondition(
      "the checkpoint was trained with another frozen part; name the right model folder with --frozen (part, its folder):", part, folder);
}

Status copy_networks(FileSystem& files, const ModelParts& parts, WeightsDtype dtype, const std::string& folder,
                     const std::stop_token& stop) {
  if (!parts.unet.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const auto unet, load_unet(parts.unet));
    DARKROOM_RETURN_IF_ERROR(save_unet(files, unet, join_path(folder, "unet"), dtype, stop));
  }
  if (!parts.vae.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const auto vae, load_frozen_vae(parts));
    DARKROOM_RETURN_IF_ERROR(save_vae(files, vae, join_path(folder, "vae"), dtype, stop));
  }
  if (!parts.text_encoder.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const auto text_encoder, load_frozen_text_encoder(parts));
    DARKROOM_RETURN_IF_ERROR(save_text_encoder(files, text_encoder, join_path(folder, "text_encoder"), dtype, stop));
  }
  return Status::ok();
}

// What diffusers takes for a field that a scheduler's config lacks.
nlohmann::json schedule_field(const nlohmann::json& scheduler, const std::string& field) {
  static const nlohmann::json kDefaults = {{"prediction_type", "epsilon"}, {"beta_schedule", "linear"},
                                           {"beta_start", 0.0001},         {"beta_end", 0.02},
                                           {"num_train_timesteps", 1000},  {"rescale_betas_zero_snr", false}};
  static const nlohmann::json kOwnOfLcm = {{"beta_schedule", "scaled_linear"}, {"beta_start", 0.00085}, {"beta_end", 0.012}};
  if (scheduler.contains(field)) {
    return scheduler[field];
  }
  const bool has_own = scheduler.value("_class_name", "") == "LCMScheduler" && kOwnOfLcm.contains(field);
  return (has_own ? kOwnOfLcm : kDefaults)[field];
}

// A file of version 1 says nothing of its schedule, and readers take that of the published ones.
Status check_schedule_of_version_1(const nlohmann::json& scheduler) {
  DARKROOM_ASSIGN_OR_RETURN(const ModelPreset published, find_preset("sd1"));
  for (const char* field :
       {"prediction_type", "beta_schedule", "beta_start", "beta_end", "num_train_timesteps", "rescale_betas_zero_snr"}) {
    const nlohmann::json ours = schedule_field(scheduler, field);
    const nlohmann::json theirs = schedule_field(published.scheduler, field);
    if (ours != theirs) {
      return Status::failed_precondition(
          "a single file of version 1 holds no schedule, and readers would take another for this model's; export a folder instead "
          "(field, read, is):",
          field, theirs.dump(), ours.dump());
    }
  }
  return Status::ok();
}

bool has_scheduler(const ModelParts& parts) { return parts.scheduler.is_object() && !parts.scheduler.empty(); }

}  // namespace

ModelParts parts_of(const ModelFolder& model) {
  return {.unet = model.has_unet ? model.unet_folder() : std::string(),
          .vae = model.has_vae ? model.vae_folder() : std::string(),
          .text_encoder = model.has_text_encoder ? model.text_encoder_folder() : std::string(),
          .scheduler = model.scheduler_config};
}

Result<AutoencoderKL> load_frozen_vae(const ModelParts& parts) {
  DARKROOM_ASSIGN_OR_RETURN(AutoencoderKL vae, load_vae(parts.vae));
  DARKROOM_RETURN_IF_ERROR(check_frozen_part(parts, "vae", parts.vae, vae));
  return vae;
}

Result<ClipTextModel> load_frozen_text_encoder(const ModelParts& parts) {
  DARKROOM_ASSIGN_OR_RETURN(ClipTextModel text_encoder, load_text_encoder(parts.text_encoder));
  DARKROOM_RETURN_IF_ERROR(check_frozen_part(parts, "text_encoder", parts.text_encoder, text_encoder));
  return text_encoder;
}

Status write_random_model(FileSystem& files, const ModelPreset& preset, uint64_t seed, WeightsDtype dtype,
                          const TokenizerWriter& write_tokenizer, const std::string& folder, const std::stop_token& stop) {
  return write_new(files, folder, [&](const std::string& path) {
    DARKROOM_RETURN_IF_ERROR(
        write_random_network(files, UNet2DConditionModel(preset.unet), seed, save_unet, join_path(path, "unet"), dtype, stop));
    DARKROOM_RETURN_IF_ERROR(write_random_network(files, AutoencoderKL(preset.vae), seed, save_vae, join_path(path, "vae"), dtype, stop));
    DARKROOM_RETURN_IF_ERROR(write_random_network(files, ClipTextModel(preset.text_encoder), seed, save_text_encoder,
                                                  join_path(path, "text_encoder"), dtype, stop));
    return write_side_parts(files, write_tokenizer, preset.scheduler, path);
  });
}

Status export_model_folder(FileSystem& files, const ModelParts& parts, WeightsDtype dtype, const TokenizerWriter& write_tokenizer,
                           const std::string& folder, const std::stop_token& stop) {
  if (parts.unet.empty() && parts.vae.empty() && parts.text_encoder.empty()) {
    return Status::not_found("export a model: it has neither U-Net nor VAE nor text encoder, nothing to write to:", folder);
  }
  return write_new(files, folder, [&](const std::string& path) {
    DARKROOM_RETURN_IF_ERROR(copy_networks(files, parts, dtype, path, stop));
    if (has_scheduler(parts)) {
      return write_side_parts(files, write_tokenizer, parts.scheduler, path);
    }
    DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, find_preset("sd2-base"));
    return write_side_parts(files, write_tokenizer, preset.scheduler, path);
  });
}

Status export_single_file(FileSystem& files, const ModelParts& parts, WeightsDtype dtype, const std::string& path,
                          const std::stop_token& stop) {
  for (const auto& [place, name] :
       {std::pair(&parts.unet, "unet"), std::pair(&parts.vae, "vae"), std::pair(&parts.text_encoder, "text_encoder")}) {
    if (place->empty()) {
      return Status::failed_precondition("a single file holds U-Net, VAE and text encoder, but the model lacks one (part, file):", name,
                                         path);
    }
  }
  return write_new(files, path, [&](const std::string& temporary) {
    DARKROOM_ASSIGN_OR_RETURN(const auto unet, load_unet(parts.unet));
    DARKROOM_ASSIGN_OR_RETURN(const auto vae, load_frozen_vae(parts));
    DARKROOM_ASSIGN_OR_RETURN(const auto text_encoder, load_frozen_text_encoder(parts));
    if (text_encoder->config().hidden_act == ClipActivation::kQuickGelu && has_scheduler(parts)) {
      DARKROOM_RETURN_IF_ERROR(check_schedule_of_version_1(parts.scheduler));
    }
    return save_single_file(files, unet, vae, text_encoder, temporary, dtype, stop);
  });
}

}  // namespace darkroom
