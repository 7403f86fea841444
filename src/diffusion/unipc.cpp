#include "unipc.h"

#include <algorithm>

#include "json_field.h"
#include "multistep_solver.h"

namespace darkroom {

namespace {

constexpr size_t kUniPcOrder = 2;

// Each call first corrects the step before it with its own output, then predicts the next latents. Both steps cross an interval
// between two levels of the path with the same formula.
class UniPcSampler final : public MultistepSolver {
 public:
  UniPcSampler(const SchedulerConfig& config, SigmaPath path)
      : MultistepSolver(config, std::move(path)), lower_order_final_(config.lower_order_final.value_or(true)) {
    const torch::Tensor log_steps = levels().log_ratio.diff();
    log_steps_ = to_floats(log_steps);
    growths_ = to_floats((-log_steps).expm1());
  }

  torch::Tensor step(size_t index, const torch::Tensor& output, const torch::Tensor& latents, const NoiseSource&) override {
    const size_t made = enter(index);
    const torch::Tensor clean = clean_latents(index, output, latents);
    const size_t calls_left = timesteps().size() - index;
    LastCall call{.clean = clean,
                  .older_clean = last_.clean,
                  .latents = made > 0 ? correct(index - 1, clean) : latents,
                  .order = std::min({kUniPcOrder, made + 1, lower_order_final_ ? calls_left : kUniPcOrder})};
    torch::Tensor next = predict(call, index);
    last_ = std::move(call);
    leave(index);
    return next;
  }

 private:
  struct LastCall {
    torch::Tensor clean, older_clean, latents;
    size_t order = 0;
  };

  // Order 1 of both formulas: the exact solution for a constant clean latent.
  torch::Tensor constant_solution(const LastCall& call, size_t interval) const {
    return ratio(interval) * call.latents - alpha(interval + 1) * growths_[interval] * call.clean;
  }

  // How far the interval before is back, in lengths of this one; negative.
  float back(size_t interval) const { return -log_steps_[interval - 1] / log_steps_[interval]; }

  torch::Tensor older_slope(const LastCall& call, size_t interval) const { return (call.older_clean - call.clean) / back(interval); }

  torch::Tensor predict(const LastCall& call, size_t interval) const {
    torch::Tensor next = constant_solution(call, interval);
    if (call.order == kUniPcOrder) {
      next = next - alpha(interval + 1) * growths_[interval] * (0.5F * older_slope(call, interval));
    }
    return next;
  }

  torch::Tensor correct(size_t interval, const torch::Tensor& clean) const {
    const torch::Tensor change = clean - last_.clean;
    torch::Tensor residual = 0.5F * change;
    if (last_.order == kUniPcOrder) {
      const auto [older_weight, newer_weight] = corrector_weights(interval);
      residual = older_weight * older_slope(last_, interval) + newer_weight * change;
    }
    return constant_solution(last_, interval) - alpha(interval + 1) * growths_[interval] * residual;
  }

  // Solves [[1, 1], [r, 1]] rho = b with b_k = phi_{k+1}(-h) k! h / B(h). In float32 as the reference, whose b has lost digits
  // to cancellation when h is small.
  std::pair<float, float> corrector_weights(size_t interval) const {
    const float minus_step = -log_steps_[interval];
    const float growth = growths_[interval];
    const float phi_2 = growth / minus_step - 1.0F;
    const float phi_3 = phi_2 / minus_step - 0.5F;
    const float b_1 = phi_2 / growth;
    const float b_2 = phi_3 * 2.0F / growth;
    const float r = back(interval);
    return {(b_1 - b_2) / (1.0F - r), (b_2 - r * b_1) / (1.0F - r)};
  }

  bool lower_order_final_;
  std::vector<float> log_steps_;  // h of each interval.
  std::vector<float> growths_;    // e^-h - 1, which is also B(h).
  LastCall last_;
};

}  // namespace

Result<std::unique_ptr<Sampler>> make_unipc_sampler(const SamplerSpec& spec, const SchedulerConfig& config) {
  // As diffusers reads them, other solvers' types mean bh2.
  DARKROOM_RETURN_IF_ERROR(check_settings("unipc", config.settings,
                                          {{"solver_order", {2}},
                                           {"solver_type", {"bh2", "midpoint", "heun", "logrho"}},
                                           {"predict_x0", {true}},
                                           {"disable_corrector", {nlohmann::json::array()}},
                                           {"solver_p", {}},
                                           {"use_exponential_sigmas", {false}},
                                           {"use_beta_sigmas", {false}},
                                           {"use_flow_sigmas", {false}},
                                           {"use_dynamic_shifting", {false}},
                                           {"shift_terminal", {}},
                                           {"sigma_min", {}},
                                           {"sigma_max", {}}}));
  if (!config.lower_order_final.value_or(true) && config.final_sigma.value_or(FinalSigma::kZero) == FinalSigma::kZero) {
    return Status::failed_precondition(
        "scheduler_config.json: sampler unipc cannot reach a final sigma of 0 with a second-order step: lower_order_final false");
  }
  DARKROOM_ASSIGN_OR_RETURN(SigmaPath path,
                            multistep_path(config, spec.num_steps, config.use_karras_sigmas.value_or(false), KarrasEnd::kLastSigma));
  return std::unique_ptr<Sampler>(std::make_unique<UniPcSampler>(config, std::move(path)));
}

}  // namespace darkroom
