#include "darkroom/optim/train_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "darkroom/core/check.h"
#include "darkroom/optim/clip.h"

namespace darkroom {

namespace {

// Adds the time since the last lap to a phase.
class Stopwatch {
 public:
  void lap(double& phase_ms) {
    const auto now = std::chrono::steady_clock::now();
    phase_ms += std::chrono::duration<double, std::milli>(now - last_).count();
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace

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
  DARKROOM_CHECK(batch_size > 0, "a training step needs samples:", batch_size);
  StepReport report;
  report.step = step;
  report.learning_rate = learning_rate_at(options_.schedule, step);
  non_finite_samples_.clear();
  accumulate(batch_size, losses, report);
  parameters_.check_bound();
  if (!std::isfinite(report.loss)) {
    return Status::failed_precondition("training: the loss is not finite; look at the data, or lower the learning rate (step, loss):", step,
                                       report.loss);
  }
  Stopwatch stopwatch;
  report.grad_norm = flat_norm(parameters_.gradients());
  if (!std::isfinite(report.grad_norm)) {
    return Status::failed_precondition("training: the gradient is not finite; lower the learning rate (step, norm):", step,
                                       report.grad_norm);
  }
  optimizer_.update(report.learning_rate, clip_coefficient(report.grad_norm, options_.max_grad_norm), ema_);
  stopwatch.lap(report.update_ms);
  return report;
}

void TrainStep::accumulate(int64_t batch_size, const MicroBatchLosses& losses, StepReport& report) {
  parameters_.zero_gradients();
  double sum = 0.0;
  for (int64_t first = 0; first < batch_size; first += options_.micro_batch) {
    const int64_t count = std::min(options_.micro_batch, batch_size - first);
    Stopwatch stopwatch;
    const torch::Tensor micro_losses = losses(first, count);
    DARKROOM_CHECK(micro_losses.dim() == 1 && micro_losses.size(0) == count, "an objective gives one loss a sample:", count);
    sum += sum_losses(micro_losses.detach(), first);
    stopwatch.lap(report.forward_ms);
    (micro_losses.sum() / static_cast<double>(batch_size)).backward();
    stopwatch.lap(report.backward_ms);
  }
  report.loss = sum / static_cast<double>(batch_size);
}

double TrainStep::sum_losses(const torch::Tensor& losses, int64_t first) {
  const torch::Tensor losses_cpu = losses.to(torch::kCPU, torch::kFloat32).contiguous();
  double sum = 0.0;
  for (int64_t i = 0; i < losses_cpu.numel(); ++i) {
    const float loss = losses_cpu.data_ptr<float>()[i];
    if (!std::isfinite(loss)) {
      non_finite_samples_.push_back(first + i);
    }
    sum += static_cast<double>(loss);
  }
  return sum;
}

}  // namespace darkroom
