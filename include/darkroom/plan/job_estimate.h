#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/ingest/job_summary.h"
#include "darkroom/plan/catalogue.h"
#include "darkroom/plan/measured.h"

namespace darkroom {

/// A number that a job knows, or that is assumed, and where it comes from.
struct Known {
  Range value = {};
  std::string from = {};
};

/// What is known of the rest of a job before it runs.
struct JobOutlook {
  int64_t num_items = 0;        ///< Of the whole job.
  int64_t num_pending = 0;      ///< Items that this run would do,
  int64_t num_rows = 0;         ///< and their rows.
  int64_t num_inputs = 0;       ///< Input files of the whole job.
  int64_t input_bytes = 0;      ///< What of them the pending items cover.
  int64_t rewritten_bytes = 0;  ///< Of parts whose failed rows are redone: they are read and written whole besides.
  Known good_percent = {};      ///< Of the rows; from 0 to 100.
  Known row_bytes = {};         ///< Of a good row in the output.
  Known row_bytes_in = {};      ///< Fetched for a good row besides input_bytes; 0: nothing.
  Known rows_per_second = {};
  bool is_rate_measured = false;  ///< By a run, not put together from the catalogue.
  bool reads_objects = false;     ///< The inputs lie in a store that counts requests,
  bool writes_objects = false;    ///< or the output does.
};

/// What the rest of a job comes to, from the best case to the worst.
struct JobEstimate {
  JobOutlook outlook = {};
  Range rows_out = {};
  Range bytes_in = {};
  Range bytes_out = {};
  Range hours = {};
  Range writes = {};  ///< Requests that are billed as PUT, POST or LIST,
  Range reads = {};   ///< and as GET or HEAD.
  Range dollars_for_requests = {};
  Range dollars_per_month = {};  ///< Of keeping the output.
  std::vector<std::string> assumptions = {};

  /// Lines for the log: what comes out, then on what it rests.
  std::string to_text() const;
  /// The object `estimate` of a summary (docs/plan.md).
  nlohmann::json to_json() const;
};

/// The lower rate: of two things that go on at once, each with means of its own (a line, a processor).
Range slower_of(const Range& a, const Range& b);
/// The rate of two things that share the same processors; either rate is what all of them reach alone.
Range shared_by(const Range& a, const Range& b);

/// The outlook of a download, or of a process job, from what a dry run found; what the job itself does not tell comes from another job that
/// was `measured`, then from the catalogue. Of speeds the measured one comes first, because it was named. `num_cores` work. Errors:
/// kFailedPrecondition (the catalogue lacks a figure; nothing of a download was measured).
Result<JobOutlook> download_outlook(const StageSummary& summary, const Catalogue& catalogue, int num_cores,
                                    const MeasuredRates& measured = {});
Result<JobOutlook> process_outlook(const StageSummary& summary, const Catalogue& catalogue, int num_cores);

/// Objects up to this size are one PUT; larger ones are parts of this size (docs/stores.md).
inline constexpr int64_t kObjectPartBytes = int64_t{8} << 20;

/// Pure. Errors: kFailedPrecondition (the catalogue lacks a price). REQUIRES: counts and ranges of 0 or more.
Result<JobEstimate> estimate_job(const JobOutlook& outlook, const Catalogue& catalogue);

}  // namespace darkroom
