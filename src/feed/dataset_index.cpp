#include "darkroom/feed/dataset_index.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/quick_footer.h"
#include "darkroom/tables/table_footer.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/tensor_forms.h"
#include "hash_container.h"

namespace darkroom {
namespace {

constexpr int64_t kFormatVersion = 1;

// A file's identity without reading its data: the record of a shard of ours, else a hash of its footer.
Result<std::string> content_hash(const Location& place, const TableFooter& footer) {
  if (const std::string* record = footer.find(kShardKey); record != nullptr) {
    const auto parsed = parse_json(*record);
    if (parsed.is_object() && parsed.contains("content_hash") && parsed["content_hash"].is_string()) {
      return parsed["content_hash"].get<std::string>();
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto file, place.store->open_input(place.path, footer.file_bytes));
  std::vector<std::byte> bytes(static_cast<size_t>(footer.file_bytes - footer.content_bytes));
  DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file->read_at(footer.content_bytes, bytes));
  Sha256 hash;
  hash.update(std::span(bytes.data(), num_read));
  return "footer:" + hash.finish_hex();
}

/// What a file says of itself.
struct IndexedFile {
  int64_t num_rows = 0;
  std::string content_hash = {};
  RowGroups row_groups = {};
  int64_t num_bytes = 0;            // Decoded, of Parquet files.
  std::string latents_record = {};  // Empty: it has none.
};

using IndexOne = Result<IndexedFile> (*)(const Location& place);

Result<IndexedFile> index_container(const Location& place) {
  DARKROOM_ASSIGN_OR_RETURN(const auto table, open_table(place));
  IndexedFile indexed;
  DARKROOM_ASSIGN_OR_RETURN(indexed.num_rows, table->num_rows());
  DARKROOM_ASSIGN_OR_RETURN(indexed.content_hash, hash_container(place, *table));
  return indexed;
}

void take_footer(const TableFooter& footer, IndexedFile& indexed) {
  for (const RowGroupInfo& group : footer.row_groups) {
    indexed.row_groups.add({group.num_rows, group.num_rows > DatasetIndex::kRowsPerBlock ? group.num_rows : 0});
    indexed.num_bytes += group.num_bytes;
  }
  if (const std::string* record = footer.find(kLatentsFooterKey); record != nullptr) {
    indexed.latents_record = *record;
  }
}

Result<IndexedFile> index_images_file(const Location& place) {
  const Result<TableFormat> format = container_format(place.path);
  if (format.is_ok() && *format != TableFormat::kParquet) {
    return index_container(place);
  }
  DARKROOM_ASSIGN_OR_RETURN(const TableFooter footer, read_footer(place));
  IndexedFile indexed{.num_rows = footer.num_rows};
  DARKROOM_ASSIGN_OR_RETURN(indexed.content_hash, content_hash(place, footer));
  take_footer(footer, indexed);
  return indexed;
}

/// Of MDS shards, too, the record is wanted, for which images do without another request.
Result<IndexedFile> index_latents_file(const Location& place) {
  DARKROOM_ASSIGN_OR_RETURN(IndexedFile indexed, index_images_file(place));
  const Result<TableFormat> format = container_format(place.path);
  if (format.is_ok() && *format == TableFormat::kMds) {
    DARKROOM_ASSIGN_OR_RETURN(const TableFooter footer, read_footer(place));
    take_footer(footer, indexed);
  }
  return indexed;
}

/// A part may have moved aside since it was listed, or since the run began whose generations are taken.
Result<IndexedFile> index_part(const Location& place, IndexOne index_file) {
  Result<IndexedFile> indexed = index_file(place);
  if (indexed.status().code() != StatusCode::kNotFound || !PartName::parse(place.name())) {
    return indexed;
  }
  Result<IndexedFile> aside = index_file(place_aside(place));
  return aside.status().code() == StatusCode::kNotFound
             ? indexed.status().with_context("a part of the dataset is gone since it was listed or since the run began")
             : aside;
}

/// In the order of the objects: the first failure in that order is the one to report. A store that answers slowly is asked for many files
/// at a time.
Result<std::vector<IndexedFile>> index_files(const std::vector<InputObject>& objects, IndexOne index_file) {
  constexpr size_t kFilesAtOnce = 32;
  const Location& first = objects.front().place;
  const bool is_local = first.store->local_path(first.path).has_value();
  std::vector<std::optional<Result<IndexedFile>>> found(objects.size());
  std::atomic<size_t> next{0};
  std::atomic<bool> has_failed{false};
  const auto work = [&] {
    while (!has_failed) {  // A file that is taken is read: none before the first that failed may be missing.
      const size_t i = next++;
      if (i >= objects.size()) {
        return;
      }
      found[i] = index_part(objects[i].place, index_file);
      if (!found[i]->is_ok()) {
        has_failed = true;
      }
    }
  };
  std::vector<std::future<void>> helpers;
  for (size_t i = 1; !is_local && i < std::min(kFilesAtOnce, objects.size()); ++i) {
    helpers.push_back(std::async(std::launch::async, work));
  }
  work();
  for (auto& helper : helpers) {
    helper.get();
  }
  std::vector<IndexedFile> files;
  for (auto& file : found) {
    DARKROOM_ASSIGN_OR_RETURN(IndexedFile one, *std::move(file));  // One that was not asked for lies behind one that failed.
    files.push_back(std::move(one));
  }
  return files;
}

void take_record(const IndexedFile& file, const Location& place, std::vector<LatentsRecord>& records) {
  const bool is_known = std::ranges::find(records, file.latents_record, &LatentsRecord::text) != records.end();
  if (!file.latents_record.empty() && !is_known) {
    records.push_back({.text = file.latents_record, .shard = place});
  }
}

Result<IndexedDataset> build_index(const DatasetFiles& dataset, int64_t rows_per_part, IndexOne index_file) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<IndexedFile> files, index_files(dataset.objects, index_file));
  IndexedDataset indexed;
  std::vector<DatasetPart> parts;
  int64_t num_bytes = 0, rows_of_bytes = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string name = dataset.name_of(dataset.objects[i].place);
    int64_t first = 0;
    do {
      const int64_t count = std::min(rows_per_part, files[i].num_rows - first);
      parts.push_back({name, files[i].content_hash, first, count});
      first += count;
    } while (first < files[i].num_rows);
    indexed.row_groups.add(files[i].row_groups);
    num_bytes += files[i].num_bytes;
    rows_of_bytes += files[i].num_bytes > 0 ? files[i].num_rows : 0;
    take_record(files[i], dataset.objects[i].place, indexed.records);
  }
  indexed.mean_row_bytes = num_bytes / std::max<int64_t>(1, rows_of_bytes);
  indexed.index = DatasetIndex(std::move(parts));
  if (indexed.index.num_rows() == 0) {
    return Status::failed_precondition("the dataset has no rows to train on:", dataset.uri);
  }
  return indexed;
}

}  // namespace

Result<std::string> content_hash_of(const Location& file) {
  DARKROOM_ASSIGN_OR_RETURN(const TableFooter footer, read_footer(file));
  return content_hash(file, footer);
}

void take_indexed_generations(const DatasetIndex& began_with, DatasetFiles& dataset) {
  std::map<std::pair<std::string, int64_t>, PartName> pinned;  // By folder and item.
  for (const DatasetPart& part : began_with.parts()) {
    if (const auto name = PartName::parse(file_name(part.name))) {
      pinned.emplace(std::pair(parent_folder(part.name), name->item), *name);
    }
  }
  for (InputObject& object : dataset.objects) {
    const auto listed = PartName::parse(object.place.name());
    const auto known = listed ? pinned.find({parent_folder(dataset.name_of(object.place)), listed->item}) : pinned.end();
    if (known != pinned.end() && listed->container == known->second.container && listed->generation > known->second.generation) {
      object.place = object.place.parent() / known->second.text();
    }
  }
}

Result<std::string> hash_container(const Location& place, const TableReader& table) {
  if (const auto identity = table.identity()) {
    return "listing:" + identity->sha256;
  }
  DARKROOM_ASSIGN_OR_RETURN(const ObjectTail tail, place.store->read_tail(place.path, kPlanningTailBytes));
  return fmt::format("end:{}:{}", tail.size_bytes, sha256_hex(tail.bytes));
}

DatasetIndex::DatasetIndex(std::vector<DatasetPart> parts) : parts_(std::move(parts)) {
  first_rows_.reserve(parts_.size() + 1);
  first_rows_.push_back(0);
  for (const auto& part : parts_) {
    first_rows_.push_back(first_rows_.back() + part.num_rows);
  }
}

Result<IndexedDataset> index_latents(const DatasetFiles& dataset) {
  return build_index(dataset, std::numeric_limits<int64_t>::max(), index_latents_file);
}

Result<IndexedDataset> index_images(const DatasetFiles& dataset, int64_t rows_per_file) {
  DARKROOM_CHECK(rows_per_file > 0, "a part must have rows:", rows_per_file);
  return build_index(dataset, rows_per_file, index_images_file);
}

Result<DatasetIndex> DatasetIndex::of_latents(const DatasetFiles& dataset) {
  DARKROOM_ASSIGN_OR_RETURN(IndexedDataset indexed, index_latents(dataset));
  return std::move(indexed.index);
}

Result<DatasetIndex> DatasetIndex::of_images(const DatasetFiles& dataset, int64_t rows_per_file) {
  DARKROOM_ASSIGN_OR_RETURN(IndexedDataset indexed, index_images(dataset, rows_per_file));
  return std::move(indexed.index);
}

std::vector<int32_t> DatasetIndex::block_rows() const {
  std::vector<int32_t> blocks;
  for (const auto& part : parts_) {
    for (int64_t first = 0; first < part.num_rows; first += kRowsPerBlock) {
      blocks.push_back(static_cast<int32_t>(std::min(kRowsPerBlock, part.num_rows - first)));
    }
  }
  return blocks;
}

RowPlace DatasetIndex::place_of(int64_t row) const {
  DARKROOM_CHECK(row >= 0 && row < num_rows(), "a row lies outside the dataset (row, rows):", row, num_rows());
  const auto after = std::upper_bound(first_rows_.begin(), first_rows_.end(), row);
  const auto part = static_cast<size_t>(after - first_rows_.begin()) - 1;
  return {part, parts_[part].first_row + row - first_rows_[part]};
}

std::string DatasetIndex::to_json() const {
  auto parts = nlohmann::json::array();
  for (const auto& part : parts_) {
    parts.push_back({{"name", part.name}, {"content_hash", part.content_hash}, {"first_row", part.first_row}, {"num_rows", part.num_rows}});
  }
  const nlohmann::json index = {{"format_version", kFormatVersion}, {"rows_per_block", kRowsPerBlock}, {"parts", std::move(parts)}};
  return index.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string DatasetIndex::hash() const { return sha256_hex(to_json()); }

Result<DatasetIndex> DatasetIndex::from_json(std::string_view text) {
  const auto json = parse_json(text);
  if (!json.is_object()) {
    return Status::corrupt_data("the dataset index is no JSON object; bytes:", text.size());
  }
  try {
    if (json.value("format_version", int64_t{0}) != kFormatVersion || json.value("rows_per_block", int64_t{0}) != kRowsPerBlock) {
      return Status::failed_precondition("the dataset index has another format version than this program reads, which is:", kFormatVersion);
    }
    std::vector<DatasetPart> parts;
    for (const auto& part : json.at("parts")) {
      parts.push_back({part.at("name").get<std::string>(), part.at("content_hash").get<std::string>(), whole_number(part.at("first_row")),
                       whole_number(part.at("num_rows"))});
      if (parts.back().num_rows < 0 || parts.back().first_row < 0) {
        return Status::corrupt_data("the dataset index has a part with a negative number of rows:", parts.back().name);
      }
    }
    return DatasetIndex(std::move(parts));
  } catch (const nlohmann::json::exception& error) {
    return Status::corrupt_data("the dataset index lacks a field, or has one of another type:", error.what());
  }
}

}  // namespace darkroom
