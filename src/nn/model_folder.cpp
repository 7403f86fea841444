#include "darkroom/nn/model_folder.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "darkroom/tensor/safetensors.h"
#include "diffusers_version.h"
#include "weight_files.h"

namespace darkroom {
namespace {

using nlohmann::json;

constexpr const char* kDiffusersStem = "diffusion_pytorch_model";
constexpr const char* kTransformersStem = "model";

// The module's name of a stored tensor; empty for a tensor that carries no weight.
using NameReader = std::function<std::string(const std::string&)>;

std::string unet_name(const std::string& stored) { return stored; }

// VAE files from before diffusers 0.18 name the attention layers otherwise.
std::string vae_name(const std::string& stored) {
  static const std::map<std::string, std::string> kOldNames = {
      {".query.", ".to_q."}, {".key.", ".to_k."}, {".value.", ".to_v."}, {".proj_attn.", ".to_out.0."}};
  for (const auto& [old_part, new_part] : kOldNames) {
    if (const auto place = stored.find(old_part); place != std::string::npos && stored.find(".attentions.") != std::string::npos) {
      return stored.substr(0, place) + new_part + stored.substr(place + old_part.size());
    }
  }
  return stored;
}

// transformers 5 writes the names without the prefix that all published files have; old files store the position numbers.
std::string text_encoder_name(const std::string& stored) {
  constexpr std::string_view kPrefix = "text_model.";
  if (stored.ends_with("embeddings.position_ids")) {
    return {};
  }
  return stored.starts_with(kPrefix) ? stored : std::string(kPrefix) + stored;
}

bool is_weight_dtype(torch::Dtype dtype) {
  return dtype == torch::kFloat32 || dtype == torch::kFloat16 || dtype == torch::kBFloat16 || dtype == torch::kFloat64;
}

std::string shape_text(at::IntArrayRef shape) { return json(shape.vec()).dump(); }

Status copy_parameter(torch::Tensor& parameter, const std::string& name, const std::string& stored, const SafetensorsFile& file) {
  DARKROOM_ASSIGN_OR_RETURN(const auto tensor, file.tensor(stored));
  if (tensor.sizes() != parameter.sizes()) {
    return Status::failed_precondition("weights do not fit their config.json: a tensor has another shape (tensor, want, got, file):", name,
                                       shape_text(parameter.sizes()), shape_text(tensor.sizes()), file.path());
  }
  if (!is_weight_dtype(tensor.scalar_type())) {
    return Status::failed_precondition("weights must be float32, float16, bfloat16 or float64 (tensor, got, file):", name,
                                       safetensors_dtype_name(tensor.scalar_type()), file.path());
  }
  parameter.copy_(tensor);
  return Status::ok();
}

Status load_parameters(torch::nn::Module& module, const std::string& folder, const std::string& stem, const NameReader& name_of) {
  DARKROOM_ASSIGN_OR_RETURN(const auto weights, WeightFiles::open(folder, stem));
  auto parameters = module.named_parameters();
  std::map<std::string, std::string> stored_names;  // By our name.
  for (const auto& [stored, file] : weights.tensors()) {
    const std::string name = name_of(stored);
    if (name.empty()) {
      continue;
    }
    const torch::Tensor* parameter = parameters.find(name);
    if (parameter == nullptr || !stored_names.emplace(name, stored).second) {
      return Status::failed_precondition("weights do not fit their config.json: a tensor is surplus (tensor, shape, file):", stored,
                                         json(file->spec(stored).value().shape).dump(), file->path());
    }
  }
  const torch::NoGradGuard no_grad;
  for (auto& item : parameters) {
    const auto stored = stored_names.find(item.key());
    if (stored == stored_names.end()) {
      return Status::failed_precondition("weights do not fit their config.json: a tensor is missing (tensor, shape, folder):", item.key(),
                                         shape_text(item.value().sizes()), folder);
    }
    DARKROOM_RETURN_IF_ERROR(copy_parameter(item.value(), item.key(), stored->second, *weights.tensors().at(stored->second)));
  }
  return Status::ok();
}

Result<json> read_json(const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const auto text, read_file(local_files(), path));
  auto parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return Status::corrupt_data("not a JSON object (file):", path);
  }
  return parsed;
}

template <typename Model, typename Config>
Result<Model> load_component(const std::string& folder, const std::string& stem, const NameReader& name_of) {
  const std::string config_path = join_path(folder, "config.json");
  DARKROOM_ASSIGN_OR_RETURN(const auto config_json, read_json(config_path));
  auto config = Config::from_json(config_json);
  if (!config.is_ok()) {
    return config.status().with_context(config_path);
  }
  Model model(std::move(config).value());
  DARKROOM_RETURN_IF_ERROR(load_parameters(*model, folder, stem, name_of));
  return model;
}

Status write_parameters(OutputFile& output, const torch::nn::Module& module, torch::Dtype dtype) {
  const auto parameters = module.named_parameters();
  std::vector<TensorSpec> specs;
  for (const auto& item : parameters) {
    specs.push_back({item.key(), dtype, item.value().sizes().vec()});
  }
  // transformers refuses a file whose metadata does not name its framework.
  DARKROOM_ASSIGN_OR_RETURN(const auto writer, SafetensorsWriter::begin(output, std::move(specs), {{"format", "pt"}}));
  for (const auto& spec : writer->order()) {
    DARKROOM_RETURN_IF_ERROR(writer->write(spec.name, parameters[spec.name].detach().to(dtype)));
  }
  DARKROOM_RETURN_IF_ERROR(writer->finish());
  DARKROOM_RETURN_IF_ERROR(output.sync());
  return output.close();
}

template <typename Model>
Status save_component(FileSystem& files, const Model& model, const std::string& folder, const std::string& stem, WeightsDtype dtype) {
  DARKROOM_RETURN_IF_ERROR(files.create_folders(folder));
  const std::string path = join_path(folder, stem + ".safetensors");
  DARKROOM_ASSIGN_OR_RETURN(const auto output, files.create(path));
  const Status status = write_parameters(*output, *model, dtype == WeightsDtype::kFloat16 ? torch::kFloat16 : torch::kFloat32);
  if (!status.is_ok()) {
    static_cast<void>(output->close());
    static_cast<void>(files.remove_file(path));  // The first failure is the one to report.
    return status;
  }
  return write_file_atomic(files, join_path(folder, "config.json"), model->config().to_json().dump(2) + "\n");
}

// The fields that say which program wrote the config, not what it computes.
json canonical_config(json config) {
  for (const char* key : {"_diffusers_version", "transformers_version"}) {
    config.erase(key);
  }
  return config;
}

std::string fingerprint(const torch::nn::Module& module, const json& config) {
  Sha256 hash;
  hash.update("darkroom component 1\n" + canonical_config(config).dump() + "\n");
  std::map<std::string, torch::Tensor> by_name;
  for (const auto& item : module.named_parameters()) {
    by_name[item.key()] = item.value().detach().cpu().contiguous();
  }
  for (const auto& [name, tensor] : by_name) {
    hash.update(name + " " + safetensors_dtype_name(tensor.scalar_type()) + " " + shape_text(tensor.sizes()) + "\n");
    hash.update(std::span(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()));
  }
  return hash.finish_hex();
}

}  // namespace

Result<UNet2DConditionModel> load_unet(const std::string& component_folder) {
  return load_component<UNet2DConditionModel, UNetConfig>(component_folder, kDiffusersStem, unet_name);
}

Result<AutoencoderKL> load_vae(const std::string& component_folder) {
  return load_component<AutoencoderKL, VaeConfig>(component_folder, kDiffusersStem, vae_name);
}

Result<ClipTextModel> load_text_encoder(const std::string& component_folder) {
  return load_component<ClipTextModel, ClipTextConfig>(component_folder, kTransformersStem, text_encoder_name);
}

Status save_unet(FileSystem& files, const UNet2DConditionModel& unet, const std::string& component_folder, WeightsDtype dtype) {
  return save_component(files, unet, component_folder, kDiffusersStem, dtype);
}

Status save_vae(FileSystem& files, const AutoencoderKL& vae, const std::string& component_folder, WeightsDtype dtype) {
  return save_component(files, vae, component_folder, kDiffusersStem, dtype);
}

Status save_text_encoder(FileSystem& files, const ClipTextModel& text_encoder, const std::string& component_folder, WeightsDtype dtype) {
  return save_component(files, text_encoder, component_folder, kTransformersStem, dtype);
}

std::string component_fingerprint(const UNet2DConditionModel& unet) { return fingerprint(*unet, unet->config().to_json()); }
std::string component_fingerprint(const AutoencoderKL& vae) { return fingerprint(*vae, vae->config().to_json()); }
std::string component_fingerprint(const ClipTextModel& text_encoder) {
  return fingerprint(*text_encoder, text_encoder->config().to_json());
}

Result<ModelFolder> open_model_folder(const std::string& path) {
  FileSystem& files = local_files();
  ModelFolder folder;
  folder.path = path;
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, files.stat(path));
  if (!info.is_folder) {
    return Status::failed_precondition("open a model folder: this is a file; give the folder that holds unet/, vae/, ... (path):", path);
  }
  DARKROOM_ASSIGN_OR_RETURN(folder.has_unet, files.exists(join_path(folder.unet_folder(), "config.json")));
  DARKROOM_ASSIGN_OR_RETURN(folder.has_vae, files.exists(join_path(folder.vae_folder(), "config.json")));
  DARKROOM_ASSIGN_OR_RETURN(folder.has_text_encoder, files.exists(join_path(folder.text_encoder_folder(), "config.json")));
  DARKROOM_ASSIGN_OR_RETURN(folder.has_tokenizer, files.exists(folder.tokenizer_folder()));
  const std::string scheduler_path = join_path(path, "scheduler/scheduler_config.json");
  DARKROOM_ASSIGN_OR_RETURN(const bool has_scheduler, files.exists(scheduler_path));
  if (has_scheduler) {
    DARKROOM_ASSIGN_OR_RETURN(folder.scheduler_config, read_json(scheduler_path));
  }
  if (!folder.has_unet && !folder.has_vae && !folder.has_text_encoder) {
    return Status::not_found("open a model folder: no unet/, vae/ or text_encoder/ with a config.json in it (path):", path);
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
