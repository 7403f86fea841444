#include "inspect_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "cell_text.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/config_file.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/tensor/safetensors.h"
#include "weights_study.h"

namespace darkroom {
namespace {

constexpr size_t kMaxTensorsListed = 40;

std::string text_field(const nlohmann::json& config, const char* name) {
  const auto value = config.find(name);
  return value != config.end() && value->is_string() ? value->get<std::string>() : std::string();
}

// diffusers names the class, transformers the architecture.
std::string class_of(const nlohmann::json& config) {
  if (const std::string name = text_field(config, "_class_name"); !name.empty()) {
    return name;
  }
  const auto architectures = config.find("architectures");
  const bool has_one =
      architectures != config.end() && architectures->is_array() && !architectures->empty() && architectures->at(0).is_string();
  return has_one ? architectures->at(0).get<std::string>() : "unknown class";
}

// Loads the component to see whether its weights fit its config.
Result<std::string> loaded_fingerprint(const std::string& class_name, const std::string& folder) {
  if (class_name == "UNet2DConditionModel") {
    DARKROOM_ASSIGN_OR_RETURN(const UNet2DConditionModel unet, load_any_unet(folder));
    return component_fingerprint(unet);
  }
  if (class_name == "AutoencoderKL") {
    DARKROOM_ASSIGN_OR_RETURN(const AutoencoderKL vae, load_vae(folder));
    return component_fingerprint(vae);
  }
  if (class_name == "CLIPTextModel" || class_name == "CLIPTextModelWithProjection") {
    DARKROOM_ASSIGN_OR_RETURN(const ClipTextModel text_encoder, load_text_encoder(folder));
    return component_fingerprint(text_encoder);
  }
  return std::string();
}

struct Component {
  std::string class_name;
  WeightsFacts weights;
  std::string fingerprint;  // With --verify.
  nlohmann::json config;
};

Result<Component> study_component(FileSystem& files, const std::string& folder, const std::stop_token& stop, DamageLog& damage) {
  Component component;
  DARKROOM_ASSIGN_OR_RETURN(component.config, read_config_file(files, join_path(folder, "config.json")));
  component.class_name = class_of(component.config);
  DARKROOM_ASSIGN_OR_RETURN(component.weights, read_weights_facts(files, folder));
  if (damage.is_on()) {
    DARKROOM_RETURN_IF_ERROR(check_weights(component.weights.paths, stop, damage));
    DARKROOM_ASSIGN_OR_RETURN(component.fingerprint, loaded_fingerprint(component.class_name, folder));
  }
  return component;
}

nlohmann::json summary_of(const Component& component) {
  return {{"class", component.class_name},
          {"parameters", component.weights.num_parameters},
          {"tensors", component.weights.num_tensors},
          {"dtypes", component.weights.dtypes},
          {"bytes", component.weights.num_bytes},
          {"fingerprint", component.fingerprint.empty() ? nlohmann::json() : nlohmann::json(component.fingerprint)}};
}

ReportTable config_table(const std::string& title, const nlohmann::json& config) {
  ReportTable table{.title = title, .head = {}, .rows = {}};
  for (const auto& [name, value] : config.items()) {
    table.rows.push_back({clipped_text(name, 48), clipped_text(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 96)});
  }
  return table;
}

}  // namespace

Status inspect_model_folder(FileSystem& files, const std::string& path, const std::stop_token& stop, InspectReport& report,
                            DamageLog& damage) {
  report.kind = "model folder";
  ReportTable components{.title = "components", .head = {"folder", "class", "weights"}, .rows = {}};
  ReportTable fingerprints{.title = "fingerprints", .head = {}, .rows = {}};
  report.summary["components"] = nlohmann::json::object();
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.list(path));
  for (const FileInfo& entry : entries) {
    if (!entry.is_folder) {
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(const bool has_config, files.exists(join_path(entry.path, "config.json")));
    if (!has_config) {
      continue;
    }
    const std::string name = file_name(entry.path);
    const auto component = study_component(files, entry.path, stop, damage);
    if (!component.is_ok()) {
      DARKROOM_RETURN_IF_ERROR(damage.take(component.status()));
      components.rows.push_back({name, "damaged", "-"});
      continue;
    }
    components.rows.push_back({name, component->class_name, component->weights.to_text()});
    if (!component->fingerprint.empty()) {
      fingerprints.rows.push_back({name, component->fingerprint});
    }
    report.summary["components"][name] = summary_of(*component);
  }
  report.tables.push_back(std::move(components));
  if (!fingerprints.rows.empty()) {
    report.tables.push_back(std::move(fingerprints));
  }
  const std::string scheduler_path = join_path(path, "scheduler/scheduler_config.json");
  DARKROOM_ASSIGN_OR_RETURN(const bool has_scheduler, files.exists(scheduler_path));
  DARKROOM_ASSIGN_OR_RETURN(const bool has_tokenizer, files.exists(join_path(path, "tokenizer")));
  report.summary["tokenizer"] = has_tokenizer;
  report.tables.push_back({.title = "", .head = {}, .rows = {{"tokenizer", has_tokenizer ? "yes" : "no"}}});
  if (has_scheduler) {
    const auto config = read_config_file(files, scheduler_path);
    DARKROOM_RETURN_IF_ERROR(damage.take(config.status()));
    if (config.is_ok()) {
      report.tables.push_back(config_table("scheduler", *config));
      report.summary["scheduler"] = *config;
    }
  }
  return Status::ok();
}

Status inspect_component(FileSystem& files, const std::string& path, const std::stop_token& stop, InspectReport& report,
                         DamageLog& damage) {
  report.kind = "model component";
  const auto component = study_component(files, path, stop, damage);
  if (!component.is_ok()) {
    return damage.take(component.status());
  }
  ReportTable facts{.title = "", .head = {}, .rows = {{"class", component->class_name}, {"weights", component->weights.to_text()}}};
  if (!component->fingerprint.empty()) {
    facts.rows.push_back({"fingerprint", component->fingerprint});
  }
  report.tables.push_back(std::move(facts));
  report.tables.push_back(config_table("config.json", component->config));
  report.summary["components"][file_name(path)] = summary_of(*component);
  return Status::ok();
}

Status inspect_safetensors(FileSystem& files, const std::string& path, const std::stop_token& stop, InspectReport& report,
                           DamageLog& damage) {
  report.kind = "safetensors file";
  const auto facts = read_weights_facts(files, path);
  if (!facts.is_ok()) {
    return damage.take(facts.status());
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(path));
  report.tables.push_back({.title = "", .head = {}, .rows = {{"contents", facts->to_text()}}});
  ReportTable tensors{.title = "tensors", .head = {"name", "type", "shape"}, .rows = {}};
  for (const std::string& name : file->names()) {
    if (tensors.rows.size() == kMaxTensorsListed) {
      tensors.rows.push_back({fmt::format("and {} more", file->names().size() - kMaxTensorsListed), "", ""});
      break;
    }
    DARKROOM_ASSIGN_OR_RETURN(const TensorSpec spec, file->spec(name));
    tensors.rows.push_back({clipped_text(name, 80), safetensors_dtype_name(spec.dtype), shape_text(spec.shape)});
  }
  report.tables.push_back(std::move(tensors));
  report.summary["parameters"] = facts->num_parameters;
  report.summary["tensors"] = facts->num_tensors;
  report.summary["bytes"] = facts->num_bytes;
  return damage.is_on() ? check_weights(facts->paths, stop, damage) : Status::ok();
}

}  // namespace darkroom
