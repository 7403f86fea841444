#include "pndm.h"

#include "call_order.h"
#include "root.h"
#include "timesteps.h"

namespace darkroom {

namespace {

constexpr int64_t kPndmOrder = 4;          // Of the Runge-Kutta start and of the multistep formula.
constexpr size_t kCallsPerRungeKutta = 4;  // Network calls of one Runge-Kutta step.

class PndmSampler final : public Sampler {
 public:
  PndmSampler(const SamplerSpec& spec, const SchedulerConfig& config, std::vector<double> timesteps, size_t num_runge_kutta_calls)
      : alphas_(config.noise, config.set_alpha_to_one.value_or(false)),
        stride_(config.noise.num_timesteps / spec.num_steps),
        timesteps_(std::move(timesteps)),
        num_runge_kutta_calls_(num_runge_kutta_calls),
        order_(timesteps_.size()) {}

  const std::vector<double>& timesteps() const override { return timesteps_; }
  double initial_sigma() const override { return 1.0; }
  bool is_stochastic() const override { return false; }
  torch::Tensor scale_input(size_t, const torch::Tensor& latents) const override { return latents; }
  torch::Tensor add_noise(size_t index, const torch::Tensor& clean, const torch::Tensor& noise) const override {
    return alphas_.add_noise(timestep(index), clean, noise);
  }

  torch::Tensor step(size_t index, const torch::Tensor& output, const torch::Tensor& latents, const NoiseSource&) override {
    // Phases go by the number of calls made, also in a run that starts in the middle: so it is in diffusers.
    const size_t made = order_.enter(index);
    History history = history_;
    torch::Tensor next = made < num_runge_kutta_calls_ ? runge_kutta_step(history, index, made, output, latents)
                                                       : multistep(history, index, made, output, latents);
    history_ = std::move(history);
    order_.leave(index);
    return next;
  }

 private:
  struct History {
    std::vector<torch::Tensor> outputs;  // The last few, oldest first; at most kPndmOrder.
    torch::Tensor slope_sum;
    torch::Tensor start_latents;
  };

  int64_t timestep(size_t index) const { return static_cast<int64_t>(timesteps_[index]); }

  torch::Tensor runge_kutta_step(History& history, size_t index, size_t made, const torch::Tensor& output,
                                 const torch::Tensor& latents) const {
    const int64_t target = timestep(index) - (made % 2 == 0 ? stride_ / 2 : 0);
    const int64_t start = timestep(made - made % kCallsPerRungeKutta);
    torch::Tensor slope = output;
    switch (made % kCallsPerRungeKutta) {
      case 0:
        history.slope_sum = output * (1.0 / 6.0);
        history.outputs.push_back(output);
        history.start_latents = latents;
        break;
      case 3:
        slope = history.slope_sum + output * (1.0 / 6.0);
        break;
      default:
        history.slope_sum = history.slope_sum + output * (1.0 / 3.0);
    }
    return transfer(history.start_latents, start, target, slope);
  }

  torch::Tensor multistep(History& history, size_t index, size_t made, const torch::Tensor& output, const torch::Tensor& latents) const {
    int64_t from = timestep(index);
    int64_t target = from - stride_;
    const bool repeats_first_step = made == 1;  // PLMS evaluates its first step twice; never after a Runge-Kutta start.
    if (repeats_first_step) {
      target = from;
      from += stride_;
      return transfer(history.start_latents, from, target, (output + history.outputs.back()) / 2);
    }
    if (history.outputs.size() == static_cast<size_t>(kPndmOrder)) {
      history.outputs.erase(history.outputs.begin());
    }
    history.outputs.push_back(output);
    if (made == 0) {
      history.start_latents = latents;
    }
    return transfer(latents, from, target, combine(history.outputs));
  }

  // Adams-Bashforth weights of as many outputs as there are.
  static torch::Tensor combine(const std::vector<torch::Tensor>& outputs) {
    const auto last = [&](size_t back) -> const torch::Tensor& { return outputs[outputs.size() - back]; };
    switch (outputs.size()) {
      case 1:
        return last(1);
      case 2:
        return (3 * last(1) - last(2)) / 2;
      case 3:
        return (23 * last(1) - 16 * last(2) + 5 * last(3)) / 12;
      default:
        return (1.0 / 24.0) * (55 * last(1) - 59 * last(2) + 37 * last(3) - 9 * last(4));
    }
  }

  // Formula 9 of the paper: from `latents` at timestep `from` to timestep `target` along `output`.
  torch::Tensor transfer(const torch::Tensor& latents, int64_t from, int64_t target, torch::Tensor output) const {
    const float alpha = alphas_.start(from);
    const float alpha_next = alphas_.target(target);
    if (alphas_.schedule.config().prediction_type == PredictionType::kVelocity) {
      output = split_prediction(PredictionType::kVelocity, latents, output, alpha).noise;
    }
    const float denominator = alpha * root(1.0F - alpha_next) + root(alpha * (1.0F - alpha) * alpha_next);
    return root(alpha_next / alpha) * latents - (alpha_next - alpha) * output / denominator;
  }

  AlphaTable alphas_;
  int64_t stride_;
  std::vector<double> timesteps_;
  size_t num_runge_kutta_calls_;
  CallOrder order_;
  History history_;
};

// The highest timestep once, the next one twice, then the others.
std::vector<double> multistep_calls(const std::vector<int64_t>& ascending) {
  std::vector<double> calls(ascending.rbegin(), ascending.rend());
  if (calls.size() > 1) {
    calls.insert(calls.begin() + 1, calls[1]);
  }
  return calls;
}

// Three Runge-Kutta steps over the four highest timesteps: start, middle twice, end; then the rest by multistep.
std::vector<double> runge_kutta_calls(const std::vector<int64_t>& ascending, int64_t half_stride) {
  std::vector<double> calls;
  for (size_t back = 1; back < static_cast<size_t>(kPndmOrder); ++back) {
    const int64_t start = ascending[ascending.size() - back];
    const int64_t end = ascending[ascending.size() - back - 1];
    const auto middle = static_cast<double>(end + half_stride);
    calls.insert(calls.end(), {static_cast<double>(start), middle, middle, static_cast<double>(end)});
  }
  calls.insert(calls.end(), ascending.rbegin() + kPndmOrder - 1, ascending.rend());
  return calls;
}

}  // namespace

Result<std::unique_ptr<Sampler>> make_pndm_sampler(const SamplerSpec& spec, const SchedulerConfig& config) {
  if (config.noise.zero_terminal_snr) {
    return Status::invalid_argument("sampler pndm does not know zero terminal SNR; choose another one for this model, such as:", "ddim");
  }
  if (config.noise.prediction_type == PredictionType::kClean) {
    return Status::invalid_argument("sampler pndm does not take networks that predict the clean latent; choose another one, such as:",
                                    "ddim");
  }
  const bool runge_kutta = !config.skip_prk_steps.value_or(false);
  if (runge_kutta && spec.num_steps < kPndmOrder) {
    return Status::invalid_argument("sampler pndm with Runge-Kutta start needs at least 4 steps, got:", spec.num_steps);
  }
  const std::vector<int64_t> timesteps = ascending_timesteps(config.timestep_spacing.value_or(TimestepSpacing::kLeading),
                                                             config.noise.num_timesteps, spec.num_steps, config.steps_offset.value_or(0));
  DARKROOM_RETURN_IF_ERROR(check_timesteps(timesteps, NoiseSchedule(config.noise)));
  const int64_t half_stride = config.noise.num_timesteps / spec.num_steps / 2;
  std::vector<double> calls = runge_kutta ? runge_kutta_calls(timesteps, half_stride) : multistep_calls(timesteps);
  const size_t num_runge_kutta_calls = runge_kutta ? kCallsPerRungeKutta * (kPndmOrder - 1) : 0;
  return std::unique_ptr<Sampler>(std::make_unique<PndmSampler>(spec, config, std::move(calls), num_runge_kutta_calls));
}

}  // namespace darkroom
