#include <map>
#include <utility>

#include "darkroom/nn/model_folder.h"
#include "darkroom/tensor/safetensors.h"
#include "original_checkpoint.h"
#include "weight_files.h"
#include "write_weights.h"

namespace darkroom {
namespace {

using nlohmann::json;

// One tensor of the file: the parameters whose rows it holds, in order.
struct StoredTensor {
  std::vector<torch::Tensor> slices;
  bool is_1x1_convolution = false;

  torch::Tensor joined() const {
    const torch::Tensor tensor = slices.size() == 1 ? slices.front() : at::cat(slices);
    return is_1x1_convolution && tensor.dim() == 2 ? tensor.unsqueeze(-1).unsqueeze(-1) : tensor;
  }
  TensorSpec spec(const std::string& name, torch::Dtype dtype) const {
    std::vector<int64_t> shape = slices.front().sizes().vec();
    shape.front() *= static_cast<int64_t>(slices.size());
    if (is_1x1_convolution && shape.size() == 2) {
      shape.insert(shape.end(), {1, 1});
    }
    return {.name = name, .dtype = dtype, .shape = std::move(shape)};
  }
};

using StoredTensors = std::map<std::string, StoredTensor>;

void add_part(StoredTensors& stored, const torch::nn::Module& module, const WeightNaming& naming) {
  for (const auto& item : module.named_parameters()) {
    const StoredPlace place = naming.places(item.key()).front();
    StoredTensor& tensor = stored[place.tensor];
    tensor.slices.resize(static_cast<size_t>(place.num_slices));
    tensor.slices[static_cast<size_t>(place.slice)] = item.value().detach();
    tensor.is_1x1_convolution = place.is_1x1_convolution;
  }
}

// Files of version 2 hold one layer more than its text encoder runs. Nobody reads its values, but layers are counted.
void add_unused_layer(StoredTensors& stored, int64_t num_layers) {
  const std::string layers = std::string(kOriginalOpenClipPrefix) + "transformer.resblocks.";
  const std::string last = layers + std::to_string(num_layers - 1) + ".";
  StoredTensors unused;
  for (auto tensor = stored.lower_bound(last); tensor != stored.end() && tensor->first.starts_with(last); ++tensor) {
    unused[layers + std::to_string(num_layers) + "." + tensor->first.substr(last.size())] = tensor->second;
  }
  stored.merge(unused);
}

// Without the fields that no computation depends on and shapes do not tell.
json told_by_shapes(json config) {
  for (const char* key :
       {"sample_size", "bos_token_id", "eos_token_id", "pad_token_id", "projection_dim", "upcast_attention", "force_upcast"}) {
    config.erase(key);
  }
  return config;
}

template <typename Config>
Status require_same(const char* part, const Result<Config>& read, const Config& written) {
  DARKROOM_RETURN_IF_ERROR(read.status());
  const json ours = told_by_shapes(written.to_json());
  const json theirs = told_by_shapes(read->to_json());
  if (ours != theirs) {
    return Status::failed_precondition(
        "a single file holds no config, and readers would take this part for another network; export a folder instead (part, read, is):",
        part, theirs.dump(), ours.dump());
  }
  return Status::ok();
}

Status require_readable(const std::string& path, const UNetConfig& unet, const VaeConfig& vae, const ClipTextConfig& text_encoder) {
  DARKROOM_ASSIGN_OR_RETURN(const WeightFiles weights, WeightFiles::open_file(path));
  DARKROOM_RETURN_IF_ERROR(require_same("unet", original_unet_config(weights), unet));
  DARKROOM_RETURN_IF_ERROR(require_same("vae", original_vae_config(weights), vae));
  return require_same("text_encoder", original_text_config(weights), text_encoder);
}

}  // namespace

Status save_single_file(FileSystem& files, const UNet2DConditionModel& unet, const AutoencoderKL& vae, const ClipTextModel& text_encoder,
                        const std::string& path, WeightsDtype dtype, const std::stop_token& stop) {
  const bool is_open_clip = text_encoder->config().hidden_act == ClipActivation::kGelu;
  StoredTensors stored;
  add_part(stored, *unet, original_unet_naming(unet->config()));
  add_part(stored, *vae, original_vae_naming(vae->config()));
  add_part(stored, *text_encoder, original_text_naming(text_encoder->config(), is_open_clip));
  if (is_open_clip) {
    add_unused_layer(stored, text_encoder->config().num_hidden_layers);
  }
  const torch::Dtype type = dtype == WeightsDtype::kFloat16 ? torch::kFloat16 : torch::kFloat32;
  std::vector<TensorSpec> specs;
  for (const auto& [name, tensor] : stored) {
    specs.push_back(tensor.spec(name, type));
  }
  DARKROOM_RETURN_IF_ERROR(write_weights(
      files, path, std::move(specs), [&](const std::string& name) { return stored.at(name).joined(); }, stop));
  Status status = require_readable(path, unet->config(), vae->config(), text_encoder->config());
  if (!status.is_ok()) {
    static_cast<void>(files.remove_file(path));  // The first failure is the one to report.
  }
  return status;
}

}  // namespace darkroom
