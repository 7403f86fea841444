#include "dpmpp_2m.h"

#include "json_field.h"
#include "multistep_solver.h"

namespace darkroom {

namespace {

constexpr size_t kFewCalls = 15;  // Below this many lower_order_final ends with a first-order step.

class Dpmpp2mSampler final : public MultistepSolver {
 public:
  Dpmpp2mSampler(const SchedulerConfig& config, SigmaPath path)
      : MultistepSolver(config, std::move(path)),
        first_order_end_(config.euler_at_final.value_or(false) || config.final_sigma.value_or(FinalSigma::kZero) == FinalSigma::kZero ||
                         (config.lower_order_final.value_or(true) && timesteps().size() < kFewCalls)) {
    const torch::Tensor steps = levels().log_ratio.diff();
    gains_ = to_floats(levels().alpha.slice(0, 1) * ((-steps).exp() - 1.0));
    log_steps_ = to_floats(steps);
  }

  torch::Tensor step(size_t index, const torch::Tensor& output, const torch::Tensor& latents, const NoiseSource&) override {
    const size_t made = enter(index);
    const torch::Tensor clean = clean_latents(index, output, latents);
    const float gain = gains_[index];
    torch::Tensor next = ratio(index) * latents - gain * clean;
    if (made > 0 && !(first_order_end_ && index + 1 == timesteps().size())) {
      const float step_ratio = log_steps_[index - 1] / log_steps_[index];
      next = next - 0.5F * gain * ((1.0F / step_ratio) * (clean - last_clean_));
    }
    last_clean_ = clean;
    leave(index);
    return next;
  }

 private:
  bool first_order_end_;
  std::vector<float> gains_;      // alpha' * (e^-h - 1) of each call.
  std::vector<float> log_steps_;  // h of each call.
  torch::Tensor last_clean_;
};

Result<std::unique_ptr<Sampler>> make_sampler_with(std::string_view name, bool karras, const SamplerSpec& spec,
                                                   const SchedulerConfig& config) {
  // As diffusers reads them, deis means dpmsolver++ and other solvers' types mean midpoint.
  DARKROOM_RETURN_IF_ERROR(check_settings(name, config.settings,
                                          {{"solver_order", {2}},
                                           {"algorithm_type", {"dpmsolver++", "deis"}},
                                           {"solver_type", {"midpoint", "logrho", "bh1", "bh2"}},
                                           {"use_exponential_sigmas", {false}},
                                           {"use_beta_sigmas", {false}},
                                           {"use_lu_lambdas", {false}},
                                           {"use_flow_sigmas", {false}},
                                           {"use_dynamic_shifting", {false}},
                                           {"lambda_min_clipped", {}},
                                           {"variance_type", {}}}));
  DARKROOM_ASSIGN_OR_RETURN(SigmaPath path, multistep_path(config, spec.num_steps, karras, KarrasEnd::kTableMinimum));
  return std::unique_ptr<Sampler>(std::make_unique<Dpmpp2mSampler>(config, std::move(path)));
}

}  // namespace

Result<std::unique_ptr<Sampler>> make_dpmpp_2m_sampler(const SamplerSpec& spec, const SchedulerConfig& config) {
  return make_sampler_with("dpmpp_2m", false, spec, config);
}

Result<std::unique_ptr<Sampler>> make_dpmpp_2m_karras_sampler(const SamplerSpec& spec, const SchedulerConfig& config) {
  return make_sampler_with("dpmpp_2m_karras", true, spec, config);
}

}  // namespace darkroom
