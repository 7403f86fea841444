#include "train_metrics.h"

#include <array>
#include <utility>

#include "darkroom/tensor/device_runtime.h"

namespace darkroom {
namespace {

constexpr double kMeanShare = 0.05;

void add_milliseconds(MetricsRegistry& registry, const char* phase, double ms) {
  registry.seconds_counter("darkroom_train_phase_seconds_total", "Time of a rank's steps, by phase.", {{"phase", phase}})
      .add(std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double, std::milli>(ms)));
}

}  // namespace

TrainMetrics::TrainMetrics(MetricsRegistry& registry, const TrainMetricsFacts& facts)
    : registry_(registry),
      facts_(facts),
      step_(registry.gauge("darkroom_train_step", "Steps that the run has done.")),
      images_(registry.counter("darkroom_train_images_total", "Samples that this rank has trained on since its start.")),
      images_per_second_(registry.gauge("darkroom_train_images_per_second", "Samples of all ranks per second, over the last steps.")) {
  registry.gauge("darkroom_train_last_step", "Steps after which the run ends.").set(static_cast<double>(facts.last_step));
  registry.gauge("darkroom_train_rank", "Number of this rank.").set(static_cast<double>(facts.rank));
  registry.gauge("darkroom_train_ranks", "Ranks that train together.").set(static_cast<double>(facts.num_ranks));
}

void TrainMetrics::show_step(int64_t steps_done, const StepTimes& times) {
  const StepReport& report = times.report;
  step_.set(static_cast<double>(steps_done));
  images_.add(facts_.rank_samples);
  for (const auto& [phase, ms] :
       {std::pair("data_wait", times.data_ms), std::pair("device_wait", report.wait_ms), std::pair("step", times.step_ms)}) {
    add_milliseconds(registry_, phase, ms);
  }
  for (const PhaseTimes& phases : times.phases) {
    for (const auto& [phase, ms] :
         {std::pair("forward", phases.forward_ms), std::pair("backward", phases.backward_ms), std::pair("update", phases.update_ms)}) {
      add_milliseconds(registry_, phase, ms);
    }
    if (phases.idle_ms > 0) {  // Of a GPU.
      add_milliseconds(registry_, "device_idle", phases.idle_ms);
    }
  }
  registry_.gauge("darkroom_train_learning_rate", "Learning rate of the last step.").set(report.learning_rate);
  Counter& skipped =
      registry_.counter("darkroom_train_skipped_steps_total", "Steps that were left out, because their numbers were not finite.");
  if (times.is_skipped) {
    skipped.add();
  } else if (!report.is_ahead) {
    registry_.gauge("darkroom_train_loss", "Mean loss of the last step that was looked at.").set(report.loss);
    registry_.gauge("darkroom_train_grad_norm", "Norm of its gradient before clipping.").set(report.grad_norm);
  }
  registry_.gauge("darkroom_train_peak_memory_bytes", "Most memory that the rank's tensors took on its GPU, or the process on a CPU.")
      .set(static_cast<double>(peak_memory_bytes(facts_.device)));
  show_rate(times.step_ms);
}

void TrainMetrics::show_rate(double step_ms) {
  mean_ms_ += (mean_ms_ == 0 ? 1.0 : kMeanShare) * (step_ms - mean_ms_);
  if (mean_ms_ <= 0) {
    return;
  }
  images_per_second_.set(1000.0 * static_cast<double>(facts_.batch_size) / mean_ms_);
  if (facts_.step_flop > 0) {
    const double rank_flop_per_second = 1000.0 * facts_.step_flop / static_cast<double>(facts_.num_ranks) / mean_ms_;
    registry_.gauge("darkroom_train_flop_per_second", "Floating-point operations of the rank per second, over the last steps.")
        .set(rank_flop_per_second);
    if (facts_.rank_tflops > 0) {
      registry_.gauge("darkroom_train_peak_flop_per_second", "Peak of the rank: --tflops, or measured at start in products of matrices.")
          .set(1e12 * facts_.rank_tflops);
      registry_.gauge("darkroom_train_mfu", "Share of the rank's peak that its operations are.")
          .set(rank_flop_per_second / (1e12 * facts_.rank_tflops));
    }
  }
}

void TrainMetrics::show_spent(const GoodputLedger& ledger) {
  registry_.gauge("darkroom_train_goodput", "Share of training in the time that the run was not away.").set(ledger.goodput());
  for (size_t i = 0; i < kNumSpendings; ++i) {
    registry_
        .gauge("darkroom_train_spent_seconds", "What the wall time of the run went into, earlier starts included.",
               {{"spending", spending_name(static_cast<Spending>(i))}})
        .set(ledger.spent()[i]);
  }
}

}  // namespace darkroom
