#pragma once

#include "darkroom/core/metrics.h"

namespace darkroom {

/// Has processor time and resident memory of this process and of its children read at each scrape (docs/metrics.md). Several of one
/// registry count once. REQUIRES: the registry outlives what is returned.
MetricsRegistry::Collection collect_process_metrics(MetricsRegistry& metrics);

}  // namespace darkroom
