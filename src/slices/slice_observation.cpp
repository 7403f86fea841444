#include "darkroom/slices/slice_observation.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace darkroom {
namespace {

using std::chrono::steady_clock;

/// What a stage of a job counts, too (stream/pipeline): the same names.
struct SliceCounters {
  SliceCounters(MetricsRegistry& metrics, const std::string& stage)
      : rows(metrics.counter("darkroom_rows_total", "Rows that a stage has finished.", {{"stage", stage}})),
        bytes(metrics.counter("darkroom_bytes_total", "Bytes that a stage has finished.", {{"stage", stage}})),
        busy(seconds(metrics, stage, "busy")),
        starved(seconds(metrics, stage, "starved")) {}

  static SecondsCounter& seconds(MetricsRegistry& metrics, const std::string& stage, const char* state) {
    return metrics.seconds_counter("darkroom_stage_seconds_total", "Time of a stage's workers, by what they did.",
                                   {{"stage", stage}, {"state", state}});
  }

  Counter& rows;
  Counter& bytes;
  SecondsCounter& busy;
  SecondsCounter& starved;
};

SliceMaker counted(SliceMaker make, int num_workers, const SliceObservation& observation) {
  const SliceCounters counters(*observation.metrics, observation.stage);
  // Each worker's own moment; shared by the copies of the maker.
  const auto rested = std::make_shared<std::vector<steady_clock::time_point>>(static_cast<size_t>(num_workers), steady_clock::now());
  return [make = std::move(make), counters, rested](int worker, std::span<const int64_t> rows) {
    steady_clock::time_point& rested_at = (*rested)[static_cast<size_t>(worker)];
    const steady_clock::time_point begin = steady_clock::now();
    counters.starved.add(begin - rested_at);
    Result<std::string> made = make(worker, rows);
    rested_at = steady_clock::now();
    counters.busy.add(rested_at - begin);
    if (made.is_ok()) {
      counters.rows.add(static_cast<int64_t>(rows.size()));
      counters.bytes.add(static_cast<int64_t>(made->size()));
    }
    return made;
  };
}

SliceMaker traced(SliceMaker make, const SliceObservation& observation) {
  return [make = std::move(make), stage = observation.stage, trace = observation.trace](int worker, std::span<const int64_t> rows) {
    TraceSpan span(trace, stage.c_str());
    span.set("darkroom.row", rows.front());
    span.set("darkroom.rows", static_cast<int64_t>(rows.size()));
    Result<std::string> made = make(worker, rows);
    span.fail(made.status());
    return made;
  };
}

}  // namespace

SliceMaker observe_slices(SliceMaker make, int num_workers, const SliceObservation& observation) {
  if (observation.trace != nullptr) {
    make = traced(std::move(make), observation);
  }
  if (observation.metrics != nullptr) {
    make = counted(std::move(make), num_workers, observation);
  }
  return make;
}

}  // namespace darkroom
