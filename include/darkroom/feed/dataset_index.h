#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/feed/dataset_files.h"

namespace darkroom {

/// A run of rows of one file.
struct DatasetPart {
  std::string name;          ///< The file's path within the dataset's folder.
  std::string content_hash;  ///< Of the file: the shard record's, "footer:" and the SHA-256 of a foreign file's footer, "listing:" and that
                             ///< of a folder's names and sizes, or "end:", size and SHA-256 of the last 64 KiB.
  int64_t first_row = 0;     ///< Within the file.
  int64_t num_rows = 0;

  bool operator==(const DatasetPart&) const = default;
};

/// Where a row of the dataset lies.
struct RowPlace {
  size_t part = 0;  ///< Index into parts().
  int64_t row = 0;  ///< Within the file.
};

/// What a DatasetPart says of a Parquet file. Reads its footer. Errors: kNotFound, kCorruptData, those of the store.
Result<std::string> content_hash_of(const Location& file);

/// What a run trains on, pinned at its start (docs/formats/dataset_index.md): rows are numbered through all parts; a part is
/// cut into blocks of at most 256 rows. Immutable; thread-safe.
class DatasetIndex {
 public:
  static constexpr int64_t kRowsPerBlock = 256;

  explicit DatasetIndex(std::vector<DatasetPart> parts);

  /// Of a latents dataset: one part a shard. Reads the footers only, of a remote store many at a time.
  /// Errors: kNotFound, kCorruptData (a damaged footer), kFailedPrecondition (no rows at all), those of the store.
  static Result<DatasetIndex> of_latents(const DatasetFiles& dataset);
  /// Of an image dataset: parts are the work items of `process` with the same --rows-per-file, so that the online order is
  /// the offline one. Reads text tables and the headers of tars whole. Errors: as of_latents; TableReader's.
  static Result<DatasetIndex> of_images(const DatasetFiles& dataset, int64_t rows_per_file);
  /// Errors: kCorruptData, kFailedPrecondition (a later format version).
  static Result<DatasetIndex> from_json(std::string_view text);

  const std::vector<DatasetPart>& parts() const { return parts_; }
  int64_t num_rows() const { return first_rows_.back(); }
  /// Rows of each block, in order, for CanonicalOrder.
  std::vector<int32_t> block_rows() const;
  /// REQUIRES: 0 <= row < num_rows().
  RowPlace place_of(int64_t row) const;
  /// index.json: the same index is the same text.
  std::string to_json() const;
  /// SHA-256 of to_json().
  std::string hash() const;

 private:
  std::vector<DatasetPart> parts_;
  std::vector<int64_t> first_rows_;  // Of each part in the dataset, then the total.
};

/// What latents shards of one make say of themselves in their footers, under kLatentsFooterKey.
struct LatentsRecord {
  std::string text = {};  ///< As it stands there.
  Location shard = {};    ///< The first one that says so.
};

/// Row groups of Parquet files, which are read and kept whole.
struct RowGroups {
  int64_t largest = 0;        ///< Its rows; 0: there are no row groups.
  int64_t rows_in_large = 0;  ///< Of all that hold more than a block.

  void add(const RowGroups& others) {
    largest = std::max(largest, others.largest);
    rows_in_large += others.rows_in_large;
  }
};

/// A dataset with what else was seen in the footers that its index comes from.
struct IndexedDataset {
  DatasetIndex index{{}};
  RowGroups row_groups = {};                ///< Of all files.
  int64_t mean_row_bytes = 0;               ///< Of the rows of Parquet files, decoded; 0: there is none.
  std::vector<LatentsRecord> records = {};  ///< Each text once, in the order of the shards; shards without a record give none.
};

/// DatasetIndex::of_latents and of_images with the rest. Errors: theirs.
Result<IndexedDataset> index_latents(const DatasetFiles& dataset);
Result<IndexedDataset> index_images(const DatasetFiles& dataset, int64_t rows_per_file);

/// A run goes on with the generations that it began with: of the dataset's files, each that is a later generation of one in its index is
/// replaced by that one, which is read in _superseded/ where it has moved there (place_aside). Looks at names only.
void take_indexed_generations(const DatasetIndex& began_with, DatasetFiles& dataset);

}  // namespace darkroom
