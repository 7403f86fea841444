#include "darkroom/feed/dataset_index.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/paths.h"
#include "darkroom/stores/uri.h"
#include "darkroom/tables/table_footer.h"

namespace darkroom {
namespace {

constexpr int64_t kFormatVersion = 1;

// The folder that part names are relative to: the folder of a file, what stands before the first pattern of a glob.
Result<std::string> root_folder(FileSystem& files, const std::string& uri) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string given, local_path(uri));
  const std::string path(without_trailing_slashes(given));
  const auto info = files.stat(path);
  if (info.is_ok()) {
    return info->is_folder ? path : parent_folder(path);
  }
  const size_t pattern = path.find_first_of("*?[");
  return pattern == std::string::npos ? path : parent_folder(path.substr(0, pattern + 1));
}

// A file's identity without reading its data: the record of a shard of ours, else a hash of its footer.
Result<std::string> content_hash(FileSystem& files, const TableFooter& footer) {
  if (const std::string* record = footer.find(kShardKey); record != nullptr) {
    const auto parsed = parse_json(*record);
    if (parsed.is_object() && parsed.contains("content_hash") && parsed["content_hash"].is_string()) {
      return parsed["content_hash"].get<std::string>();
    }
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto file, files.open_input(footer.path));
  std::vector<std::byte> bytes(static_cast<size_t>(footer.file_bytes - footer.content_bytes));
  DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file->read_at(footer.content_bytes, bytes));
  Sha256 hash;
  hash.update(std::span(bytes.data(), num_read));
  return "footer:" + hash.finish_hex();
}

Result<DatasetIndex> build_index(FileSystem& files, const std::string& uri, int64_t rows_per_part) {
  DARKROOM_ASSIGN_OR_RETURN(const auto inputs, list_inputs(files, uri));
  DARKROOM_ASSIGN_OR_RETURN(const std::string root, root_folder(files, uri));
  std::vector<DatasetPart> parts;
  for (const auto& input : inputs) {
    DARKROOM_ASSIGN_OR_RETURN(const TableFooter footer, read_footer(files, input.path));
    DARKROOM_ASSIGN_OR_RETURN(const std::string hash, content_hash(files, footer));
    const bool inside = root != "." && input.path.starts_with(root + "/");
    const std::string name = inside ? input.path.substr(root.size() + 1) : input.path;
    int64_t first = 0;
    do {
      const int64_t count = std::min(rows_per_part, footer.num_rows - first);
      parts.push_back({name, hash, first, count});
      first += count;
    } while (first < footer.num_rows);
  }
  DatasetIndex index(std::move(parts));
  if (index.num_rows() == 0) {
    return Status::failed_precondition("the dataset has no rows to train on:", uri);
  }
  return index;
}

}  // namespace

DatasetIndex::DatasetIndex(std::vector<DatasetPart> parts) : parts_(std::move(parts)) {
  first_rows_.reserve(parts_.size() + 1);
  first_rows_.push_back(0);
  for (const auto& part : parts_) {
    first_rows_.push_back(first_rows_.back() + part.num_rows);
  }
}

Result<DatasetIndex> DatasetIndex::of_latents(FileSystem& files, const std::string& uri) {
  return build_index(files, uri, std::numeric_limits<int64_t>::max());
}

Result<DatasetIndex> DatasetIndex::of_images(FileSystem& files, const std::string& uri, int64_t rows_per_file) {
  DARKROOM_CHECK(rows_per_file > 0, "a part must have rows:", rows_per_file);
  return build_index(files, uri, rows_per_file);
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
  if (json.value("format_version", int64_t{0}) != kFormatVersion || json.value("rows_per_block", int64_t{0}) != kRowsPerBlock) {
    return Status::failed_precondition("the dataset index has another format version than this program reads, which is:", kFormatVersion);
  }
  try {
    std::vector<DatasetPart> parts;
    for (const auto& part : json.at("parts")) {
      parts.push_back({part.at("name").get<std::string>(), part.at("content_hash").get<std::string>(), part.at("first_row").get<int64_t>(),
                       part.at("num_rows").get<int64_t>()});
      if (parts.back().num_rows < 0 || parts.back().first_row < 0) {
        return Status::corrupt_data("the dataset index has a part with a negative number of rows:", parts.back().name);
      }
    }
    return DatasetIndex(std::move(parts));
  } catch (const nlohmann::json::exception& error) {
    return Status::corrupt_data("the dataset index lacks a field:", error.what());
  }
}

Result<std::string> part_path(FileSystem& files, const std::string& uri, const std::string& name) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string root, root_folder(files, uri));
  return name.starts_with("/") || root == "." ? name : join_path(root, name);
}

}  // namespace darkroom
