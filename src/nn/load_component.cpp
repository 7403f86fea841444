#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "darkroom/files/paths.h"
#include "darkroom/nn/config_file.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/stored_size.h"
#include "least_size.h"
#include "load_weights.h"
#include "original_checkpoint.h"
#include "weight_files.h"

namespace darkroom {
namespace {

using nlohmann::json;

bool none_is_foreign(const std::string& /*stored*/) { return false; }

WeightNaming unet_naming() {
  return {.places = [](const std::string& name) { return std::vector<StoredPlace>{{.tensor = name}}; }, .is_foreign = none_is_foreign};
}

// VAE files from before diffusers 0.18 name the attention layers otherwise.
std::string old_vae_name(std::string name) {
  static const std::map<std::string, std::string> kOldNames = {
      {".to_q.", ".query."}, {".to_k.", ".key."}, {".to_v.", ".value."}, {".to_out.0.", ".proj_attn."}};
  for (const auto& [part, old_part] : kOldNames) {
    if (const auto place = name.find(part); place != std::string::npos) {
      return name.replace(place, part.size(), old_part);
    }
  }
  return name;
}

WeightNaming vae_naming() {
  return {.places =
              [](const std::string& name) {
                return std::vector<StoredPlace>{{.tensor = name}, {.tensor = old_vae_name(name)}};
              },
          .is_foreign = none_is_foreign};
}

// transformers 5 writes the names without the prefix that all published files have; old files store the position numbers.
WeightNaming text_naming() {
  return {.places =
              [](const std::string& name) {
                constexpr std::string_view kPrefix = "text_model.";
                const std::string bare = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : name;
                return std::vector<StoredPlace>{{.tensor = name}, {.tensor = bare}};
              },
          .is_foreign = [](const std::string& stored) { return stored.ends_with("embeddings.position_ids"); }};
}

template <typename Model, typename Config>
Result<Model> load_component(const std::string& folder, const std::string& stem, const WeightNaming& naming) {
  const std::string config_path = join_path(folder, "config.json");
  DARKROOM_ASSIGN_OR_RETURN(const auto config_json, read_config_file(local_files(), config_path));
  auto config = Config::from_json(config_json);
  if (!config.is_ok()) {
    return config.status().with_context(config_path);
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto weights, WeightFiles::open(folder, stem));
  DARKROOM_RETURN_IF_ERROR(check_fits(least_size(*config), weights, folder));
  Model model(std::move(config).value());
  DARKROOM_RETURN_IF_ERROR(load_weights(*model, weights, naming, folder));
  return model;
}

// Where a component's path leads into a single file (FILE/unet): that file.
Result<std::optional<std::string>> single_file_of(const std::string& component_folder) {
  const std::string parent = parent_folder(component_folder);
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, local_files().exists(parent));
  if (!is_there) {
    return std::optional<std::string>();
  }
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, local_files().stat(parent));
  return info.is_folder ? std::nullopt : std::optional(parent);
}

template <typename Model>
Result<Model> fill_from_original(Model model, const WeightFiles& weights, const WeightNaming& naming, const std::string& path) {
  DARKROOM_RETURN_IF_ERROR(load_weights(*model, weights, naming, path));
  return model;
}

/// Where the weights of a component lie, and which of them are its own.
struct StoredComponent {
  WeightFiles weights;
  WeightNaming naming;
};

WeightNaming original_text_names(const ClipTextConfig& config, const WeightFiles& weights) {
  return original_text_naming(config, has_prefix(weights, kOriginalOpenClipPrefix));
}

Result<int64_t> count_elements(const Result<StoredComponent>& component) {
  DARKROOM_RETURN_IF_ERROR(component.status());
  return component->weights.count_elements([&](const std::string& name) { return !component->naming.is_foreign(name); });
}

/// `read_config` and `name_all` are of the component in a single file.
template <typename ReadConfig, typename NameAll>
Result<StoredComponent> find_stored(const std::string& folder, const std::string& stem, const WeightNaming& naming,
                                    const ReadConfig& read_config, const NameAll& name_all) {
  DARKROOM_ASSIGN_OR_RETURN(const auto single_file, single_file_of(folder));
  if (!single_file) {
    DARKROOM_ASSIGN_OR_RETURN(auto weights, WeightFiles::open(folder, stem));
    return StoredComponent{.weights = std::move(weights), .naming = naming};
  }
  DARKROOM_ASSIGN_OR_RETURN(auto weights, WeightFiles::open_file(*single_file));
  DARKROOM_ASSIGN_OR_RETURN(const auto config, read_config(weights));
  WeightNaming names = name_all(config, weights);
  return StoredComponent{.weights = std::move(weights), .naming = std::move(names)};
}

Result<UNet2DConditionModel> load_original_unet(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const auto weights, WeightFiles::open_file(path));
  DARKROOM_ASSIGN_OR_RETURN(const auto config, original_unet_config(weights));
  DARKROOM_RETURN_IF_ERROR(check_fits(least_size(config), weights, path));
  return fill_from_original(UNet2DConditionModel(config), weights, original_unet_naming(config), path);
}

Result<AutoencoderKL> load_original_vae(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const auto weights, WeightFiles::open_file(path));
  DARKROOM_ASSIGN_OR_RETURN(const auto config, original_vae_config(weights));
  DARKROOM_RETURN_IF_ERROR(check_fits(least_size(config), weights, path));
  return fill_from_original(AutoencoderKL(config), weights, original_vae_naming(config), path);
}

Result<ClipTextModel> load_original_text_encoder(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const auto weights, WeightFiles::open_file(path));
  DARKROOM_ASSIGN_OR_RETURN(const auto config, original_text_config(weights));
  DARKROOM_RETURN_IF_ERROR(check_fits(least_size(config), weights, path));
  return fill_from_original(ClipTextModel(config), weights, original_text_names(config, weights), path);
}

}  // namespace

Result<UNet2DConditionModel> load_unet(const std::string& component_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const auto unet, load_any_unet(component_folder));
  if (unet->config().added_embedding) {
    return Status::failed_precondition(
        "this is a U-Net of SDXL, which can be checked and run by `models` but neither painted with nor trained here (folder, "
        "addition_embed_type):",
        component_folder, "text_time");
  }
  return unet;
}

Result<UNet2DConditionModel> load_any_unet(const std::string& component_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const auto single_file, single_file_of(component_folder));
  return single_file ? load_original_unet(*single_file)
                     : load_component<UNet2DConditionModel, UNetConfig>(component_folder, kDiffusersStem, unet_naming());
}

Result<AutoencoderKL> load_vae(const std::string& component_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const auto single_file, single_file_of(component_folder));
  return single_file ? load_original_vae(*single_file)
                     : load_component<AutoencoderKL, VaeConfig>(component_folder, kDiffusersStem, vae_naming());
}

Result<ClipTextModel> load_text_encoder(const std::string& component_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const auto single_file, single_file_of(component_folder));
  return single_file ? load_original_text_encoder(*single_file)
                     : load_component<ClipTextModel, ClipTextConfig>(component_folder, kTransformersStem, text_naming());
}

Result<int64_t> count_stored_unet(const std::string& component_folder) {
  const auto names = [](const UNetConfig& config, const WeightFiles&) { return original_unet_naming(config); };
  return count_elements(find_stored(component_folder, kDiffusersStem, unet_naming(), original_unet_config, names));
}

Result<int64_t> count_stored_vae(const std::string& component_folder) {
  const auto names = [](const VaeConfig& config, const WeightFiles&) { return original_vae_naming(config); };
  return count_elements(find_stored(component_folder, kDiffusersStem, vae_naming(), original_vae_config, names));
}

Result<int64_t> count_stored_text_encoder(const std::string& component_folder) {
  return count_elements(find_stored(component_folder, kTransformersStem, text_naming(), original_text_config, original_text_names));
}

}  // namespace darkroom
