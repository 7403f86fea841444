#include "darkroom/optim/train_step.h"

#include <algorithm>
#include <cmath>
#include <future>

#include "darkroom/core/check.h"
#include "darkroom/ops/adamw_update.h"
#include "darkroom/tensor/device_runtime.h"

namespace darkroom {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - start).count();
}

void check_losses(const torch::Tensor& losses, int64_t count) {
  DARKROOM_CHECK(losses.dim() == 1 && losses.size(0) == count, "an objective gives one loss a sample:", count);
}

// One forward and backward pass that leaves the parameters' own gradients alone.
struct Pass {
  torch::Tensor losses;
  torch::autograd::variable_list gradients;  // In the order of the parameters; undefined where the loss does not depend on one.
  Clock::time_point forward_end;
};

Pass run_pass(const MicroBatchLosses& losses, int64_t first, int64_t count, int64_t batch_size,
              const std::vector<torch::Tensor>& parameters, int intra_op_threads) {
  at::set_num_threads(intra_op_threads);  // OpenMP's setting is each thread's own.
  const torch::Tensor micro_losses = losses(first, count);
  check_losses(micro_losses, count);
  const auto forward_end = Clock::now();
  const torch::Tensor share = micro_losses.sum() / static_cast<double>(batch_size);
  return {micro_losses.detach(),
          torch::autograd::grad({share}, parameters, {}, /*retain_graph=*/std::nullopt, /*create_graph=*/false, /*allow_unused=*/true),
          forward_end};
}

}  // namespace

Status TrainStepOptions::validate() const {
  if (micro_batch < 1) {
    return Status::invalid_argument("training step: micro_batch must be at least 1, got:", micro_batch);
  }
  if (workers < 1) {
    return Status::invalid_argument("training step: workers must be at least 1, got:", workers);
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
  DARKROOM_CHECK(options.workers == 1 || parameters.options().device.is_cpu(), "several workers are for the CPU");
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
  phase_start_ = Clock::now();
  parameters_.zero_gradients();
  if (options_.workers > 1 && losses_.numel() > options_.micro_batch) {
    accumulate_side_by_side(losses);
  } else {
    accumulate(losses);
  }
  {
    const torch::NoGradGuard no_grad;
    squared_norm_.copy_(squared_norm(parameters_.gradients()));
  }
  optimizer_.issue(squared_norm_, losses_, ema_);
  end_phase(report_.update_ms);
}

void TrainStep::accumulate(const MicroBatchLosses& losses) {
  const int64_t batch_size = losses_.numel();
  for (int64_t first = 0; first < batch_size; first += options_.micro_batch) {
    const int64_t count = std::min(options_.micro_batch, batch_size - first);
    const torch::Tensor micro_losses = losses(first, count);
    check_losses(micro_losses, count);
    losses_.narrow(0, first, count).copy_(micro_losses.detach());
    end_phase(report_.forward_ms);
    (micro_losses.sum() / static_cast<double>(batch_size)).backward();
    end_phase(report_.backward_ms);
  }
}

// Gradients are added in the order of the micro-batches, as accumulate() does, whoever is ready first.
void TrainStep::accumulate_side_by_side(const MicroBatchLosses& losses) {
  const int64_t batch_size = losses_.numel();
  const int64_t num_passes = (batch_size + options_.micro_batch - 1) / options_.micro_batch;
  const int intra_op_threads = at::get_num_threads();
  for (int64_t wave = 0; wave < num_passes; wave += options_.workers) {
    std::vector<std::future<Pass>> passes;
    for (int64_t pass = wave; pass < std::min(wave + options_.workers, num_passes); ++pass) {
      const int64_t first = pass * options_.micro_batch;
      const int64_t count = std::min(options_.micro_batch, batch_size - first);
      passes.push_back(std::async(std::launch::async, [=, this, &losses] {
        return run_pass(losses, first, count, batch_size, parameters_.parameters(), intra_op_threads);
      }));
    }
    Clock::time_point forward_end = phase_start_;
    for (size_t i = 0; i < passes.size(); ++i) {
      const Pass pass = passes[i].get();
      const int64_t first = (wave + static_cast<int64_t>(i)) * options_.micro_batch;
      losses_.narrow(0, first, pass.losses.size(0)).copy_(pass.losses);
      parameters_.add_gradients(pass.gradients);
      forward_end = std::max(forward_end, pass.forward_end);
    }
    report_.forward_ms += milliseconds_between(phase_start_, forward_end);
    phase_start_ = forward_end;
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
  const auto now = Clock::now();
  phase_ms += milliseconds_between(phase_start_, now);
  phase_start_ = now;
}

}  // namespace darkroom
