#pragma once

#include <memory>
#include <stop_token>

#include "darkroom/core/metrics.h"
#include "darkroom/stores/stores.h"

namespace darkroom {

/// The stores that a verb reads and writes: local paths, file://, s3://, hf://, https:// and http://. Nothing is opened, and no credentials
/// are looked for, before the first address of a kind comes; keys and servers come from the environment and the AWS and Hugging Face files
/// (docs/stores.md, docs/hub.md). `metrics` outlives the set. Reads of web and hub, and all of s3, end with kCancelled when `stop` is asked
/// for: who still writes after a stop (a last checkpoint) gives none.
std::unique_ptr<StoreSet> open_stores(MetricsRegistry& metrics, std::stop_token stop);
/// The same for a job that goes on for days: a store, hub or web server that answered before and cannot be reached is waited for for up to
/// twelve hours, or until `stop` is asked for; the log says so.
std::unique_ptr<StoreSet> open_job_stores(MetricsRegistry& metrics, std::stop_token stop);

}  // namespace darkroom
