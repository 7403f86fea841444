#pragma once

#include <cstdint>
#include <stop_token>
#include <string_view>

#include "darkroom/ingest/download_job.h"
#include "darkroom/ingest/job_plan.h"
#include "download_rules.h"
#include "repeat_finder.h"

namespace darkroom {

/// Which rows of the pinned list have a URL that a row before them has (--dedup url), by their numbers in the list. Only rows that would be
/// asked for count: what a condition drops, a bad URL, an empty caption and a denied row repeat nothing and are not repeated. The list
/// decides alone, so that it is the same for every process, order and restart.
/// It is read from OUT/_repeated-HASH.parquet (docs/formats/job.md) or found by reading the URLs and captions of the list, and stored
/// there. With --limit only the rows below it are looked at, and nothing is stored. Memory: half of --memory at most, and a bit a row.
/// Errors: open_pinned_input's, find_url_columns'; the store's; kCorruptData naming a damaged file; kCancelled.
Result<RowSet> find_repeated_urls(const JobPlan& plan, const DownloadOptions& options, const DownloadRules& rules,
                                  const std::stop_token& stop);

/// Whether a bit a row of the pinned list fits into `most_bytes`: a footer may say any number. `what` is for the message: whose repeats.
/// Errors: kResourceExhausted.
Status check_row_count(const JobPlan& plan, std::string_view what, int64_t most_bytes);

}  // namespace darkroom
