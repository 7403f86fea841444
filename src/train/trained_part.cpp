#include "trained_part.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "darkroom/core/random.h"
#include "darkroom/diffusion/sampler.h"
#include "darkroom/nn/component_config.h"
#include "darkroom/nn/config_file.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"

namespace darkroom {
namespace {

std::vector<SampleCoordinates> coordinates(const Batch& batch) {
  std::vector<SampleCoordinates> samples;
  for (size_t i = 0; i < batch.samples.size(); ++i) {
    samples.push_back({batch.samples[i].epoch, hash_key(batch.keys[i])});
  }
  return samples;
}

template <typename Config>
Result<Config> read_config(FileSystem& files, const std::string& component_folder) {
  DARKROOM_ASSIGN_OR_RETURN(const auto json, read_config_file(files, component_folder + "/config.json"));
  auto config = Config::from_json(json);
  return config.is_ok() ? config : Result<Config>(config.status().with_context(component_folder));
}

template <typename Network, typename Config>
Result<Network> make_starting_network(FileSystem& files, const Recipe& recipe, const std::string& model_component,
                                      const std::string& weights_folder, Result<Network> (*load)(const std::string&)) {
  DARKROOM_ASSIGN_OR_RETURN(const Config config, read_config<Config>(files, model_component));
  const bool from_model = weights_folder.empty() && recipe.model.start == "weights";
  if (weights_folder.empty() && !from_model) {
    Network network(config);
    initialize_parameters(network, static_cast<uint64_t>(recipe.runtime.seed));
    return network;
  }
  const std::string& source = from_model ? model_component : weights_folder;
  DARKROOM_ASSIGN_OR_RETURN(Network network, load(source));
  if (!(network->config() == config)) {
    return Status::failed_precondition(
        "the weights are of another network than the model folder's config.json describes (weights, model):", source, model_component);
  }
  for (auto& parameter : network->parameters()) {
    parameter.set_requires_grad(true);
  }
  return network;
}

}  // namespace

Status UNetPart::save_config(FileSystem& files, const std::string& folder) const { return darkroom::save_config(files, unet_, folder); }

void UNetPart::load(const Batch& batch) {
  const DiffusionDraws draws = objective_.draw(coordinates(batch));
  loaded_ = {.draws = {.coordinates_n2 = inputs_.put("coordinates", draws.coordinates_n2),
                       .timesteps_n = inputs_.put("timesteps", draws.timesteps_n),
                       .dropped_n = inputs_.put("dropped", draws.dropped_n),
                       .scales_n2 = inputs_.put("scales", draws.scales_n2),
                       .weights_n = inputs_.put("weights", draws.weights_n)},
             .latents_nchw = inputs_.put("latents", batch.latents_nchw),
             .states_ntw = inputs_.put("states", batch.states_btc)};
}

std::vector<torch::Tensor> UNetPart::inputs() const { return loaded_.tensors(); }

torch::Tensor UNetPart::losses(const std::vector<torch::Tensor>& inputs) const {
  return objective_.losses(denoiser_of(unet_), objective_.mix(LoadedDiffusion::of(inputs)));
}

std::vector<NamedTensor> UNetPart::traced_inputs() const {
  const DiffusionInputs inputs = objective_.mix(loaded_);
  return {{"latents", loaded_.latents_nchw.cpu().to(torch::kFloat32)},
          {"caption_states", inputs.states_ntw.cpu()},
          {"timestep", inputs.timesteps_n.cpu()},
          {"noise", inputs.noise_nchw.cpu()},
          {"dropped", inputs.dropped_n.cpu()}};
}

Status VaePart::save_config(FileSystem& files, const std::string& folder) const { return darkroom::save_config(files, vae_, folder); }

void VaePart::load(const Batch& batch) {
  loaded_ = {.coordinates_n2 = inputs_.put("coordinates", coordinates_of(coordinates(batch))),
             .images_nchw = inputs_.put("images", batch.images_nchw)};
}

// The VAE computes in its weights' type; what goes in and comes out is float32.
std::vector<torch::Tensor> VaePart::inputs() const { return {loaded_.coordinates_n2, loaded_.images_nchw}; }

torch::Tensor VaePart::losses(const std::vector<torch::Tensor>& inputs) const {
  return objective_.losses(network_of(vae_), {.coordinates_n2 = inputs[0], .images_nchw = inputs[1]});
}

torch::Tensor VaePart::reconstruct(const torch::Tensor& images_nchw) const {
  const AutoencoderNetwork vae = network_of(vae_);
  return vae.decode(vae.encode(images_nchw).first);
}

std::vector<NamedTensor> VaePart::traced_inputs() const { return {{"images", loaded_.images_nchw.cpu()}}; }

DiffusionBatch diffusion_batch(const Batch& batch, const torch::Device& device) {
  const auto placed = [&](const torch::Tensor& tensor) { return tensor.to(device).to(torch::kFloat32); };
  return {coordinates(batch), placed(batch.latents_nchw), placed(batch.states_btc)};
}

ConditionalDenoiser denoiser_of(const UNet2DConditionModel& unet) {
  return [unet](const torch::Tensor& noisy_nchw, const torch::Tensor& timesteps_n, const torch::Tensor& states_ntw) {
    UNet2DConditionModel network = unet;  // A second handle: forward is not declared const.
    return network->forward(noisy_nchw, timesteps_n, states_ntw);
  };
}

AutoencoderNetwork network_of(const AutoencoderKL& vae) {
  const torch::ScalarType type = vae->parameters().front().scalar_type();
  return {.encode =
              [vae = vae, type](const torch::Tensor& images_nchw) mutable {
                const Moments moments = vae->encode(images_nchw.to(type));
                return std::pair(moments.mean.to(torch::kFloat32), moments.logvar.to(torch::kFloat32));
              },
          .decode = [vae = vae,
                     type](const torch::Tensor& latents_nchw) mutable { return vae->decode(latents_nchw.to(type)).to(torch::kFloat32); }};
}

Result<UNet2DConditionModel> make_starting_unet(FileSystem& files, const Recipe& recipe, const std::string& weights_folder) {
  return make_starting_network<UNet2DConditionModel, UNetConfig>(files, recipe, recipe.model.path + "/unet", weights_folder, load_unet);
}

Result<AutoencoderKL> make_starting_vae(FileSystem& files, const Recipe& recipe, const std::string& weights_folder) {
  return make_starting_network<AutoencoderKL, VaeConfig>(files, recipe, recipe.model.path + "/vae", weights_folder, load_vae);
}

Result<NoiseScheduleConfig> make_noise_config(const Recipe& recipe) {
  NoiseScheduleConfig noise;
  noise.num_timesteps = static_cast<int>(recipe.noise.num_timesteps);
  noise.beta_start = recipe.noise.beta_start;
  noise.beta_end = recipe.noise.beta_end;
  noise.beta_schedule = recipe.noise.beta_schedule == "linear" ? BetaSchedule::kLinear : BetaSchedule::kScaledLinear;
  noise.prediction_type = recipe.objective.prediction == "epsilon" ? PredictionType::kEpsilon : PredictionType::kVelocity;
  noise.zero_terminal_snr = recipe.noise.zero_terminal_snr;
  DARKROOM_RETURN_IF_ERROR(noise.validate());
  DARKROOM_ASSIGN_OR_RETURN(const ModelFolder folder, open_model_folder(recipe.model.path));
  if (folder.scheduler_config.is_null()) {
    return noise;
  }
  DARKROOM_ASSIGN_OR_RETURN(const SchedulerConfig scheduler, SchedulerConfig::from_json(folder.scheduler_config));
  const auto& model = scheduler.noise;
  const std::pair<const char*, bool> checks[] = {{"noise.num_timesteps", model.num_timesteps == noise.num_timesteps},
                                                 {"noise.beta_start", model.beta_start == noise.beta_start},
                                                 {"noise.beta_end", model.beta_end == noise.beta_end},
                                                 {"noise.beta_schedule", model.beta_schedule == noise.beta_schedule},
                                                 {"noise.zero_terminal_snr", model.zero_terminal_snr == noise.zero_terminal_snr},
                                                 {"objective.prediction", model.prediction_type == noise.prediction_type}};
  for (const auto& [field, agrees] : checks) {
    if (!agrees) {
      return Status::failed_precondition(
          fmt::format("the recipe's field '{}' differs from the model's scheduler/scheduler_config.json; change one of them:", field),
          recipe.model.path);
    }
  }
  return noise;
}

}  // namespace darkroom
