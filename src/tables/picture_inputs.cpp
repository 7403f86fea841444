#include "darkroom/tables/picture_inputs.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "darkroom/core/nested_text.h"
#include "darkroom/files/paths.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/table_reader.h"

namespace darkroom {
namespace {

constexpr std::array<std::string_view, 6> kPictureExtensions = {"jpg", "jpeg", "png", "webp", "gif", "avif"};
constexpr std::array<std::string_view, 6> kMdsCompressions = {"zstd", "zst", "gz", "br", "bz2", "snappy"};
constexpr std::string_view kMdsEnding = ".mds";
constexpr std::array<std::string_view, 10> kTarEndings = {".tar",     ".tar.gz", ".tgz",    ".tar.zst", ".tar.zstd",
                                                          ".tar.bz2", ".tbz2",   ".tar.xz", ".txz",     ".tar.lz4"};

std::string lower_ascii(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

bool is_mds_name(std::string_view name) {
  if (name.ends_with(kMdsEnding)) {
    return true;
  }
  const size_t dot = name.rfind('.');
  return dot != std::string_view::npos && name.substr(0, dot).ends_with(kMdsEnding) &&
         std::ranges::find(kMdsCompressions, name.substr(dot + 1)) != kMdsCompressions.end();
}

/// The ending of a tar, compressed or not, in lower case; empty: it is none.
std::string_view tar_ending(std::string_view lower) {
  const auto found = std::ranges::find_if(kTarEndings, [&](std::string_view ending) { return lower.ends_with(ending); });
  return found == kTarEndings.end() ? std::string_view() : *found;
}

/// The path without the ending of its name.
std::string stem_of(const std::string& path) { return path.substr(0, path.rfind('.')); }

/// Every folder between `folder` and the file, the lowest first.
std::vector<std::string> folders_above(const std::string& path, const std::string& folder) {
  std::vector<std::string> above;
  for (std::string at = parent_folder(path); at.size() >= folder.size(); at = parent_folder(at)) {
    above.push_back(at);
    if (at == folder || at == parent_folder(at)) {
      break;
    }
  }
  return above;
}

/// The files below a folder by what they may be.
struct FoundFiles {
  std::vector<FileInfo> tables, tars, shards, indices, metadata, pictures;

  bool has_containers() const { return !tars.empty() || !shards.empty() || !pictures.empty(); }
};

FoundFiles sort_out(const std::vector<FileInfo>& files) {
  FoundFiles found;
  for (const FileInfo& file : files) {
    switch (container_kind(file.path)) {
      case ContainerKind::kTable:
        found.tables.push_back(file);
        break;
      case ContainerKind::kTar:
        found.tars.push_back(file);
        break;
      case ContainerKind::kMds:
        found.shards.push_back(file);
        break;
      case ContainerKind::kMdsIndex:
        found.indices.push_back(file);
        break;
      case ContainerKind::kMetadata:
        found.metadata.push_back(file);
        break;
      case ContainerKind::kPicture:
        found.pictures.push_back(file);
        break;
      case ContainerKind::kOther:
        break;
    }
  }
  return found;
}

/// Takes the pictures below a metadata file's folder out and gives the folders back; a metadata file without pictures becomes a table.
std::vector<FileInfo> take_image_folders(const std::string& folder, FoundFiles& found) {
  std::set<std::string> named;
  std::map<std::string, int64_t> used;  // With the bytes of their pictures.
  for (const FileInfo& file : found.metadata) {
    named.insert(parent_folder(file.path));
  }
  const auto is_claimed = [&](const FileInfo& picture) {
    bool claimed = false;
    for (const std::string& above : folders_above(picture.path, folder)) {
      if (named.contains(above)) {
        used[above] += picture.size_bytes;
        claimed = true;
      }
    }
    return claimed;
  };
  if (!named.empty()) {
    std::erase_if(found.pictures, is_claimed);
  }
  for (const FileInfo& file : found.metadata) {
    if (!used.contains(parent_folder(file.path))) {
      found.tables.push_back(file);
    }
  }
  std::vector<FileInfo> folders;
  for (const auto& [path, num_bytes] : used) {
    folders.push_back({.path = join_path(path, ""), .size_bytes = num_bytes});
  }
  return folders;
}

/// Tables that describe what lies beside them.
void drop_sidecars(const std::string& folder, const std::vector<FileInfo>& pictures, FoundFiles& found) {
  std::set<std::string> beside;
  for (const FileInfo& tar : found.tars) {
    beside.insert(tar.path.substr(0, tar.path.size() - tar_ending(lower_ascii(tar.path)).size()));
  }
  if (!found.tables.empty()) {
    for (const FileInfo& picture : pictures) {
      for (std::string& above : folders_above(picture.path, folder)) {
        beside.insert(std::move(above));
      }
    }
  }
  const bool has_containers = found.has_containers() || !pictures.empty();
  std::erase_if(found.tables, [&](const FileInfo& table) {
    return beside.contains(stem_of(table.path)) || (has_containers && lower_ascii(table.path).ends_with(".json"));
  });
}

std::string shard_name(const nlohmann::json& shard, const char* data) {
  const auto found = shard.find(data);
  return found != shard.end() && found->is_object() ? found->value("basename", std::string()) : std::string();
}

/// A job's own part: its index is of an earlier run, perhaps, and lists none without samples.
bool is_part(const std::string& path) { return PartName::parse(file_name(path)).has_value(); }

/// Of an index's shards, those that are there. Throws what nlohmann throws.
Status take_listed(const nlohmann::json& index, const FileInfo& file, const std::set<std::string>& there, std::set<std::string>& listed) {
  const std::string folder = parent_folder(file.path);
  for (const nlohmann::json& shard : index.at("shards")) {
    const std::string raw = shard_name(shard, "raw_data");
    const std::string zip = shard_name(shard, "zip_data");
    if (is_part(raw)) {
      continue;
    }
    const auto is_there = [&](const std::string& name) { return !name.empty() && there.contains(join_path(folder, name)); };
    if (!is_there(raw) && !is_there(zip)) {
      return Status::not_found("an index names a shard that is not there (index, shard):", file.path, zip.empty() ? raw : zip);
    }
    listed.insert(join_path(folder, is_there(raw) ? raw : zip));
  }
  return Status::ok();
}

/// The shards that count: those of the indices where there are any, and every part of a job.
Result<std::vector<FileInfo>> choose_shards(FoundFiles found, const ReadSmall& read_small) {
  std::set<std::string> there;
  for (const FileInfo& shard : found.shards) {
    there.insert(shard.path);
  }
  std::set<std::string> listed;
  for (const FileInfo& file : found.indices) {
    DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_small(file.path));
    const nlohmann::json index = parse_json(text);
    try {
      DARKROOM_RETURN_IF_ERROR(take_listed(index, file, there, listed));
    } catch (const nlohmann::json::exception& error) {
      return Status::corrupt_data("an index.json beside MDS shards is not one of theirs (file, why):", file.path, error.what());
    }
  }
  std::erase_if(found.shards, [&](const FileInfo& shard) {
    const bool is_twice = !lower_ascii(shard.path).ends_with(kMdsEnding) && there.contains(stem_of(shard.path));
    return found.indices.empty() ? is_twice : !listed.contains(shard.path) && !is_part(shard.path);
  });
  return std::move(found.shards);
}

void sort_inputs(std::vector<FileInfo>& inputs) { std::ranges::sort(inputs, {}, &FileInfo::path); }

}  // namespace

bool has_ending(std::string_view path, std::string_view ending) {
  return path.size() >= ending.size() && lower_ascii(path.substr(path.size() - ending.size())) == ending;
}

bool is_picture_extension(std::string_view extension) {
  return std::ranges::find(kPictureExtensions, extension) != kPictureExtensions.end();
}

ContainerKind container_kind(std::string_view path) {
  const std::string name = lower_ascii(path.substr(path.rfind('/') + 1));
  const std::string_view ending = std::string_view(name).substr(name.rfind('.') + 1);
  if (name == "index.json") {
    return ContainerKind::kMdsIndex;
  }
  if (name == "metadata.jsonl" || name == "metadata.csv") {
    return ContainerKind::kMetadata;
  }
  if (is_mds_name(name)) {
    return ContainerKind::kMds;
  }
  if (is_table_path(name)) {
    return ContainerKind::kTable;
  }
  if (name.find('.') != std::string::npos && is_picture_extension(ending)) {
    return ContainerKind::kPicture;
  }
  return tar_ending(name).empty() ? ContainerKind::kOther : ContainerKind::kTar;
}

Result<std::vector<FileInfo>> find_picture_inputs(const std::string& folder, const std::vector<FileInfo>& files,
                                                  const ReadSmall& read_small) {
  FoundFiles found = sort_out(files);
  const std::vector<FileInfo> pictures = found.pictures;
  std::vector<FileInfo> folders = take_image_folders(folder, found);
  if (found.shards.empty()) {
    found.tables.insert(found.tables.end(), found.indices.begin(), found.indices.end());
  }
  drop_sidecars(folder, pictures, found);
  const std::array<const std::vector<FileInfo>*, 5> kinds = {&found.tables, &found.tars, &found.shards, &folders, &found.pictures};
  const std::vector<FileInfo>* only = nullptr;
  for (const auto* kind : kinds) {
    if (kind->empty()) {
      continue;
    }
    if (only != nullptr) {
      return Status::failed_precondition(
          "a folder holds rows of two kinds; name the one that is meant by a pattern such as FOLDER/**/*.parquet, or by its own folder "
          "(folder, a file of each):",
          folder, only->front().path, kind->front().path);
    }
    only = kind;
  }
  if (only == nullptr) {
    return std::vector<FileInfo>();
  }
  std::vector<FileInfo> inputs = *only;
  if (only == &found.shards) {
    DARKROOM_ASSIGN_OR_RETURN(inputs, choose_shards(std::move(found), read_small));
    sort_inputs(inputs);
    return inputs;
  }
  if (only == &found.pictures) {
    inputs = {{.path = join_path(folder, "")}};
    for (const FileInfo& picture : found.pictures) {
      inputs.front().size_bytes += picture.size_bytes;
    }
  }
  sort_inputs(inputs);
  return inputs;
}

Result<std::vector<FileInfo>> named_picture_inputs(const std::vector<FileInfo>& files) {
  std::vector<FileInfo> inputs;
  for (const FileInfo& file : files) {
    const ContainerKind kind = container_kind(file.path);
    if (kind == ContainerKind::kPicture) {
      return Status::failed_precondition("pictures are read by their folder, not one by one; name the folder (picture):", file.path);
    }
    inputs.push_back(kind == ContainerKind::kMetadata ? FileInfo{.path = join_path(parent_folder(file.path), "")} : file);
  }
  sort_inputs(inputs);
  inputs.erase(std::unique(inputs.begin(), inputs.end()), inputs.end());
  return inputs;
}

}  // namespace darkroom
