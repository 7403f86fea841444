#include "darkroom/nn/model_folder.h"

#include <map>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/component_config.h"
#include "darkroom/nn/config_file.h"
#include "darkroom/nn/presets.h"
#include "darkroom/tensor/safetensors.h"
#include "diffusers_version.h"
#include "original_checkpoint.h"
#include "weight_files.h"
#include "write_weights.h"

namespace darkroom {
namespace {

using nlohmann::json;

template <typename Model>
Status write_config(FileSystem& files, const Model& model, const std::string& folder) {
  return write_file_atomic(files, join_path(folder, "config.json"), model->config().to_json().dump(2) + "\n");
}

template <typename Model>
Status save_component(FileSystem& files, const Model& model, const std::string& folder, const std::string& stem, WeightsDtype dtype,
                      const std::stop_token& stop) {
  DARKROOM_RETURN_IF_ERROR(files.create_folders(folder));
  const torch::Dtype stored = dtype == WeightsDtype::kFloat16 ? torch::kFloat16 : torch::kFloat32;
  const auto parameters = model->named_parameters();
  std::vector<TensorSpec> specs;
  for (const auto& item : parameters) {
    specs.push_back({item.key(), stored, item.value().sizes().vec()});
  }
  const auto own = [&](const std::string& name) { return parameters[name].detach(); };
  DARKROOM_RETURN_IF_ERROR(write_weights(files, join_path(folder, stem + ".safetensors"), std::move(specs), own, stop));
  return write_config(files, model, folder);
}

// The fields that say which program wrote the config, not what it computes.
json canonical_config(json config) {
  for (const char* key : {"_diffusers_version", "transformers_version"}) {
    config.erase(key);
  }
  return config;
}

std::string fingerprint(const torch::nn::Module& module, const json& config, const std::stop_token& stop) {
  Sha256 hash;
  hash.update("darkroom component 1\n" + canonical_config(config).dump() + "\n");
  std::map<std::string, torch::Tensor> by_name;
  for (const auto& item : module.named_parameters()) {
    by_name[item.key()] = item.value().detach().cpu().contiguous();
  }
  for (const auto& [name, tensor] : by_name) {
    if (stop.stop_requested()) {
      return {};
    }
    hash.update(name + " " + safetensors_dtype_name(tensor.scalar_type()) + " " + shape_json(tensor.sizes()) + "\n");
    hash.update(std::span(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()));
  }
  return hash.finish_hex();
}

// An original checkpoint says which parts it holds by its names. Version 1 always predicts epsilon; version 2 exists both ways, so
// its schedule has to lie beside the file.
Status look_into_single_file(ModelFolder& folder) {
  DARKROOM_ASSIGN_OR_RETURN(const auto weights, WeightFiles::open_file(folder.path));
  folder.has_unet = has_prefix(weights, kOriginalUNetPrefix);
  folder.has_vae = has_prefix(weights, kOriginalVaePrefix);
  folder.has_text_encoder = has_prefix(weights, kOriginalTextPrefix);
  if (folder.has_text_encoder && !has_prefix(weights, kOriginalOpenClipPrefix)) {
    DARKROOM_ASSIGN_OR_RETURN(const ModelPreset preset, find_preset("sd1"));
    folder.scheduler_config = preset.scheduler;
  }
  return Status::ok();
}

}  // namespace

Status save_unet(FileSystem& files, const UNet2DConditionModel& unet, const std::string& component_folder, WeightsDtype dtype,
                 const std::stop_token& stop) {
  return save_component(files, unet, component_folder, kDiffusersStem, dtype, stop);
}

Status save_vae(FileSystem& files, const AutoencoderKL& vae, const std::string& component_folder, WeightsDtype dtype,
                const std::stop_token& stop) {
  return save_component(files, vae, component_folder, kDiffusersStem, dtype, stop);
}

Status save_config(FileSystem& files, const UNet2DConditionModel& unet, const std::string& component_folder) {
  return write_config(files, unet, component_folder);
}

Status save_config(FileSystem& files, const AutoencoderKL& vae, const std::string& component_folder) {
  return write_config(files, vae, component_folder);
}

Status save_text_encoder(FileSystem& files, const ClipTextModel& text_encoder, const std::string& component_folder, WeightsDtype dtype,
                         const std::stop_token& stop) {
  return save_component(files, text_encoder, component_folder, kTransformersStem, dtype, stop);
}

std::string component_fingerprint(const UNet2DConditionModel& unet, const std::stop_token& stop) {
  return fingerprint(*unet, unet->config().to_json(), stop);
}

std::string component_fingerprint(const AutoencoderKL& vae, const std::stop_token& stop) {
  return fingerprint(*vae, vae->config().to_json(), stop);
}

std::string component_fingerprint(const ClipTextModel& text_encoder, const std::stop_token& stop) {
  return fingerprint(*text_encoder, text_encoder->config().to_json(), stop);
}

namespace {

// What a scheduler's config says in texts is read in many places.
Result<json> read_scheduler_config(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(json config, read_config_file(local_files(), path));
  for (const char* key : {"_class_name", "prediction_type"}) {
    const auto field = config.find(key);
    if (field != config.end() && !field->is_string()) {
      return Status::corrupt_data("the scheduler's config has a field that is no text (path, field, value):", path, key, field->dump());
    }
  }
  return config;
}

}  // namespace

Result<ModelFolder> open_model_folder(const std::string& path) {
  FileSystem& files = local_files();
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, files.stat(path));
  ModelFolder folder;
  folder.path = path;
  folder.side_path = info.is_folder ? path : parent_folder(path);
  if (info.is_folder) {
    DARKROOM_ASSIGN_OR_RETURN(folder.has_unet, files.exists(join_path(folder.unet_folder(), "config.json")));
    DARKROOM_ASSIGN_OR_RETURN(folder.has_vae, files.exists(join_path(folder.vae_folder(), "config.json")));
    DARKROOM_ASSIGN_OR_RETURN(folder.has_text_encoder, files.exists(join_path(folder.text_encoder_folder(), "config.json")));
    DARKROOM_ASSIGN_OR_RETURN(folder.has_text_encoder_2, files.exists(join_path(folder.text_encoder_2_folder(), "config.json")));
  } else {
    DARKROOM_RETURN_IF_ERROR(look_into_single_file(folder));
  }
  DARKROOM_ASSIGN_OR_RETURN(folder.has_tokenizer, files.exists(folder.tokenizer_folder()));
  const std::string scheduler_path = join_path(folder.side_path, "scheduler/scheduler_config.json");
  DARKROOM_ASSIGN_OR_RETURN(const bool has_scheduler, files.exists(scheduler_path));
  if (has_scheduler) {
    DARKROOM_ASSIGN_OR_RETURN(folder.scheduler_config, read_scheduler_config(scheduler_path));
  }
  if (!folder.has_unet && !folder.has_vae && !folder.has_text_encoder) {
    return Status::not_found(
        "open a model: no part in it; want a folder with unet/, vae/ or text_encoder/ and a config.json in each, or an original "
        "checkpoint as one safetensors file (path):",
        path);
  }
  return folder;
}

Status save_model_index(FileSystem& files, const std::string& model_folder, const json& scheduler_config) {
  const json absent = {nullptr, nullptr};
  json index = {{"_class_name", "StableDiffusionPipeline"},
                {"_diffusers_version", kDiffusersVersion},
                {"feature_extractor", absent},
                {"image_encoder", absent},
                {"requires_safety_checker", false},
                {"safety_checker", absent},
                {"scheduler", {"diffusers", scheduler_config.value("_class_name", "PNDMScheduler")}}};
  const std::map<std::string, json> parts = {{"text_encoder", {"transformers", "CLIPTextModel"}},
                                             {"tokenizer", {"transformers", "CLIPTokenizer"}},
                                             {"unet", {"diffusers", "UNet2DConditionModel"}},
                                             {"vae", {"diffusers", "AutoencoderKL"}}};
  for (const auto& [part, owner] : parts) {
    DARKROOM_ASSIGN_OR_RETURN(const bool is_there, files.exists(join_path(model_folder, part)));
    index[part] = is_there ? owner : absent;
  }
  DARKROOM_RETURN_IF_ERROR(
      write_file_atomic(files, join_path(model_folder, "scheduler/scheduler_config.json"), scheduler_config.dump(2) + "\n"));
  return write_file_atomic(files, join_path(model_folder, "model_index.json"), index.dump(2) + "\n");
}

int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const auto& parameter : module.parameters()) {
    count += parameter.numel();
  }
  return count;
}

}  // namespace darkroom
