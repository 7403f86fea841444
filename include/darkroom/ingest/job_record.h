#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"
#include "darkroom/ingest/job_summary.h"

namespace darkroom {

/// One pinned input file of a job.
struct JobInput {
  std::string path;
  std::string name;  ///< Relative to the folder, pattern or file that was asked for: a moved job keeps its fingerprint.
  int64_t size_bytes = 0;
  std::string edges_sha256;  ///< Over the first and the last 64 KiB: a Parquet footer and its hashes lie there.
  int64_t num_rows = 0;
  int64_t first_row = 0;  ///< Number of its first row in the pinned list.
};

/// A piece of a job with one output shard: up to rows_per_file consecutive rows of one input file.
struct WorkItem {
  int64_t number = 0;
  size_t input = 0;       ///< Index into JobRecord::inputs.
  int64_t first_row = 0;  ///< Within the input file.
  int64_t num_rows = 0;   ///< That this run wants: less than the item has only where --limit cuts it.
  int64_t list_row = 0;   ///< Number of its first row in the pinned list.

  std::string part_name() const;
};

/// What decides the bytes of a job: its verb, fields and pinned inputs.
struct JobRecord {
  std::string verb;
  nlohmann::json fields;  ///< Flags, seed, model fingerprints and algorithm versions that decide the bytes; one flat object.
  std::vector<JobInput> inputs;
  int64_t rows_per_file = 0;

  /// SHA-256 over the canonical JSON of all the above, paths left aside.
  std::string fingerprint() const;
  int64_t num_rows() const;
  /// All items that hold one of the first `limit` rows (negative: all rows), in order.
  std::vector<WorkItem> items(int64_t limit = -1) const;
  /// Contents of _job.json.
  nlohmann::json to_json() const;
};

/// What one item amounts to; written into its shard's footer.
struct ItemTally {
  int64_t rows_in = 0;
  int64_t rows_out = 0;
  RowsByError rows_by_error;
  int64_t num_invalid_captions = 0;
  int64_t num_unported_captions = 0;

  void add(const ItemTally& other);
};

/// A shard that is there.
struct CommittedPart {
  std::string path;
  ItemTally tally;
  std::string content_hash;
};

/// "part-000042.parquet".
std::string part_name(int64_t number);

/// "000000001234": the key of a row without one of its own.
std::string row_key(int64_t list_row);

/// Pins the inputs that `uris` name, in byte order of their paths. When `output` holds a job whose pinned files are all still there
/// unchanged, that job's list is used and files that came later are left out with a warning.
/// Errors: list_inputs', open_table's and num_rows'.
Result<std::vector<JobInput>> pin_inputs(FileSystem& files, const std::vector<std::string>& uris, const std::string& output);

/// The value of the footer key darkroom.shard (docs/formats/job.md); ShardWriter adds content_hash.
std::string shard_footer(const JobRecord& record, const std::string& fingerprint, const WorkItem& item, const ItemTally& tally);

/// Looks at an output folder and refuses it when it belongs to another job; changes nothing.
/// Returns the committed parts by item number: the whole resume state. Errors: kFailedPrecondition naming the fields that differ;
/// kCorruptData naming a part whose footer cannot be read or that belongs to another job.
Result<std::map<int64_t, CommittedPart>> find_parts(FileSystem& files, const std::string& output, const JobRecord& record);

/// The committed part of one item. Errors: as find_parts, and kNotFound.
Result<CommittedPart> read_part(FileSystem& files, const std::string& output, int64_t number, const JobRecord& record);

/// Makes the folder ready to work in: creates it, clears what dead writers left, writes _job.json when it is not there.
Status prepare_job_folder(FileSystem& files, const std::string& output, const JobRecord& record);

/// Writes _summary.json: totals of all parts and one entry a part.
Status write_job_summary(FileSystem& files, const std::string& output, const JobRecord& record,
                         const std::map<int64_t, CommittedPart>& parts);

}  // namespace darkroom
