#include "darkroom/tables/table_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "darkroom/files/paths.h"
#include "darkroom/tables/picture_inputs.h"
#include "mds_table.h"
#include "parquet_table.h"
#include "picture_folder.h"
#include "table_columns.h"
#include "tar_table.h"
#include "text_table.h"

namespace darkroom {

namespace {

struct Ending {
  std::string_view text;
  TableFormat format;
};
constexpr std::array kEndings = {
    Ending{".parquet", TableFormat::kParquet}, Ending{".csv", TableFormat::kCsv},          Ending{".tsv", TableFormat::kTsv},
    Ending{".jsonl", TableFormat::kJsonLines}, Ending{".ndjson", TableFormat::kJsonLines}, Ending{".json", TableFormat::kJsonLines},
};

const Ending* find_ending(std::string_view path) {
  std::string lower(path);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  const auto found = std::find_if(kEndings.begin(), kEndings.end(), [&](const Ending& ending) { return lower.ends_with(ending.text); });
  return found == kEndings.end() ? nullptr : &*found;
}

}  // namespace

bool is_table_path(std::string_view path) { return find_ending(path) != nullptr; }

Result<TableFormat> table_format(std::string_view path) {
  if (const Ending* ending = find_ending(path)) {
    return ending->format;
  }
  return Status::failed_precondition("opening a table: its name must end in .parquet, .csv, .tsv, .jsonl, .ndjson or .json (path):", path);
}

Result<std::vector<int>> find_columns(const arrow::Schema& schema, const std::vector<std::string>& columns, const std::string& path) {
  std::vector<int> places;
  for (const std::string& name : columns.empty() ? schema.field_names() : columns) {
    const std::vector<int> found = schema.GetAllFieldIndices(name);
    if (found.empty()) {
      return Status::not_found(
          fmt::format("reading {}: there is no column \"{}\"; the columns are: {}", path, name, fmt::join(schema.field_names(), ", ")));
    }
    if (found.size() > 1) {
      return Status::failed_precondition(fmt::format("reading {}: {} columns are named \"{}\"", path, found.size(), name));
    }
    places.push_back(found.front());
  }
  return places;
}

Result<TableFormat> container_format(std::string_view path) {
  const ContainerKind kind = container_kind(path);
  if (path.ends_with('/')) {
    return TableFormat::kFolder;
  }
  return kind == ContainerKind::kTar ? TableFormat::kTar : kind == ContainerKind::kMds ? TableFormat::kMds : table_format(path);
}

std::string_view format_name(TableFormat format) {
  switch (format) {
    case TableFormat::kParquet:
      return "Parquet";
    case TableFormat::kCsv:
      return "CSV";
    case TableFormat::kTsv:
      return "TSV";
    case TableFormat::kJsonLines:
      return "JSON lines";
    case TableFormat::kTar:
      return "webdataset tar";
    case TableFormat::kMds:
      return "MDS shard";
    case TableFormat::kFolder:
      return "folder of pictures";
  }
  return "table";
}

namespace {

Result<std::unique_ptr<TableReader>> open_file_table(std::shared_ptr<const InputFile> file, TableFormat format) {
  switch (format) {
    case TableFormat::kParquet:
      return open_parquet_table(std::move(file));
    case TableFormat::kTar:
      return open_tar_table(std::move(file));
    case TableFormat::kMds:
      return open_mds_table(std::move(file));
    default:
      return open_text_table(std::move(file), format);
  }
}

}  // namespace

Result<std::unique_ptr<TableReader>> open_table(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const TableFormat format, container_format(path));
  if (format == TableFormat::kFolder) {
    return open_folder_table(folder_source(files, path));
  }
  DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<const InputFile> file, files.open_input(path));
  return open_file_table(std::move(file), format);
}

Result<std::unique_ptr<TableReader>> open_table(const Location& place) {
  DARKROOM_ASSIGN_OR_RETURN(const TableFormat format, container_format(place.path));
  if (format == TableFormat::kFolder) {
    return open_folder_table(folder_source(place));
  }
  DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<const InputFile> file, place.store->open_input(place.path));
  return open_file_table(std::move(file), format);
}

}  // namespace darkroom
