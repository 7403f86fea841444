#pragma once

#include <arrow/type.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/ingest/job_identity.h"
#include "darkroom/ingest/part_record.h"
#include "darkroom/stores/stores.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {

/// More rows than a file has: a number above it is damage.
inline constexpr int64_t kMaxInputRows = 100'000'000'000;

/// Looks at the columns of an input before anything is written; refuses those that the job cannot use.
using CheckColumns = std::function<Status(const arrow::Schema& schema, const std::string& path)>;

/// The input files that `uris` name, each once, in byte order of their paths: stores, paths, names and sizes. Of the parts of one item in
/// one folder the one that counts is taken (part_name.h). Errors: StoreSet::resolve_inputs'.
Result<std::vector<JobInput>> list_job_inputs(StoreSet& stores, const std::vector<std::string>& uris);
/// Those of an image dataset: Parquet files, tars, MDS shards or folders, whose paths end with a slash (docs/formats/image_containers.md).
/// Errors: StoreSet::resolve_image_inputs'.
Result<std::vector<JobInput>> list_image_job_inputs(StoreSet& stores, const std::string& uri);

/// Where files of a pinned list lie: each at its name below a folder.
struct InputRoot {
  Location folder = {};
  std::string only_name = {};  ///< Of the one file that was named; empty: any.

  bool may_hold(const std::string& name) const { return only_name.empty() || only_name == name; }
};
/// Where those that `uris` name may lie, in the order in which to look; lists nothing. Empty where names alone do not tell (a split of a
/// hub's dataset, an address that cannot be resolved).
std::vector<InputRoot> input_roots(StoreSet& stores, const std::vector<std::string>& uris);

/// Reads the end of every listed file, once each and up to 64 at a time: fills in `tail_sha256`, takes the size that it has now, and of a
/// Parquet file the number of rows (of others: -1). Of a folder all three are those of one listing (TableIdentity). Tables with other
/// columns than those before are shown to `check_columns`. Errors: the store's, check_columns', kCorruptData naming a damaged table;
/// kCancelled within the reads that are under way. REQUIRES: `store` is not null where an input names none; so of the next, too.
Status measure_inputs(Store* store, const CheckColumns& check_columns, const std::stop_token& stop, std::vector<JobInput>& inputs);

/// Counts the rows of those among them that are no Parquet files: text tables have to be read, tars walked through. Errors: open_table's
/// and TableReader::num_rows'; kCancelled between files.
Status count_other_rows(Store* store, const std::stop_token& stop, std::vector<JobInput>& inputs);

/// The pinned list of a job: its files in their order, and the ones that `inputs` holds besides.
struct PinnedInputs {
  std::vector<JobInput> inputs = {};  ///< With the paths and row counts.
  std::vector<JobInput> late = {};    ///< Came after the job was started, in byte order of their paths.
};

/// Finds the pinned files among the measured ones by name, size and hash, in the time of a sort. Errors: kFailedPrecondition naming the
/// files that are missing or changed, as refuse_other_job(output, had, wants).
Result<PinnedInputs> join_pins(std::vector<JobInput> measured, const std::vector<JobInput>& pins, const std::string& output,
                               const JobIdentity& wants);

/// A job goes on with the generations that it began with: a listed part that is a later generation of a pinned one is replaced by that one,
/// where that lies beside it or in _superseded/; the rows of both would be the same ones twice. Pins that are found in neither place are
/// left to join_pins. Errors: the store's; kCancelled. REQUIRES: as measure_inputs.
Status take_pinned_generations(Store* store, const std::vector<JobInput>& pins, const std::stop_token& stop, std::vector<JobInput>& listed);

/// Opens a pinned file to read its rows; a part whose next generation came meanwhile is read in _superseded/. Errors: open_table's;
/// kFailedPrecondition: its size or its end are not those that were pinned, so that it was replaced since. REQUIRES: as measure_inputs.
Result<std::unique_ptr<TableReader>> open_pinned_input(Store* store, const JobInput& input);

/// What a job pinned.
struct PinnedList {
  std::vector<JobInput> inputs = {};
  int64_t num_lists = 0;  ///< Files that were read: the number of the next extension.
};

/// Reads the list that `output` pinned: _inputs.parquet, then _inputs-1.parquet and so on, as --extend made them. Nothing when there is no
/// _inputs.parquet. Errors: kCorruptData saying what to delete; as refuse_other_job when it is another job's than `wants`.
Result<std::optional<PinnedList>> read_pins(const Location& output, const JobIdentity& wants);

/// Publishes pins as number `extension` of them (0: _inputs.parquet); first wins. Errors: the store's.
Result<PublishOutcome> write_pins(const Location& output, const JobIdentity& identity, int64_t extension,
                                  const std::vector<JobInput>& pins);

/// Removes every _inputs-N.parquet, the last one first; a rebuilt _inputs.parquet takes them in. Does nothing where there is an
/// _inputs.parquet: they are extensions of that one. Errors: the store's.
Status remove_pin_extensions(const Location& output);

/// Rebuilds a lost list from the parts' own records and the files that are there: files that parts name stand where these say; the gaps
/// between them are filled with the files whose names lie between, when their rows are as many as are missing there.
/// Errors: kFailedPrecondition naming a file that changed or is missing, or a gap that cannot be filled.
Result<std::vector<JobInput>> rebuild_pins(const std::vector<JobInput>& measured, const std::map<int64_t, PartRecord>& parts,
                                           const std::string& output, const JobIdentity& wants);

}  // namespace darkroom
