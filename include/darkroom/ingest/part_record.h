#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/ingest/job_identity.h"

namespace darkroom {

/// Failed rows by their stable code.
using RowsByError = std::map<std::string, int64_t>;

/// How often rows of a part were redone for the same list of codes (RetryCodes::text): the number of the last such round of the whole job.
using RetryRounds = std::map<std::string, int64_t>;

/// What one item amounts to. Always rows_in = rows_out + the sum of rows_by_error.
struct ItemTally {
  int64_t rows_in = 0;
  int64_t rows_out = 0;
  int64_t rows_filtered = 0;  ///< Left out before they counted as rows in.
  RowsByError rows_by_error = {};
  int64_t num_invalid_captions = 0;
  int64_t num_unported_captions = 0;
  std::map<std::string, std::vector<int64_t>> failed_rows = {};  ///< Which ones, by code: numbers within the item, ascending.

  /// Adds the counts and appends the failed rows. REQUIRES: where both have failed rows, they are of one item, in order.
  void add(const ItemTally& other);
  /// Whether no count is negative, rows_in = rows_out + the sum of rows_by_error, and rows_in + rows_filtered = `considered`.
  bool adds_up_to(int64_t considered) const;
};

/// What a part says about itself in its footer, under kShardKey (docs/formats/job.md).
struct PartRecord {
  int version = kJobFormatVersion;
  std::string job = {};          ///< JobIdentity::hash().
  nlohmann::json identity = {};  ///< JobIdentity::to_json(); of version 1 with inputs_sha256.
  std::string fingerprint = {};  ///< item_fingerprint(); version 1 has none.
  int64_t item = 0;
  int64_t generation = 0;
  int64_t considered = 0;  ///< Rows of the item that were worked through: fewer than num_rows where --limit cut it.
  JobInput input = {};     ///< Without its path; version 1 has only the name.
  int64_t first_row = 0;   ///< Within the input file.
  int64_t num_rows = 0;    ///< Of the whole item; of version 1 those considered.
  ItemTally tally = {};
  RetryRounds retried = {};
  std::string content_hash = {};  ///< Written by ShardWriter.
};

/// The value of the footer key; ShardWriter adds content_hash.
std::string print_part_record(const PartRecord& record);

/// Reads a record of version 1 or 2. Errors: kCorruptData saying what is missing or cannot be; kFailedPrecondition for a later version.
Result<PartRecord> parse_part_record(std::string_view json);

/// The record of a part. Errors: kNotFound; kCorruptData naming the part and saying to move it away.
Result<PartRecord> read_part_record(const Location& part);

/// Row numbers, ascending, as text: base64 of the LEB128 numbers of the first one and of the distances between them.
std::string pack_rows(const std::vector<int64_t>& rows);
/// Errors: kCorruptData for what pack_rows does not give.
Result<std::vector<int64_t>> unpack_rows(std::string_view text);

}  // namespace darkroom
