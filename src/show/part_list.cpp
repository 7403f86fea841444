#include "part_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/core/nested_text.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/ingest/pinned_job.h"
#include "darkroom/tables/part_name.h"

namespace darkroom {
namespace {

/// The parts of one folder that are ours.
struct FolderParts {
  std::map<int64_t, std::vector<const TablePart*>> by_item;
  std::map<std::string, const TablePart*> by_name;
};

constexpr int64_t kMostItems = 1'000'000'000'000;  // More than any job has.

/// Items without a part: how many, and the first of them.
struct MissingItems {
  int64_t num_items = 0;
  std::vector<int64_t> first = {};

  /// All from `begin` up to `end`.
  void add(int64_t begin, int64_t end) {
    constexpr size_t kItemsNamed = 10;
    num_items += end - begin;
    for (; begin < end && first.size() < kItemsNamed; ++begin) {
      first.push_back(begin);
    }
  }
};

/// Items that the job in a folder has by its pinned list; nothing where the folder does not say it.
Result<std::optional<int64_t>> items_of_list(FileSystem& files, const std::string& folder) {
  const std::unique_ptr<Store> store = make_posix_store(files, "file");
  const Result<PinnedJob> job = read_pinned_job({.store = store.get(), .path = folder});
  const StatusCode code = job.status().code();
  if (code == StatusCode::kNotFound || code == StatusCode::kFailedPrecondition) {  // No list, or one of another version.
    return std::optional<int64_t>();
  }
  return job.is_ok() ? Result<std::optional<int64_t>>(job->num_items()) : job.status();
}

/// Where the items end that ought to have parts, if the list tells: a run that has done what it was asked for leaves a summary of all
/// parts, and one that --limit cut within an item a part that says so; what lies behind the last part was not asked for then.
Result<std::optional<int64_t>> end_of_list(FileSystem& files, const std::string& folder, const FolderParts& parts, int64_t last_listed) {
  if (parts.by_item.empty() || last_listed >= parts.by_item.rbegin()->first) {
    return std::optional<int64_t>();
  }
  const auto is_cut = [](const TablePart* part) {
    const auto name = PartName::parse(file_name(part->path));
    return name && name->considered;
  };
  return std::ranges::any_of(parts.by_item.rbegin()->second, is_cut) ? Result<std::optional<int64_t>>(std::nullopt)
                                                                     : items_of_list(files, folder);
}

/// `end`: of the items that ought to have parts; nothing: up to the last part.
void check_items(const std::string& folder, const FolderParts& parts, std::optional<int64_t> end, DamageLog& damage) {
  MissingItems missing;
  int64_t next = 0;
  for (const auto& [item, there] : parts.by_item) {
    if (item >= kMostItems) {
      damage.add(fmt::format("the shard record names an item that no job has (part, item): {} {}", there[0]->path, item));
      continue;
    }
    missing.add(next, item);
    next = item + 1;
    for (size_t i = 1; i < there.size(); ++i) {
      damage.add(fmt::format("an item has two parts, so that its rows are there twice (item, parts): {} {} {}", item, there[0]->path,
                             there[i]->path));
    }
  }
  if (end && next < *end) {
    missing.add(next, *end);
    damage.add(fmt::format("parts are missing: {} of {} items have no part, so run the job's command again (folder, the first): {} {}",
                           missing.num_items, *end, folder, fmt::join(missing.first, ", ")));
  } else if (missing.num_items > 0) {
    damage.add(
        fmt::format("parts are missing: items before the last one have none, so run the job's command again (folder, items, the "
                    "first): {} {} {}",
                    folder, missing.num_items, fmt::join(missing.first, ", ")));
  }
}

/// The item of the part.
int64_t check_listed(FileSystem& files, const std::string& folder, const nlohmann::json& listed, const FolderParts& parts,
                     DamageLog& damage) {
  const std::string name = listed.value("name", std::string());
  const auto listed_name = PartName::parse(name);
  const int64_t item = listed_name ? listed_name->item : -1;
  const auto found = parts.by_name.find(name);
  if (found == parts.by_name.end()) {
    if (listed_name && parts.by_item.contains(item)) {
      return item;  // Replaced since the summary was written: by the whole part or the next generation.
    }
    if (listed_name && files.open_input(join_path(folder, name)).is_ok()) {
      return item;  // Made since we listed the parts.
    }
    damage.add("a part is missing that the job's summary lists; run the job's command again (part): " + join_path(folder, name));
    return item;
  }
  const TablePart& part = *found->second;
  const int64_t size_bytes = whole_number(listed.value("size_bytes", nlohmann::json(part.size_bytes)));
  const auto content_hash = listed.value("content_hash", part.content_hash);
  if (size_bytes != part.size_bytes || content_hash != part.content_hash) {
    damage.add(fmt::format("a part is not the one that the job's summary lists (part, bytes and hash listed, there): {} {} {} {} {}",
                           part.path, size_bytes, content_hash, part.size_bytes, part.content_hash));
  }
  return item;
}

/// Compares what the summary lists. The last item in it; below zero: none, or no summary.
Result<int64_t> check_summary(FileSystem& files, const std::string& folder, const FolderParts& parts, DamageLog& damage) {
  const std::string path = join_path(folder, "_summary.json");
  const auto text = read_file(files, path);
  if (!text.is_ok()) {
    return text.status().code() == StatusCode::kNotFound ? Result<int64_t>(-1) : text.status();
  }
  const nlohmann::json summary = parse_json(*text);
  const auto listed = summary.is_object() ? summary.find("parts") : summary.end();
  if (!summary.is_object() || listed == summary.end() || !listed->is_array()) {
    damage.add("the job's summary is no JSON object with parts; it may be deleted: " + path);
    return -1;
  }
  int64_t last = -1;
  try {
    for (const nlohmann::json& part : *listed) {
      last = std::max(last, check_listed(files, folder, part, parts, damage));
    }
  } catch (const nlohmann::json::exception& error) {
    damage.add(fmt::format("the job's summary lists a part with a field of another type; it may be deleted: {} {}", path, error.what()));
  }
  return last;
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
    DARKROOM_ASSIGN_OR_RETURN(const int64_t last_listed, check_summary(files, path, folder, damage));
    const Result<std::optional<int64_t>> end = end_of_list(files, path, folder, last_listed);
    DARKROOM_RETURN_IF_ERROR(damage.take(end.status()));
    check_items(path, folder, end.is_ok() ? *end : std::nullopt, damage);
  }
  return Status::ok();
}

}  // namespace darkroom
