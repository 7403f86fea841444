#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "command_line.h"
#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/core/trace_recorder.h"
#include "darkroom/web/metrics_server.h"

namespace darkroom {

/// How a job lets itself be looked at while it runs: flags of every job.
struct ObservationFlags {
  std::string metrics_address = {};  ///< Empty: its numbers are not served.
  std::string price = {};            ///< Of an hour: a number or MACHINE[:PURCHASE] of the catalogue, perhaps *SHARE; empty: not known.
  std::string trace_path = {};       ///< Empty: no spans.
};
void add_observation_flags(VerbDefinition& verb, ObservationFlags& flags);
/// The same without --trace-file.
void add_metrics_flags(VerbDefinition& verb, ObservationFlags& flags);

/// Which process is looked at.
struct ObservedProcess {
  std::string verb;
  std::string output = {};  ///< Of the job or run, where its address is left if it is local; empty: nowhere.
  int64_t rank = 0;
  int64_t local_rank = 0;      ///< Added to the port.
  int64_t local_ranks = 1;     ///< Which share the price.
  bool has_own_route = false;  ///< It shows its numbers at another port, too: they are there without --metrics-port.
};

/// A job's numbers and spans, and the server that shows the numbers, if one was asked for. Its address lies in OUTPUT/_metrics as long as
/// it lives (docs/metrics.md). At its end the trace is complete.
class JobObservation {
 public:
  /// Errors: MetricsServer::start's, TraceRecorder::open's, kInvalidArgument (the price), those of the catalogue and of the address's file.
  static Result<std::unique_ptr<JobObservation>> start(const ObservationFlags& flags, const ObservedProcess& process);
  ~JobObservation();
  JobObservation(const JobObservation&) = delete;
  JobObservation& operator=(const JobObservation&) = delete;

  MetricsRegistry& registry() { return registry_; }
  TraceRecorder* trace() { return trace_.get(); }  ///< Null: no spans are wanted.
  bool is_served() const { return server_ != nullptr; }
  /// Puts into a verb's part of the summary what the process has cost, and `num_processes` of its kind that began with it, and says it.
  /// Without a price nothing.
  void tell_cost(nlohmann::json& stage, int64_t num_processes = 1) const;

 private:
  JobObservation() = default;
  void collect();
  Status serve(const std::string& address, const ObservedProcess& process);
  Status leave_address(const std::string& folder, const ObservedProcess& process);

  std::string verb_;
  std::optional<double> dollars_per_hour_;  // Of this process.
  Clock::Instant began_ = system_clock().now();
  MetricsRegistry registry_;
  std::vector<MetricsRegistry::Collection> collections_;
  std::unique_ptr<MetricsServer> server_;
  std::unique_ptr<TraceRecorder> trace_;
  std::string address_file_;  // Empty: none.
  bool has_made_output_ = false;
};

/// The price of an hour that `text` says: DOLLARS or MACHINE[:PURCHASE], and of a part of the machine *SHARE behind it. Errors:
/// kInvalidArgument, those of the catalogue.
Result<double> read_price(const std::string& text);
/// The file of a rank's spans: "spans.jsonl" of rank 0, "spans-rank3.jsonl" of rank 3.
std::string trace_path_of_rank(const std::string& path, int64_t rank);

}  // namespace darkroom
