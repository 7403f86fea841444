// Runs samplers over a small random network and writes every latent on the way, for tools/parity/schedule_parity.py.
//
//   sampler_runs CASES.json NETWORK.safetensors OUT.safetensors
//
// CASES.json is a list of objects: sampler, config (a scheduler_config.json), num_steps, eta, seeds and, for image to image,
// first_call. NETWORK.safetensors holds in.weight (K, C, 3, 3), out.weight (C, K, 3, 3), frequencies (K) and clean (N, C, h, w).
// OUT.safetensors gets case.I.timesteps (float64) and case.I.latents (calls + 1, N, C, h, w), or for a refused case only
// case.I.refused; why is said on stderr.

#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "darkroom/diffusion/sampler.h"
#include "darkroom/diffusion/seeded_noise.h"
#include "darkroom/files/file_system.h"
#include "darkroom/tensor/safetensors.h"

namespace darkroom {
namespace {

struct Network {
  torch::Tensor in_weight;
  torch::Tensor out_weight;
  torch::Tensor frequencies_k;
  torch::Tensor clean_nchw;

  torch::Tensor predict(const torch::Tensor& noisy, double timestep) const {
    const torch::Tensor phase = (static_cast<float>(timestep) * frequencies_k).sin().view({1, -1, 1, 1});
    const torch::Tensor hidden = (torch::conv2d(noisy, in_weight, {}, 1, 1) + phase).tanh();
    return torch::conv2d(hidden, out_weight, {}, 1, 1);
  }
};

Status run_case(const nlohmann::json& given, const Network& network, const std::string& prefix, std::vector<NamedTensor>& out) {
  DARKROOM_ASSIGN_OR_RETURN(const SchedulerConfig config, SchedulerConfig::from_json(given.at("config")));
  const SamplerSpec spec{.name = given.at("sampler"), .num_steps = given.at("num_steps"), .eta = given.at("eta")};
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<Sampler> sampler, make_sampler(spec, config));
  const std::vector<uint64_t> seeds = given.at("seeds");
  SeededNoise noise(seeds, network.clean_nchw.sizes().vec());
  const size_t first_call = given.value("first_call", size_t{0});
  torch::Tensor latents = noise.draw();
  latents = given.contains("first_call") ? sampler->add_noise(first_call, network.clean_nchw, latents) : latents * sampler->initial_sigma();
  std::vector<torch::Tensor> path = {latents};
  for (size_t call = first_call; call < sampler->timesteps().size(); ++call) {
    const torch::Tensor output = network.predict(sampler->scale_input(call, latents), sampler->timesteps()[call]);
    latents = sampler->step(call, output, latents, [&] { return noise.draw(); });
    path.push_back(latents);
  }
  out.push_back({prefix + "timesteps", torch::tensor(sampler->timesteps(), torch::kFloat64)});
  out.push_back({prefix + "latents", torch::stack(path)});
  return Status::ok();
}

Status run_cases(const std::string& cases_path, const std::string& network_path, const std::string& out_path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(local_files(), cases_path));
  DARKROOM_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(network_path));
  Network network;
  DARKROOM_ASSIGN_OR_RETURN(network.in_weight, file->tensor("in.weight"));
  DARKROOM_ASSIGN_OR_RETURN(network.out_weight, file->tensor("out.weight"));
  DARKROOM_ASSIGN_OR_RETURN(network.frequencies_k, file->tensor("frequencies"));
  DARKROOM_ASSIGN_OR_RETURN(network.clean_nchw, file->tensor("clean"));
  std::vector<NamedTensor> out;
  size_t number = 0;
  for (const nlohmann::json& given : nlohmann::json::parse(text)) {
    const std::string prefix = fmt::format("case.{}.", number++);
    if (const Status status = run_case(given, network, prefix, out); !status.is_ok()) {
      fmt::print(stderr, "{}refused {}\n", prefix, status.to_string());
      out.push_back({prefix + "refused", torch::ones({1})});
    }
  }
  return write_safetensors(local_files(), out_path, out);
}

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: sampler_runs CASES.json NETWORK.safetensors OUT.safetensors\n");
    return 2;
  }
  at::set_num_threads(1);
  const torch::NoGradGuard no_grad;
  const darkroom::Status status = darkroom::run_cases(argv[1], argv[2], argv[3]);
  if (!status.is_ok()) {
    fmt::print(stderr, "{}\n", status.to_string());
  }
  return status.is_ok() ? 0 : 1;
}
