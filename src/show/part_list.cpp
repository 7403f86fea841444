#include "part_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/core/nested_text.h"
#include "darkroom/files/paths.h"
#include "darkroom/tables/part_name.h"

namespace darkroom {
namespace {

/// The parts of one folder that are ours.
struct FolderParts {
  std::map<int64_t, std::vector<const TablePart*>> by_item;
  std::map<std::string, const TablePart*> by_name;
};

void check_items(const std::string& folder, const FolderParts& parts, DamageLog& damage) {
  constexpr size_t kItemsNamed = 10;
  constexpr int64_t kMostItems = 1'000'000'000'000;
  std::vector<int64_t> missing;  // The first ones.
  int64_t num_missing = 0;
  int64_t next = 0;
  for (const auto& [item, there] : parts.by_item) {
    if (item >= kMostItems) {
      damage.add(fmt::format("the shard record names an item that no job has (part, item): {} {}", there[0]->path, item));
      continue;
    }
    num_missing += item - next;
    for (; next < item && missing.size() < kItemsNamed; ++next) {
      missing.push_back(next);
    }
    next = item + 1;
    for (size_t i = 1; i < there.size(); ++i) {
      damage.add(fmt::format("an item has two parts, so that its rows are there twice (item, parts): {} {} {}", item, there[0]->path,
                             there[i]->path));
    }
  }
  if (num_missing > 0) {
    damage.add(
        fmt::format("parts are missing: items before the last one have none, so run the job's command again (folder, items, the "
                    "first): {} {} {}",
                    folder, num_missing, fmt::join(missing, ", ")));
  }
}

void check_listed(FileSystem& files, const std::string& folder, const nlohmann::json& listed, const FolderParts& parts, DamageLog& damage) {
  const std::string name = listed.value("name", std::string());
  const auto found = parts.by_name.find(name);
  if (found == parts.by_name.end()) {
    const auto listed_name = PartName::parse(name);
    if (listed_name && parts.by_item.contains(listed_name->item)) {
      return;  // Replaced since the summary was written: by the whole part or the next generation.
    }
    if (listed_name && files.open_input(join_path(folder, name)).is_ok()) {
      return;  // Made since we listed the parts.
    }
    damage.add("a part is missing that the job's summary lists; run the job's command again (part): " + join_path(folder, name));
    return;
  }
  const TablePart& part = *found->second;
  const int64_t size_bytes = whole_number(listed.value("size_bytes", nlohmann::json(part.size_bytes)));
  const auto content_hash = listed.value("content_hash", part.content_hash);
  if (size_bytes != part.size_bytes || content_hash != part.content_hash) {
    damage.add(fmt::format("a part is not the one that the job's summary lists (part, bytes and hash listed, there): {} {} {} {} {}",
                           part.path, size_bytes, content_hash, part.size_bytes, part.content_hash));
  }
}

Status check_summary(FileSystem& files, const std::string& folder, const FolderParts& parts, DamageLog& damage) {
  const std::string path = join_path(folder, "_summary.json");
  const auto text = read_file(files, path);
  if (!text.is_ok()) {
    return text.status().code() == StatusCode::kNotFound ? Status::ok() : text.status();
  }
  const nlohmann::json summary = parse_json(*text);
  const auto listed = summary.is_object() ? summary.find("parts") : summary.end();
  if (!summary.is_object() || listed == summary.end() || !listed->is_array()) {
    damage.add("the job's summary is no JSON object with parts; it may be deleted: " + path);
    return Status::ok();
  }
  try {
    for (const nlohmann::json& part : *listed) {
      check_listed(files, folder, part, parts, damage);
    }
  } catch (const nlohmann::json::exception& error) {
    damage.add(fmt::format("the job's summary lists a part with a field of another type; it may be deleted: {} {}", path, error.what()));
  }
  return Status::ok();
}

}  // namespace

Status check_part_list(FileSystem& files, const TableParts& parts, DamageLog& damage) {
  std::map<std::string, FolderParts> folders;
  for (const TablePart& part : parts.parts) {
    if (part.path.ends_with('/')) {  // A folder of pictures: what lies beside it is not its own.
      continue;
    }
    FolderParts& folder = folders[parent_folder(part.path)];
    if (part.is_ours && part.item >= 0) {
      folder.by_item[part.item].push_back(&part);
    }
    folder.by_name[file_name(part.path)] = &part;
  }
  for (const auto& [path, folder] : folders) {
    check_items(path, folder, damage);
    DARKROOM_RETURN_IF_ERROR(check_summary(files, path, folder, damage));
  }
  return Status::ok();
}

}  // namespace darkroom
