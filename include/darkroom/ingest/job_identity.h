#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/tables/part_name.h"

namespace darkroom {

/// Of what download and process write (docs/formats/job.md): footers of parts, _job.json, _inputs.parquet, _summary.json.
inline constexpr int kJobFormatVersion = 2;

/// What decides the bytes of every item of a job. Its inputs are not in it: each item knows its own (item_fingerprint).
struct JobIdentity {
  std::string verb = {};
  nlohmann::json fields = {};  ///< Flags, seed, model fingerprints and algorithm versions that decide the bytes; one flat object.
  int64_t rows_per_file = 0;
  PartContainer container = PartContainer::kParquet;  ///< Of its parts; the fields that choose it are in `fields`.

  nlohmann::json to_json() const;
  /// SHA-256 over the canonical text of to_json().
  std::string hash() const;
};

/// One pinned input file of a job.
struct JobInput {
  std::string path = {};
  std::string name = {};  ///< Relative to the folder, pattern or file that was asked for: a moved job keeps its fingerprints. Any bytes.
  int64_t size_bytes = 0;
  std::string tail_sha256 = {};  ///< Over the last 64 KiB: a Parquet footer and its hashes lie there.
  int64_t num_rows = 0;
  int64_t first_row = 0;   ///< Number of its first row in the pinned list.
  int64_t first_item = 0;  ///< Number of its first item.
  Store* store = nullptr;  ///< Of its path; null: the one that the job's request names.
};

/// Where an input is read. REQUIRES: `otherwise` is the store of an input that names none.
Location place_of(Store* otherwise, const JobInput& input);

/// A piece of a job with one output part: up to rows_per_file consecutive rows of one input file.
struct WorkItem {
  int64_t number = 0;
  size_t input = 0;        ///< Index into the pinned inputs.
  int64_t first_row = 0;   ///< Within the input file.
  int64_t num_rows = 0;    ///< That this run works through: less than the item has where --limit cuts it, or where failed rows are redone.
  int64_t whole_rows = 0;  ///< That the item has.
  int64_t list_row = 0;    ///< Number of its first row in the pinned list.
  int64_t generation = 0;  ///< Of the part that is made: above 0 failed rows of the generation before are redone.
  PartContainer container = PartContainer::kParquet;

  /// Under which it is published: another one where --limit cuts it (tables/part_name.h).
  std::string part_name() const;

  bool operator==(const WorkItem&) const = default;
};

/// How many items an input of `num_rows` rows is cut into. REQUIRES: rows_per_file > 0.
int64_t num_items_of(int64_t num_rows, int64_t rows_per_file);

/// Of all of them. REQUIRES: numbered inputs; rows_per_file > 0.
int64_t num_items_of(const std::vector<JobInput>& inputs, int64_t rows_per_file);

/// Numbers the rows and items of the list through. REQUIRES: rows_per_file > 0.
void number_inputs(std::vector<JobInput>& inputs, int64_t rows_per_file);

/// The whole item of that number; its cost is that of a binary search. REQUIRES: numbered inputs; 0 <= number < their number of items.
WorkItem find_item(const std::vector<JobInput>& inputs, int64_t rows_per_file, int64_t number);

/// What one item's part must carry to be this item's: the same job, input file and rows. Costs the same however many inputs there are.
std::string item_fingerprint(const std::string& job_hash, const JobInput& input, const WorkItem& item);

/// "000000001234": the key of a row without one of its own.
std::string row_key(int64_t list_row);

/// Canonical text: keys sorted, no white space; bytes that are no UTF-8 are replaced.
std::string canonical_text(const nlohmann::json& json);

/// Sets `name` of an object to a file's name so that it can be read back whatever its bytes: where they are no UTF-8, `name_hex` stands
/// beside what can be shown.
void set_file_name(nlohmann::json& object, const std::string& name);
/// Reads it back. Errors (throws nlohmann::json::exception): no such field.
std::string get_file_name(const nlohmann::json& object);

/// Why `output` cannot be used for the job `wants`: kFailedPrecondition naming the fields that differ from `had`, the identity of what is
/// there, and `more_differences`.
Status refuse_other_job(const std::string& output, const nlohmann::json& had, const JobIdentity& wants,
                        std::vector<std::string> more_differences = {});

}  // namespace darkroom
