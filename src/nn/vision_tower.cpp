#include "darkroom/nn/vision_tower.h"

#include <utility>

#include "clip_layers.h"
#include "config_reader.h"
#include "darkroom/core/check.h"
#include "darkroom/files/paths.h"
#include "darkroom/nn/config_file.h"
#include "least_size.h"
#include "load_weights.h"
#include "weight_files.h"

namespace darkroom {
namespace {

constexpr int64_t kColours = 3;

ClipLayerConfig layer_config(const ClipVisionConfig& config) {
  return {.hidden_size = config.hidden_size,
          .intermediate_size = config.intermediate_size,
          .num_heads = config.num_attention_heads,
          .activation = config.hidden_act,
          .layer_norm_eps = config.layer_norm_eps,
          .is_causal = false};
}

// Each tower takes its own tensors out of the file of both.
WeightNaming tower_naming(bool is_vision) {
  return {.places = [](const std::string& name) { return std::vector<StoredPlace>{{.tensor = name}}; },
          .is_foreign =
              [is_vision](const std::string& stored) {
                const bool is_visual = stored.starts_with("vision_model.") || stored.starts_with("visual_projection.");
                return is_visual != is_vision || stored == "logit_scale" || stored.ends_with("embeddings.position_ids");
              }};
}

// Both towers project to the width that stands above their own configs.
nlohmann::json tower_config(const nlohmann::json& config, const char* name) {
  nlohmann::json tower = config.value(name, nlohmann::json::object());
  if (config.contains("projection_dim") && tower.is_object()) {
    tower["projection_dim"] = config["projection_dim"];
  }
  return tower;
}

struct TowerConfigs {
  ClipTextConfig text;
  ClipVisionConfig vision;
};

Result<TowerConfigs> read_tower_configs(const nlohmann::json& config) {
  ConfigReader reader(config, "CLIPModel");
  reader.require_class("architectures");
  reader.only("model_type", {"clip"});
  DARKROOM_RETURN_IF_ERROR(reader.status());
  nlohmann::json text_json = tower_config(config, "text_config");
  if (!text_json.is_object()) {
    return Status::failed_precondition("config.json: text_config is no object:", text_json.dump());
  }
  text_json["architectures"] = {"CLIPTextModelWithProjection"};
  DARKROOM_ASSIGN_OR_RETURN(const ClipTextConfig text, ClipTextConfig::from_json(text_json));
  DARKROOM_ASSIGN_OR_RETURN(const ClipVisionConfig vision, ClipVisionConfig::from_json(tower_config(config, "vision_config")));
  return TowerConfigs{.text = text, .vision = vision};
}

}  // namespace

Result<ClipVisionConfig> ClipVisionConfig::from_json(const nlohmann::json& config) {
  ConfigReader reader(config, "CLIPVisionModelWithProjection");
  reader.only("model_type", {"clip_vision_model"});
  ClipVisionConfig result;
  std::string activation = "quick_gelu";
  reader.read("hidden_size", result.hidden_size, 1);
  reader.read("intermediate_size", result.intermediate_size, 1);
  reader.read("num_hidden_layers", result.num_hidden_layers, 0);
  reader.read("num_attention_heads", result.num_attention_heads, 1);
  reader.read("image_size", result.image_size, 1);
  reader.read("patch_size", result.patch_size, 1);
  reader.read("layer_norm_eps", result.layer_norm_eps);
  reader.read("projection_dim", result.projection_dim, 1);
  reader.only("num_channels", {kColours});
  reader.only("hidden_act", {"gelu", "quick_gelu"});
  reader.read("hidden_act", activation);
  if (!reader.failed() && result.hidden_size % result.num_attention_heads != 0) {
    reader.refuse("num_attention_heads", "it must divide hidden_size");
  }
  if (!reader.failed() && result.image_size % result.patch_size != 0) {
    reader.refuse("patch_size", "it must divide image_size");
  }
  DARKROOM_RETURN_IF_ERROR(reader.status());
  result.hidden_act = activation == "gelu" ? ClipActivation::kGelu : ClipActivation::kQuickGelu;
  return result;
}

ClipVisionModelImpl::ClipVisionModelImpl(ClipVisionConfig config) : config_(std::move(config)) {
  const int64_t width = config_.hidden_size;
  const int64_t patches_a_side = config_.image_size / config_.patch_size;
  Placeholder vision_model, embeddings, patch_embedding, encoder;
  class_embedding_ = embeddings->register_parameter("class_embedding", torch::empty({width}));
  patch_weight_ = patch_embedding->register_parameter("weight", torch::empty({width, kColours, config_.patch_size, config_.patch_size}));
  embeddings->register_module("patch_embedding", patch_embedding);
  position_embedding_ = embeddings->register_module("position_embedding", Embedding(patches_a_side * patches_a_side + 1, width));
  torch::nn::ModuleList list;
  for (int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    layers_.push_back(std::make_shared<ClipEncoderLayerImpl>(layer_config(config_)));
    list->push_back(layers_.back());
  }
  encoder->register_module("layers", list);
  vision_model->register_module("embeddings", embeddings);
  // The published name has this letter missing.
  pre_layernorm_ = vision_model->register_module("pre_layrnorm", LayerNorm(width, config_.layer_norm_eps));
  vision_model->register_module("encoder", encoder);
  post_layernorm_ = vision_model->register_module("post_layernorm", LayerNorm(width, config_.layer_norm_eps));
  register_module("vision_model", vision_model);
  projection_ = register_module("visual_projection", Linear(width, config_.projection_dim, /*with_bias=*/false));
}

// N pictures, T tokens (the class's, then the patches row by row), C hidden_size.
torch::Tensor ClipVisionModelImpl::forward(const torch::Tensor& pictures_nchw) {
  DARKROOM_CHECK(pictures_nchw.dim() == 4 && pictures_nchw.size(2) == config_.image_size && pictures_nchw.size(3) == config_.image_size,
                 "the picture tower wants pictures of its size (side, shape):", config_.image_size, c10::str(pictures_nchw.sizes()));
  const auto patches_nct = at::conv2d(pictures_nchw, patch_weight_, {}, config_.patch_size).flatten(2);
  const auto classes_ntc = class_embedding_.expand({pictures_nchw.size(0), 1, config_.hidden_size});
  auto states_ntc = pre_layernorm_->forward(at::cat({classes_ntc, patches_nct.transpose(1, 2)}, 1) + position_embedding_->weight());
  for (auto& layer : layers_) {
    states_ntc = layer->forward(states_ntc);
  }
  return projection_->forward(post_layernorm_->forward(states_ntc.select(1, 0)));
}

Result<ClipTowers> load_clip(const std::string& folder) {
  const std::string config_path = join_path(folder, "config.json");
  DARKROOM_ASSIGN_OR_RETURN(const auto config, read_config_file(local_files(), config_path));
  const auto configs = read_tower_configs(config);
  if (!configs.is_ok()) {
    return configs.status().with_context(config_path);
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto weights, WeightFiles::open(folder, kTransformersStem));
  DARKROOM_RETURN_IF_ERROR(check_fits(least_size(configs->text) + least_size(configs->vision), weights, folder));
  ClipTowers towers{ClipTextModel(configs->text), ClipVisionModel(configs->vision)};
  DARKROOM_RETURN_IF_ERROR(load_weights(*towers.text, weights, tower_naming(/*is_vision=*/false), folder));
  DARKROOM_RETURN_IF_ERROR(load_weights(*towers.vision, weights, tower_naming(/*is_vision=*/true), folder));
  return towers;
}

}  // namespace darkroom
