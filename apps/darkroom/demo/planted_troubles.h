#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "darkroom/core/result.h"
#include "darkroom/ingest/job_summary.h"

namespace darkroom {

/// What the corpus says that a download of all its rows must report (expected.json, docs/corpus.md).
struct PlantedTroubles {
  int64_t rows = 0;
  int64_t good_rows = 0;
  RowsByError rows_by_error;
  int64_t passing = 0;            ///< Retries that rows with a passing trouble need.
  int64_t lasting_per_retry = 0;  ///< Rows that use up every retry that they get.

  /// Errors: kCorruptData.
  static Result<PlantedTroubles> parse(std::string_view expected_json);
  /// Retries of a download that allows `num_retries` (at least 1) a row.
  int64_t retries(int64_t num_retries) const { return passing + num_retries * lasting_per_retry; }
  /// The same facts for summary.json.
  nlohmann::json to_json(int64_t num_retries) const;
};

/// Whether a download met exactly what was planted. Errors, both naming every count that differs: kUnavailable when nothing
/// but more rows that ran out of time explains it, as happens on a machine that is busy or slow; kInternal otherwise.
Status check_download(const PlantedTroubles& planted, const StageSummary& download, int64_t num_retries);

/// Downloads with one deadline per URL after the other until `download` ends otherwise than with kUnavailable; says in the log
/// why it begins again. Returns the last one's status.
Status download_in_time(std::span<const std::chrono::seconds> deadlines, const std::function<Status(std::chrono::seconds)>& download);

}  // namespace darkroom
