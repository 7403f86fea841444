#include "darkroom/nn/check_model.h"

#include <optional>
#include <utility>

namespace darkroom {
namespace {

constexpr int64_t kCheckedAtOnce = int64_t{1} << 20;

Status go_on_checking(const std::string& folder, const std::stop_token& stop) {
  return stop.stop_requested() ? Status::cancelled("stopped while a network was checked (folder):", folder) : Status::ok();
}

Status check_finite(const torch::nn::Module& module, const std::string& folder, const std::stop_token& stop) {
  for (const auto& item : module.named_parameters()) {
    for (const auto& piece : item.value().detach().flatten().split(kCheckedAtOnce)) {  // The check makes copies of what it looks at.
      DARKROOM_RETURN_IF_ERROR(go_on_checking(folder, stop));
      if (!at::isfinite(piece).all().item<bool>()) {
        return Status::corrupt_data("a weight is NaN or infinite (folder, tensor):", folder, item.key());
      }
    }
  }
  return Status::ok();
}

using OnPart = std::function<void(const PartReport&)>;

// Loads and checks one network, and lets go of it: its config stays.
template <typename Config, typename Model>
Result<Config> check_part(const std::string& name, const std::string& folder, Result<Model> (*load)(const std::string&),
                          const OnPart& on_part, const std::stop_token& stop) {
  DARKROOM_RETURN_IF_ERROR(go_on_checking(folder, stop));
  DARKROOM_ASSIGN_OR_RETURN(const Model model, load(folder));
  DARKROOM_RETURN_IF_ERROR(check_finite(*model, folder, stop));
  std::string fingerprint = component_fingerprint(model, stop);
  if (fingerprint.empty()) {
    return go_on_checking(folder, stop);
  }
  on_part({.name = name, .num_parameters = count_parameters(*model), .fingerprint = std::move(fingerprint)});
  return model->config();
}

// `text_width` is that of all text encoders together, 0 without one.
Status check_fit(const std::string& path, const std::optional<UNetConfig>& unet, const std::optional<VaeConfig>& vae, int64_t text_width) {
  if (unet && vae && unet->in_channels != vae->latent_channels) {
    return Status::failed_precondition("the parts do not fit: U-Net in_channels and VAE latent_channels differ (folder, U-Net, VAE):", path,
                                       unet->in_channels, vae->latent_channels);
  }
  if (unet && text_width > 0 && unet->states_width() != text_width) {
    return Status::failed_precondition(
        "the parts do not fit: U-Net cross_attention_dim and text encoder hidden_size differ (folder, U-Net, text encoder):", path,
        unet->states_width(), text_width);
  }
  return Status::ok();
}

}  // namespace

Result<int64_t> check_model(const ModelFolder& model, const OnPart& on_part, const std::stop_token& stop) {
  std::optional<UNetConfig> unet;
  std::optional<VaeConfig> vae;
  int64_t text_width = 0;
  int64_t num_ids = 0;
  if (model.has_unet) {
    DARKROOM_ASSIGN_OR_RETURN(unet, check_part<UNetConfig>("unet", model.unet_folder(), load_any_unet, on_part, stop));
  }
  if (model.has_vae) {
    DARKROOM_ASSIGN_OR_RETURN(vae, check_part<VaeConfig>("vae", model.vae_folder(), load_vae, on_part, stop));
  }
  if (model.has_text_encoder) {
    DARKROOM_ASSIGN_OR_RETURN(const auto text,
                              check_part<ClipTextConfig>("text_encoder", model.text_encoder_folder(), load_text_encoder, on_part, stop));
    text_width = text.hidden_size;
    num_ids = text.vocab_size;
  }
  if (model.has_text_encoder_2) {
    DARKROOM_ASSIGN_OR_RETURN(
        const auto second, check_part<ClipTextConfig>("text_encoder_2", model.text_encoder_2_folder(), load_text_encoder, on_part, stop));
    text_width += second.hidden_size;
  }
  DARKROOM_RETURN_IF_ERROR(check_fit(model.path, unet, vae, text_width));
  return num_ids;
}

}  // namespace darkroom
