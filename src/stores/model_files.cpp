#include "model_files.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "darkroom/core/nested_text.h"
#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

constexpr std::string_view kWeights = ".safetensors";
constexpr std::string_view kWeightsIndex = ".safetensors.index";

bool has_ending(std::string_view name, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return name.ends_with(ending); });
}

/// Weights that run code when they are read, or are another library's.
bool is_foreign_weights(std::string_view name) {
  return has_ending(name, {".bin", ".ckpt", ".pt", ".pth", ".pkl", ".msgpack", ".h5", ".onnx", ".onnx_data", ".pb"});
}

bool is_weights(std::string_view name) { return name.ends_with(kWeights) || name.find(kWeightsIndex) != std::string_view::npos; }

/// What stands between the stem and the ending: "fp16" of model.fp16.safetensors, model.fp16-00001-of-00002.safetensors,
/// model-00001-of-00002.fp16.safetensors, model.safetensors.index.fp16.json and model.fp16.safetensors.index.json; "" without.
std::string variant_of(std::string_view name) {
  std::string variant;
  if (const size_t index = name.find(kWeightsIndex); index != std::string_view::npos) {
    const std::string_view after = name.substr(index + kWeightsIndex.size());  // ".json" or ".fp16.json".
    variant = after.size() > 6 ? after.substr(1, after.size() - 6) : "";
    name = name.substr(0, index);
  } else {
    name.remove_suffix(kWeights.size());
    if (const size_t of = name.rfind("-of-"); of != std::string_view::npos && of > 0) {
      const size_t dot = name.find('.', of);
      variant = dot == std::string_view::npos ? "" : name.substr(dot + 1);
      name = name.substr(0, name.rfind('-', of - 1));
    }
  }
  const size_t dot = name.find('.');
  return dot == std::string_view::npos ? variant : std::string(name.substr(dot + 1));
}

/// The variant to read of a part: none, else fp16, else the first.
std::string choose_variant(const std::vector<const HubFile*>& weights) {
  std::vector<std::string> variants;
  std::ranges::transform(weights, std::back_inserter(variants), [](const HubFile* file) { return variant_of(file_name(file->path)); });
  std::ranges::sort(variants);
  return std::ranges::find(variants, "fp16") != variants.end() && !variants.front().empty() ? "fp16" : variants.front();
}

Status add_part(const std::vector<HubFile>& tree, const std::string& part, const std::string& what, std::vector<HubFile>& chosen) {
  std::vector<const HubFile*> weights;
  const HubFile* foreign = nullptr;
  size_t num_files = 0;
  for (const HubFile& file : tree) {
    if (file.is_folder || parent_folder(file.path) != part) {
      continue;
    }
    const std::string name = file_name(file.path);
    if (is_weights(name)) {
      weights.push_back(&file);
    } else if (has_ending(name, {".json", ".txt"})) {
      chosen.push_back(file);
      ++num_files;
    } else if (is_foreign_weights(name)) {
      foreign = &file;
    }
  }
  if (weights.empty() && foreign != nullptr) {
    return Status::failed_precondition(
        "a part of the model has no safetensors weights, and files of other kinds (pickle runs code when it is read) are not fetched; find "
        "a "
        "repository or revision that has safetensors, or convert the model elsewhere (repository, file):",
        what, foreign->path);
  }
  if (weights.empty() && num_files == 0) {
    return Status::failed_precondition("model_index.json names a part that the repository does not hold (repository, part):", what, part);
  }
  const std::string variant = weights.empty() ? "" : choose_variant(weights);
  for (const HubFile* file : weights) {
    if (variant_of(file_name(file->path)) == variant) {
      chosen.push_back(*file);
    }
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<std::string>> read_model_parts(std::string_view model_index, const std::string& what) {
  const nlohmann::json index = parse_json(model_index);
  if (!index.is_object()) {
    return Status::corrupt_data("model_index.json is no JSON object (of):", what);
  }
  std::vector<std::string> parts;
  for (const auto& [name, value] : index.items()) {  // In byte order.
    // A part is ["library", "class"]; one that the pipeline goes without is [null, null].
    const bool is_part = value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string();
    if (is_part && !name.starts_with('_') && !name.empty() && name.find('/') == std::string::npos) {
      parts.push_back(name);
    }
  }
  return parts.empty()
             ? Result<std::vector<std::string>>(Status::failed_precondition("model_index.json names no part of a model (of):", what))
             : std::move(parts);
}

Result<std::vector<HubFile>> choose_model_files(const std::vector<HubFile>& tree, const std::vector<std::string>& parts,
                                                const std::string& what) {
  std::vector<HubFile> chosen;
  std::ranges::copy_if(tree, std::back_inserter(chosen),
                       [](const HubFile& file) { return !file.is_folder && file.path == "model_index.json"; });
  if (chosen.empty()) {
    return Status::failed_precondition(
        "this repository has neither model_index.json, as a model folder in the diffusers layout, nor config.json, "
        "as a single network (repository):",
        what);
  }
  for (const std::string& part : parts) {
    DARKROOM_RETURN_IF_ERROR(add_part(tree, part, what, chosen));
  }
  std::ranges::sort(chosen, {}, &HubFile::path);
  return chosen;
}

bool has_file(const std::vector<HubFile>& tree, std::string_view path) {
  return std::ranges::any_of(tree, [&](const HubFile& file) { return !file.is_folder && file.path == path; });
}

Result<std::vector<HubFile>> choose_network_files(const std::vector<HubFile>& tree, const std::string& what) {
  std::vector<HubFile> chosen;
  DARKROOM_RETURN_IF_ERROR(add_part(tree, ".", what, chosen));
  if (std::ranges::none_of(chosen, [](const HubFile& file) { return file.path.ends_with(kWeights); })) {
    return Status::failed_precondition("there are no safetensors weights beside config.json (repository):", what);
  }
  std::ranges::sort(chosen, {}, &HubFile::path);
  return chosen;
}

}  // namespace darkroom
