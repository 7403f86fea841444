#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "command_line.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/process_metrics.h"
#include "darkroom/ingest/selection.h"
#include "darkroom/stores/stores.h"
#include "darkroom/web/metrics_server.h"

namespace darkroom {

/// Which part of a job a process does, and --clean: flags of every job.
void add_selection_flags(VerbDefinition& verb, Selection& selection, bool& clean);

/// Where what waits may go to disk.
struct ScratchFlags {
  std::string folder = {};
  int64_t num_bytes = -1;  ///< Negative: the default.
};
void add_scratch_flags(VerbDefinition& verb, ScratchFlags& scratch);

/// --metrics-port: where a job's numbers are served while it runs; `address` stays empty where they are not.
void add_metrics_flag(VerbDefinition& verb, std::string& address);

/// A job's numbers, and the server that shows them, if one was asked for.
class JobMetrics {
 public:
  /// Errors: MetricsServer::start's.
  static Result<std::unique_ptr<JobMetrics>> start(const std::string& address);

  MetricsRegistry& registry() { return registry_; }

 private:
  JobMetrics() = default;

  MetricsRegistry registry_;
  MetricsRegistry::Collection process_ = collect_process_metrics(registry_);
  std::unique_ptr<MetricsServer> server_;
};

/// What --clean does instead of the job.
Result<int> run_clean(StoreSet& stores, const std::string& output, VerbContext& context);

}  // namespace darkroom
