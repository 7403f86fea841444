#include "darkroom/diffusion/sampler.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "darkroom/core/check.h"
#include "darkroom/tensor/device_runtime.h"
#include "ddim.h"
#include "dpmpp_2m.h"
#include "euler.h"
#include "lcm.h"
#include "pndm.h"
#include "unipc.h"

namespace darkroom {

namespace {

using MakeSampler = Result<std::unique_ptr<Sampler>> (*)(const SamplerSpec&, const SchedulerConfig&);

struct BuiltSampler {
  std::string_view name;
  std::string_view class_name;  // Of diffusers; the first row of a class is the one that an empty name means.
  MakeSampler make;
};

constexpr std::string_view kDpmppClass = "DPMSolverMultistepScheduler";

constexpr std::array kBuiltSamplers = {
    BuiltSampler{"ddim", "DDIMScheduler", make_ddim_sampler},
    BuiltSampler{"pndm", "PNDMScheduler", make_pndm_sampler},
    BuiltSampler{"euler", "EulerDiscreteScheduler", make_euler_sampler},
    BuiltSampler{"euler_a", "EulerAncestralDiscreteScheduler", make_euler_ancestral_sampler},
    BuiltSampler{"dpmpp_2m", kDpmppClass, make_dpmpp_2m_sampler},
    BuiltSampler{"dpmpp_2m_karras", kDpmppClass, make_dpmpp_2m_karras_sampler},
    BuiltSampler{"unipc", "UniPCMultistepScheduler", make_unipc_sampler},
    BuiltSampler{"lcm", "LCMScheduler", make_lcm_sampler},
};

const BuiltSampler* find_sampler(std::string_view name) {
  const auto found = std::find_if(kBuiltSamplers.begin(), kBuiltSamplers.end(), [&](const auto& built) { return built.name == name; });
  return found == kBuiltSamplers.end() ? nullptr : &*found;
}

Result<std::string> sampler_of_class(const SchedulerConfig& config) {
  if (config.class_name == kDpmppClass && config.use_karras_sigmas.value_or(false)) {
    return std::string("dpmpp_2m_karras");
  }
  for (const BuiltSampler& built : kBuiltSamplers) {
    if (built.class_name == config.class_name) {
      return std::string(built.name);
    }
  }
  return Status::invalid_argument(
      fmt::format("the model's scheduler is not one of the built samplers; choose one of {} instead of:", fmt::join(sampler_names(), ", ")),
      config.class_name.empty() ? "(none)" : config.class_name);
}

}  // namespace

std::vector<std::string_view> sampler_names() {
  std::vector<std::string_view> names;
  for (const BuiltSampler& built : kBuiltSamplers) {
    names.push_back(built.name);
  }
  return names;
}

Result<std::string> resolve_sampler_name(const SamplerSpec& spec, const SchedulerConfig& config) {
  if (spec.name.empty()) {
    return sampler_of_class(config);
  }
  if (find_sampler(spec.name) == nullptr) {
    return Status::invalid_argument(fmt::format("unknown sampler; choose one of {} instead of:", fmt::join(sampler_names(), ", ")),
                                    spec.name);
  }
  return spec.name;
}

Result<std::unique_ptr<Sampler>> make_sampler(const SamplerSpec& spec, const SchedulerConfig& config) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string name, resolve_sampler_name(spec, config));
  if (spec.num_steps < 1 || spec.num_steps > config.noise.num_timesteps) {
    return Status::invalid_argument(
        "sampling steps must be 1 to the number of training timesteps (timesteps, got):", config.noise.num_timesteps, spec.num_steps);
  }
  if (!(spec.eta >= 0.0 && spec.eta <= 1.0)) {
    return Status::invalid_argument("eta must be between 0 and 1, got:", spec.eta);
  }
  return find_sampler(name)->make(spec, config);
}

torch::Tensor upload_timesteps(const Sampler& sampler, const torch::Device& device) {
  const std::vector<double>& timesteps = sampler.timesteps();
  const bool are_whole = std::all_of(timesteps.begin(), timesteps.end(), [](double t) { return t == std::trunc(t); });
  return torch::tensor(timesteps, torch::kFloat64).to(are_whole ? torch::kInt64 : torch::kFloat32).to(device);
}

Denoiser recorded_denoiser(Denoiser denoiser, const torch::Device& device, bool replays) {
  struct Recording {
    torch::Tensor noisy, timesteps_n, output;
    std::unique_ptr<DeviceGraph> graph;  // Last: its function uses the others.
  };
  // Shared by the copies of the returned function.
  return [denoiser = std::move(denoiser), device, replays, recording = std::make_shared<Recording>()](const torch::Tensor& noisy,
                                                                                                      const torch::Tensor& timesteps_n) {
    Recording& fixed = *recording;
    if (fixed.graph == nullptr) {
      fixed.noisy = torch::empty_like(noisy);
      fixed.timesteps_n = torch::empty(timesteps_n.sizes(), timesteps_n.options());
      fixed.graph = std::make_unique<DeviceGraph>(
          device, [&fixed, denoiser] { fixed.output = denoiser(fixed.noisy, fixed.timesteps_n); }, replays);
    }
    fixed.noisy.copy_(noisy);
    fixed.timesteps_n.copy_(timesteps_n);
    fixed.graph->run();
    return fixed.output.clone();
  };
}

Result<torch::Tensor> run_sampler_from(Sampler& sampler, size_t first_call, const Denoiser& denoiser, torch::Tensor latents,
                                       const NoiseSource& noise, const std::function<bool()>& should_stop) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor timesteps_k = upload_timesteps(sampler, latents.device());
  for (size_t index = first_call; index < sampler.timesteps().size(); ++index) {
    if (should_stop && should_stop()) {
      return Status::cancelled("sampling was stopped before network call", index);
    }
    const torch::Tensor timesteps_n = timesteps_k[static_cast<int64_t>(index)].expand({latents.size(0)});
    const torch::Tensor output = denoiser(sampler.scale_input(index, latents), timesteps_n);
    DARKROOM_CHECK(output.sizes() == latents.sizes(), "the denoiser's output has another shape than its input");
    latents = sampler.step(index, output, latents, noise);
  }
  return latents;
}

}  // namespace darkroom
