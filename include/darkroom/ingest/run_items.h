#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "darkroom/ingest/item_pipeline.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/ingest/job_summary.h"
#include "darkroom/stream/progress.h"

namespace darkroom {

/// Runs the items that a job has to do, with its progress and that of its stages shown under `name`; `summary` gets the counts and the
/// stages, those of a run that failed, too. REQUIRES: the plan is prepared; as ItemRun.
template <typename Body>
Status run_items(const std::string& name, JobRun& run, ItemJob<Body> job, BodyMemory& intake, BodyPool* pool,
                 const ItemPipelineOptions& options, MetricsRegistry* metrics, const std::stop_token& stop, StageSummary& summary) {
  const auto job_metrics = metrics == nullptr ? std::nullopt : std::optional(collect_job_metrics(*metrics, run));
  ItemRun<Body> items(run, std::move(job), intake, pool, options, metrics, stop);
  const auto give_up = [&run, &stop] {
    if (!stop.stop_requested()) {
      run.give_up();
    }
  };
  const std::stop_callback at_failure(items.stop_token(), give_up);  // The other threads may wait for a store.
  Status status;
  {
    const ProgressReporter reporter(name, [&] {
      ProgressState state = run.progress();
      state.queue_depth = items.num_waiting();
      state.stages = items.snapshots();
      return state;
    });
    status = items.execute();
  }
  run.fill(summary);
  summary.stages = items.snapshots();
  return status;
}

}  // namespace darkroom
