#include "darkroom/optim/train_step.h"

#include <algorithm>
#include <cmath>

#include "darkroom/core/check.h"
#include "darkroom/ops/adamw_update.h"
#include "darkroom/tensor/device_runtime.h"

namespace darkroom {

Status TrainStepOptions::validate() const {
  if (micro_batch < 1) {
    return Status::invalid_argument("training step: micro_batch must be at least 1, got:", micro_batch);
  }
  if (!(max_grad_norm >= 0.0 && std::isfinite(max_grad_norm))) {
    return Status::invalid_argument("training step: max_grad_norm must be at least 0, got:", max_grad_norm);
  }
  return schedule.validate();
}

TrainStep::TrainStep(FlatParameters& parameters, AdamW& optimizer, Ema* ema, const TrainStepOptions& options)
    : parameters_(parameters), optimizer_(optimizer), ema_(ema), options_(options) {
  const Status valid = options.validate();
  DARKROOM_CHECK(valid.is_ok(), valid.message());
}

Result<StepReport> TrainStep::run(int64_t step, int64_t batch_size, const MicroBatchLosses& losses) {
  prepare(step, batch_size);
  issue(losses);
  return finish();
}

void TrainStep::prepare(int64_t step, int64_t batch_size) {
  DARKROOM_CHECK(batch_size > 0, "a training step needs samples:", batch_size);
  report_ = {};
  report_.step = step;
  report_.learning_rate = learning_rate_at(options_.schedule, step);
  const torch::Device device = parameters_.values().device();
  if (!losses_.defined() || losses_.numel() != batch_size) {
    losses_ = torch::empty({batch_size}, torch::dtype(torch::kFloat32).device(device));
    losses_staging_ = empty_staging({batch_size}, torch::kFloat32, device);
  }
  if (!squared_norm_.defined()) {
    squared_norm_ = torch::empty({1}, torch::dtype(torch::kFloat64).device(device));
    squared_norm_staging_ = empty_staging({1}, torch::kFloat64, device);
  }
  optimizer_.prepare(report_.learning_rate, options_.max_grad_norm, ema_);
}

void TrainStep::issue(const MicroBatchLosses& losses) {
  phase_start_ = std::chrono::steady_clock::now();
  accumulate(losses);
  {
    const torch::NoGradGuard no_grad;
    squared_norm_.copy_(squared_norm(parameters_.gradients()));
  }
  optimizer_.issue(squared_norm_, losses_, ema_);
  end_phase(report_.update_ms);
}

void TrainStep::accumulate(const MicroBatchLosses& losses) {
  const int64_t batch_size = losses_.numel();
  parameters_.zero_gradients();
  for (int64_t first = 0; first < batch_size; first += options_.micro_batch) {
    const int64_t count = std::min(options_.micro_batch, batch_size - first);
    const torch::Tensor micro_losses = losses(first, count);
    DARKROOM_CHECK(micro_losses.dim() == 1 && micro_losses.size(0) == count, "an objective gives one loss a sample:", count);
    losses_.narrow(0, first, count).copy_(micro_losses.detach());
    end_phase(report_.forward_ms);
    (micro_losses.sum() / static_cast<double>(batch_size)).backward();
    end_phase(report_.backward_ms);
  }
}

Result<StepReport> TrainStep::finish() {
  parameters_.check_bound();
  losses_staging_.copy_(losses_, /*non_blocking=*/true);
  squared_norm_staging_.copy_(squared_norm_, /*non_blocking=*/true);
  synchronize(losses_.device());
  report_.loss = sum_losses() / static_cast<double>(losses_.numel());
  report_.grad_norm = std::sqrt(squared_norm_staging_.item<double>());
  if (!std::isfinite(report_.loss)) {
    return Status::failed_precondition(
        "training: the loss is not finite; look at the data, or lower the learning rate (step, loss):", report_.step, report_.loss);
  }
  if (!std::isfinite(report_.grad_norm)) {
    return Status::failed_precondition("training: the gradient is not finite; lower the learning rate (step, norm):", report_.step,
                                       report_.grad_norm);
  }
  optimizer_.count_update();
  return report_;
}

double TrainStep::sum_losses() {
  non_finite_samples_.clear();
  double sum = 0.0;
  for (int64_t i = 0; i < losses_staging_.numel(); ++i) {
    const float loss = losses_staging_.data_ptr<float>()[i];
    if (!std::isfinite(loss)) {
      non_finite_samples_.push_back(i);
    }
    sum += static_cast<double>(loss);
  }
  return sum;
}

void TrainStep::end_phase(double& phase_ms) {
  if (options_.waits_between_phases) {
    synchronize(losses_.device());
  }
  const auto now = std::chrono::steady_clock::now();
  phase_ms += std::chrono::duration<double, std::milli>(now - phase_start_).count();
  phase_start_ = now;
}

}  // namespace darkroom
