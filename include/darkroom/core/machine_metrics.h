#pragma once

#include <string>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"

namespace darkroom {

// Metrics of the machine and of what it costs (docs/metrics.md), read at each scrape of `metrics`, which outlives the Collection.

/// Processor time and memory of the whole machine, from Linux's `stat` and `meminfo` in `proc_folder`; what is not there has no series.
MetricsRegistry::Collection collect_host_metrics(MetricsRegistry& metrics, const std::string& proc_folder = "/proc");

/// Memory and utilisation of every GPU, as NVIDIA's management library says, by its file name or path; without it, without a driver or a
/// GPU there are no such series. Nothing is allocated on a GPU.
MetricsRegistry::Collection collect_gpu_metrics(MetricsRegistry& metrics, const std::string& library = "libnvidia-ml.so.1");

/// What the process has cost since `began`, at a price of its machine, or of its share of it. REQUIRES: dollars_per_hour >= 0.
MetricsRegistry::Collection collect_cost_metrics(MetricsRegistry& metrics, double dollars_per_hour, Clock& clock, Clock::Instant began);

}  // namespace darkroom
