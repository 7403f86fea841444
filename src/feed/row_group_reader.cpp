#include "darkroom/feed/row_group_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "darkroom/tables/part_name.h"
#include "hash_container.h"

namespace darkroom {
namespace {

constexpr int64_t kOpenFiles = 64;
constexpr int64_t kRowsOfRun = kRowsPerTarMark;
constexpr int64_t kGroupsPerFile = int64_t{1} << 24;

/// Numbers of rows mean nothing in a folder that grew, or in a file that was replaced.
Status check_unchanged(const Location& place, const TableReader& table, const std::string& hash_then) {
  const bool has_footer = table.format() == TableFormat::kParquet;
  DARKROOM_ASSIGN_OR_RETURN(const std::string hash_now, has_footer ? content_hash_of(place) : hash_container(place, table));
  return hash_now == hash_then
             ? Status::ok()
             : Status::corrupt_data("the file or folder changed since the run began (path, then, now):", place.uri(), hash_then, hash_now);
}

}  // namespace

RowGroupReader::RowGroupReader(DatasetIndex index) : index_(std::move(index)), open_files_(kOpenFiles) {}

std::unique_ptr<RowGroupReader> RowGroupReader::create(const DatasetFiles& dataset, DatasetIndex index) {
  std::unique_ptr<RowGroupReader> reader(new RowGroupReader(std::move(index)));
  std::string last_name;
  for (const auto& part : reader->index_.parts()) {
    // Parts of one file follow each other.
    if (reader->places_.empty() || part.name != last_name) {
      reader->places_.push_back(dataset.place_of(part.name));
      reader->paths_.push_back(reader->places_.back().uri());
      reader->rows_of_file_.push_back(0);
      reader->marks_.emplace_back();
      reader->first_rows_.emplace_back();
      last_name = part.name;
    }
    reader->file_of_part_.push_back(reader->places_.size() - 1);
    reader->rows_of_file_.back() += part.num_rows;
  }
  return reader;
}

const std::string& RowGroupReader::hash_then(size_t file) const {
  const auto part = std::ranges::lower_bound(file_of_part_, file) - file_of_part_.begin();
  return index_.parts()[static_cast<size_t>(part)].content_hash;
}

/// A part whose next generation came since the run began has moved aside; what another job left there under its name is none of ours.
Result<std::unique_ptr<TableReader>> RowGroupReader::open_aside(size_t file) const {
  const Location place = place_aside(places_[file]);
  DARKROOM_ASSIGN_OR_RETURN(auto table, open_table(place));
  if (table->format() == TableFormat::kParquet) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string hash, content_hash_of(place));
    if (hash != hash_then(file)) {
      return Status::corrupt_data("a part is gone, and what lies aside under its name is not it (part, aside):", paths_[file], place.uri());
    }
  }
  return table;
}

Result<std::vector<int64_t>> RowGroupReader::find_first_rows(size_t file, const Location& place, TableReader& reader) const {
  const int64_t num_rows = rows_of_file_[file];
  std::vector<int64_t> first_rows;
  if (reader.format() == TableFormat::kParquet) {
    DARKROOM_ASSIGN_OR_RETURN(const int64_t num_rows_now, reader.num_rows());
    if (num_rows_now != num_rows) {
      return Status::corrupt_data("the file changed since the run began (path, rows then, rows now):", paths_[file], num_rows,
                                  num_rows_now);
    }
    if (place.path == places_[file].path) {  // What lies aside has been compared.
      DARKROOM_RETURN_IF_ERROR(check_unchanged(place, reader, hash_then(file)));
    }
    for (const RowGroup& group : reader.row_groups(0, num_rows, {})) {
      first_rows.push_back(group.first_row);
    }
  } else {  // Counting a tar's rows again would walk through it.
    DARKROOM_RETURN_IF_ERROR(check_unchanged(place, reader, hash_then(file)));
    reader.take_row_marks(marks_[file]);
    for (int64_t first = 0; first < num_rows; first += kRowsOfRun) {
      first_rows.push_back(first);
    }
  }
  first_rows.push_back(num_rows);
  return first_rows;
}

Result<std::shared_ptr<const RowGroupReader::OpenFile>> RowGroupReader::open_file(size_t file) {
  if (auto held = open_files_.find(static_cast<int64_t>(file))) {
    return held;
  }
  OpenFile opened;
  Location place = places_[file];
  Result<std::unique_ptr<TableReader>> found = open_table(place);
  if (found.status().code() == StatusCode::kNotFound && PartName::parse(places_[file].name())) {
    Result<std::unique_ptr<TableReader>> aside = open_aside(file);
    if (aside.status().code() != StatusCode::kNotFound) {
      place = place_aside(place);
      found = std::move(aside);
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(opened.reader, std::move(found));
  DARKROOM_ASSIGN_OR_RETURN(std::vector<int64_t> first_rows, find_first_rows(file, place, *opened.reader));
  if (!first_rows_[file].empty() && first_rows != first_rows_[file]) {
    return Status::corrupt_data("the file changed since the run began: it has other row groups:", paths_[file]);
  }
  first_rows_[file] = std::move(first_rows);
  return open_files_.insert(static_cast<int64_t>(file), std::move(opened), 1);
}

Result<RowGroupPlace> RowGroupReader::locate(int64_t row) {
  const RowPlace place = index_.place_of(row);
  const size_t file = file_of_part_[place.part];
  if (first_rows_[file].empty()) {
    DARKROOM_RETURN_IF_ERROR(open_file(file).status());
  }
  const auto& first_rows = first_rows_[file];
  const auto after = std::upper_bound(first_rows.begin(), first_rows.end(), place.row);
  const auto group = static_cast<size_t>(after - first_rows.begin()) - 1;
  return RowGroupPlace{static_cast<int64_t>(file) * kGroupsPerFile + static_cast<int64_t>(group), file, first_rows[group],
                       first_rows[group + 1] - first_rows[group], place.row};
}

Result<std::shared_ptr<arrow::Schema>> RowGroupReader::schema(const RowGroupPlace& place) {
  DARKROOM_ASSIGN_OR_RETURN(const auto opened, open_file(place.file));
  return opened->reader->schema();
}

Result<std::vector<std::shared_ptr<arrow::RecordBatch>>> RowGroupReader::read(const RowGroupPlace& place,
                                                                              const std::vector<std::string>& columns) {
  auto batches = read_group(place, columns);
  if (batches.status().code() != StatusCode::kNotFound || !PartName::parse(places_[place.file].name())) {
    return batches;
  }
  // In a store of objects an open file is read by its name: it has moved aside.
  open_files_.erase(static_cast<int64_t>(place.file));
  return read_group(place, columns);
}

Result<std::vector<std::shared_ptr<arrow::RecordBatch>>> RowGroupReader::read_group(const RowGroupPlace& place,
                                                                                    const std::vector<std::string>& columns) {
  DARKROOM_ASSIGN_OR_RETURN(const auto opened, open_file(place.file));
  DARKROOM_ASSIGN_OR_RETURN(const auto range, opened->reader->read_rows(place.first_row, place.num_rows, columns));
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
  int64_t num_rows = 0;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(auto batch, range->next());
    if (batch == nullptr) {
      break;
    }
    num_rows += batch->num_rows();
    batches.push_back(std::move(batch));
  }
  if (opened->reader->format() == TableFormat::kTar && place.first_row / kRowsOfRun >= static_cast<int64_t>(marks_[place.file].size())) {
    marks_[place.file] = opened->reader->row_marks();  // For when it is opened again.
  }
  if (num_rows != place.num_rows) {
    return Status::corrupt_data("a row group gave another number of rows than when it was indexed (path, want, got):", paths_[place.file],
                                place.num_rows, num_rows);
  }
  return batches;
}

std::string RowGroupReader::describe(int64_t row) const {
  const RowPlace place = index_.place_of(row);
  return fmt::format("{}, row {}", paths_[file_of_part_[place.part]], place.row);
}

}  // namespace darkroom
