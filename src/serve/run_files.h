#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/serve/served_runs.h"

namespace darkroom {

// A run folder's files (docs/formats/run_folder.md) as whoever asks the server may see them: regular files below the folder, reached
// through no link, and bounded numbers of bytes. Nothing is kept between two calls, so each sees the folder as it is. Thread safety: any
// thread.

/// A part of metrics.jsonl.
struct MetricsPiece {
  std::vector<nlohmann::json> lines;  ///< Numbers by name.
  std::string next;                   ///< Where the next piece begins.
  bool is_anew = false;               ///< The file is another than the one that `from` is of: this is its beginning.
  bool has_more = false;              ///< There is more to read at once.
  int64_t num_unreadable = 0;         ///< Lines that say nothing, which are passed over.
};

/// Whole lines from the place on that an earlier piece named; empty: from the beginning. A last line without its end waits for it. A file
/// that is not there yet is an empty one. Errors: kInvalidArgument (`from`), kUnavailable.
Result<MetricsPiece> read_metrics(const ServedRun& run, std::string_view from);

/// What recipe.toml and run.json say of the run, and which samples and checkpoints there are. What cannot be read is null or absent.
nlohmann::json describe_run(const ServedRun& run);

/// The pictures of samples/step-`step`. Errors: kNotFound.
Result<nlohmann::json> describe_samples(const ServedRun& run, std::string_view step);

/// Asked for room before so many bytes are read; what it returns is kept as long as the bytes are.
using TakeRoom = std::function<Result<std::shared_ptr<const void>>(int64_t num_bytes)>;

struct RoomyBytes {
  std::string bytes;
  std::shared_ptr<const void> room;  ///< Shared with whoever gave it.
};

/// A PNG of samples/step-`step`. Errors: kNotFound (also what is no regular file, or a name that is none of a picture), kInvalidArgument
/// (too large), take_room's.
Result<RoomyBytes> read_sample(const ServedRun& run, std::string_view step, std::string_view file, const TakeRoom& take_room);

/// report.html. Errors: as read_sample.
Result<RoomyBytes> read_report(const ServedRun& run, const TakeRoom& take_room);

}  // namespace darkroom
