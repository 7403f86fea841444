#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/ingest/part_record.h"
#include "darkroom/stream/stage_stats.h"

namespace darkroom {

/// What the rows of one host came to.
struct HostCounts {
  std::string host = {};
  int64_t num_rows = 0;
  int64_t num_failed = 0;
  double seconds = 0;  ///< On the wire, of all its rows together.
};

/// What a run of a job would have to do, found out by looking alone: what estimates are made of.
struct PendingWork {
  int64_t num_rows = 0;         ///< Of the pending items.
  int64_t num_inputs = 0;       ///< Input files of the whole job.
  int64_t input_bytes = 0;      ///< The pending items' share of them.
  bool reads_objects = false;   ///< An input lies in a store that is no file system,
  bool writes_objects = false;  ///< or the output does.
  // The parts that are there already.
  int64_t part_rows_in = 0;
  int64_t part_rows_out = 0;
  int64_t part_bytes = 0;
  int64_t rewritten_bytes = 0;  ///< Of those whose failed rows are redone: all of it is read and written anew, and the old one stays.
  // The last run of this job that ended well and whose speed is known (download); 0: none.
  int64_t run_rows = 0;
  double run_seconds = 0;
  // What a job's tables say of the bytes of what they list (download).
  std::string size_column = {};  ///< "": none says it.
  int64_t sized_rows = 0;        ///< Rows that were looked at,
  double sized_bytes = 0;        ///< and the mean size that the column gives them.
  // Of an encoder (process).
  double encoded_row_bytes = 0;            ///< What is stored of a row besides columns that are carried along.
  double encoder_rows_per_second_low = 0;  ///< The slowest and the fastest row that one encoder worker was tried with;
  double encoder_rows_per_second_high = 0;
  int num_encoders = 0;         ///< how many such workers a run has;
  bool encodes_on_gpu = false;  ///< their networks leave the processors to decoding and resizing.
};

/// What a job amounts to. Always rows_in = rows_out + the sum of rows_by_error.
struct StageSummary {
  int64_t rows_in = 0;        ///< Of the whole job: earlier runs included.
  int64_t rows_out = 0;       ///< Good rows.
  RowsByError rows_by_error;  ///< Failed rows.
  int64_t rows_filtered = 0;  ///< Rows that a condition left out before they counted as rows in.
  int64_t rows_this_run = 0;  ///< Input rows that this run worked through.
  int64_t retries = 0;        ///< Of this run, like all below.
  int64_t bytes = 0;          ///< Bytes fetched (download) or read (process).
  double seconds = 0;
  int64_t num_parts = 0;                                 ///< Shards of the whole job.
  int64_t num_items = 0;                                 ///< Work items of the whole job.
  int64_t num_pending = 0;                               ///< Items that this run's selection had to do.
  std::map<std::string, std::string> first_errors = {};  ///< By code: why the first row failed that did (ToldErrors). Of this run.
  std::vector<HostCounts> hosts = {};                    ///< Of this run (download), the most remarkable ones: HostTally::top.
  PendingWork pending_work = {};                         ///< Of a dry run.
  int64_t num_invalid_captions = 0;                      ///< Captions whose invalid UTF-8 was replaced, earlier runs included.
  int64_t num_unported_captions = 0;  ///< Captions whose ids are not promised equal to open_clip's (text/clip_tokenizer.h), likewise.
  std::vector<StageSnapshot> stages;  ///< Counters of the pipeline's stages.

  int64_t rows_failed() const;
  /// Share of failed rows in percent; 0 without rows.
  double failed_percent() const;
  /// A stage's object in --json-summary (docs/command_line.md).
  nlohmann::json to_json() const;
  /// One line for the end of a job.
  std::string to_text(const std::string& name) const;
};

}  // namespace darkroom
