#include "config_reader.h"
#include "darkroom/nn/clip_text.h"
#include "diffusers_version.h"

namespace darkroom {
namespace {

using nlohmann::json;

constexpr const char* kTextClassName = "CLIPTextModel";
constexpr const char* kProjectionClassName = "CLIPTextModelWithProjection";

constexpr const char* activation_name(ClipActivation activation) { return activation == ClipActivation::kGelu ? "gelu" : "quick_gelu"; }

// transformers writes no eos beside a list of several; only the first decides anything, and nothing here.
void read_eos(ConfigReader& reader, const json& config, int64_t& value) {
  const auto field = config.find("eos_token_id");
  if (field != config.end() && field->is_array()) {
    reader.ignore({"eos_token_id"});
    return;
  }
  reader.read("eos_token_id", value, 0);
}

}  // namespace

Result<ClipTextConfig> ClipTextConfig::from_json(const json& config) {
  const bool with_projection = config.is_object() && config.value("architectures", json()) == json{kProjectionClassName};
  ConfigReader reader(config, with_projection ? kProjectionClassName : kTextClassName);
  reader.require_class("architectures");
  reader.only("model_type", {"clip_text_model"});
  DARKROOM_RETURN_IF_ERROR(reader.status());
  // A diffusers config names its class under another key.
  reader.require_class("_class_name");
  ClipTextConfig result;
  result.with_projection = with_projection;
  std::string activation = activation_name(result.hidden_act);
  reader.read("vocab_size", result.vocab_size, 1);
  reader.read("hidden_size", result.hidden_size, 1);
  reader.read("intermediate_size", result.intermediate_size, 1);
  reader.read("num_hidden_layers", result.num_hidden_layers, 1);
  reader.read("num_attention_heads", result.num_attention_heads, 1);
  reader.read("max_position_embeddings", result.max_position_embeddings, 1);
  reader.read("layer_norm_eps", result.layer_norm_eps);
  reader.read("initializer_factor", result.initializer_factor);
  reader.read("projection_dim", result.projection_dim, 1);
  reader.read("bos_token_id", result.bos_token_id, 0);
  read_eos(reader, config, result.eos_token_id);
  reader.read("pad_token_id", result.pad_token_id, 0);
  reader.only("hidden_act", {"gelu", "quick_gelu"});
  reader.read("hidden_act", activation);
  if (!reader.failed() && result.hidden_size % result.num_attention_heads != 0) {
    reader.refuse("num_attention_heads", "it must divide hidden_size");
  }
  DARKROOM_RETURN_IF_ERROR(reader.status());
  result.hidden_act = activation == "gelu" ? ClipActivation::kGelu : ClipActivation::kQuickGelu;
  return result;
}

json ClipTextConfig::to_json() const {
  return {{"architectures", {with_projection ? kProjectionClassName : kTextClassName}},
          {"attention_dropout", 0.0},
          {"bos_token_id", bos_token_id},
          {"dtype", "float32"},
          {"eos_token_id", eos_token_id},
          {"hidden_act", activation_name(hidden_act)},
          {"hidden_size", hidden_size},
          {"initializer_factor", initializer_factor},
          {"initializer_range", 0.02},
          {"intermediate_size", intermediate_size},
          {"layer_norm_eps", layer_norm_eps},
          {"max_position_embeddings", max_position_embeddings},
          {"model_type", "clip_text_model"},
          {"num_attention_heads", num_attention_heads},
          {"num_hidden_layers", num_hidden_layers},
          {"pad_token_id", pad_token_id},
          {"projection_dim", projection_dim},
          {"transformers_version", kTransformersVersion},
          {"vocab_size", vocab_size}};
}

}  // namespace darkroom
