#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "darkroom/core/metrics.h"
#include "goodput_ledger.h"
#include "progress_line.h"

namespace darkroom {

struct TrainMetricsFacts {
  int64_t rank = 0;
  int64_t num_ranks = 1;
  int64_t last_step = 0;
  int64_t batch_size = 0;    ///< Of all ranks.
  int64_t rank_samples = 0;  ///< Of a batch, this rank's own.
  double step_flop = 0;      ///< Of all ranks; 0: not known.
  double rank_tflops = 0;    ///< Peak of a rank; 0: not known.
  torch::Device device = torch::kCPU;
};

/// One rank's numbers in a registry (docs/metrics.md, darkroom_train_*). Thread safety: one thread; scrapes come from any.
class TrainMetrics {
 public:
  /// `registry` outlives this object.
  TrainMetrics(MetricsRegistry& registry, const TrainMetricsFacts& facts);

  /// `steps_done` includes the step of `times`.
  void show_step(int64_t steps_done, const StepTimes& times);
  /// What the run's wall time went into: of rank 0.
  void show_spent(const GoodputLedger& ledger);

 private:
  void show_rate(double step_ms);

  MetricsRegistry& registry_;
  const TrainMetricsFacts facts_;
  Gauge& step_;
  Counter& images_;
  Gauge& images_per_second_;
  double mean_ms_ = 0;  // Exponential mean over about 20 steps.
};

}  // namespace darkroom
