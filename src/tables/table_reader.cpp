#include "darkroom/tables/table_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include "darkroom/files/paths.h"
#include "mds_table.h"
#include "parquet_table.h"
#include "table_columns.h"
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
    Ending{".mds", TableFormat::kMds},
};

const Ending* find_ending(std::string_view path) {
  std::string lower(path);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  const auto found = std::find_if(kEndings.begin(), kEndings.end(), [&](const Ending& ending) { return lower.ends_with(ending.text); });
  return found == kEndings.end() ? nullptr : &*found;
}

}  // namespace

std::vector<bool> find_mds_indexes(const std::vector<std::string>& paths) {
  std::set<std::string> folders;
  for (const std::string& path : paths) {
    if (path.ends_with(".mds")) {
      folders.insert(parent_folder(path));
    }
  }
  std::vector<bool> are_indexes;
  for (const std::string& path : paths) {
    are_indexes.push_back(file_name(path) == "index.json" && folders.contains(parent_folder(path)));
  }
  return are_indexes;
}

bool is_table_path(std::string_view path) { return find_ending(path) != nullptr; }

Result<TableFormat> table_format(std::string_view path) {
  if (const Ending* ending = find_ending(path)) {
    return ending->format;
  }
  return Status::failed_precondition("opening a table: its name must end in .parquet, .csv, .tsv, .jsonl, .ndjson, .json or .mds (path):",
                                     path);
}

namespace {

Result<std::unique_ptr<TableReader>> open_as(TableFormat format, std::shared_ptr<const InputFile> file) {
  return format == TableFormat::kParquet ? open_parquet_table(std::move(file))
         : format == TableFormat::kMds   ? open_mds_table(std::move(file))
                                         : open_text_table(std::move(file), format);
}

}  // namespace

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

Result<std::unique_ptr<TableReader>> open_table(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const TableFormat format, table_format(path));
  DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<const InputFile> file, files.open_input(path));
  return open_as(format, std::move(file));
}

Result<std::unique_ptr<TableReader>> open_table(const Location& place) {
  DARKROOM_ASSIGN_OR_RETURN(const TableFormat format, table_format(place.path));
  DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<const InputFile> file, place.store->open_input(place.path));
  return open_as(format, std::move(file));
}

}  // namespace darkroom
