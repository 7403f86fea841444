#include "darkroom/stores/model_copy.h"

#include <algorithm>
#include <set>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

constexpr std::string_view kWeightsEnding = ".safetensors";

bool is_pickle_name(const std::string& name) {
  constexpr const char* kEndings[] = {".bin", ".ckpt", ".pt", ".pth", ".pkl"};
  return std::ranges::any_of(kEndings, [&](const char* ending) { return name.ends_with(ending); });
}

bool is_variant(const std::string& name) { return name.find(".fp16.") != std::string::npos || name.find(".non_ema.") != std::string::npos; }

/// Of the names in a model folder those that a loader may want.
std::set<std::string> useful_names(const std::vector<std::string>& names) {
  const bool is_whole = std::ranges::find(names, "state.json") != names.end();       // A checkpoint: its record names every file.
  const bool is_component = std::ranges::find(names, "config.json") != names.end();  // Else weights in the root are another form of all.
  std::set<std::string> with_plain_weights;                                          // Folders that have weights without a variant.
  for (const std::string& name : names) {
    if (name.ends_with(kWeightsEnding) && !is_variant(name)) {
      with_plain_weights.insert(parent_folder(name));
    }
  }
  std::set<std::string> useful;
  for (const std::string& name : names) {
    const bool is_in_root = name.find('/') == std::string::npos;
    const bool is_text = name.ends_with(".json") || name.ends_with(".txt");
    const bool is_weight = (name.ends_with(kWeightsEnding) || is_pickle_name(name)) && (!is_in_root || is_component) &&
                           !(is_variant(name) && with_plain_weights.contains(parent_folder(name)));
    if (is_whole || is_text || is_weight) {
      useful.insert(name);
    }
  }
  return useful;
}

/// What a single file of weights does not hold.
Status fetch_side_folders(const Location& file, const LocalCopy& copy, const CopyOptions& options) {
  for (const char* name : {"tokenizer", "scheduler"}) {
    const Status fetched = copy_tree_here(file.parent() / name, join_path(parent_folder(copy.path()), name), options);
    const bool is_none = fetched.code() == StatusCode::kNotFound || fetched.code() == StatusCode::kFailedPrecondition;  // A web server.
    DARKROOM_RETURN_IF_ERROR(is_none ? Status::ok() : fetched);
  }
  return Status::ok();
}

}  // namespace

Result<LocalCopy> fetch_model_files(StoreSet& stores, const std::string& uri, const std::function<bool(const std::string& name)>& takes,
                                    const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const Location place, stores.resolve(uri, Access::kRead));
  if (place.store->local_path(place.path)) {
    return LocalCopy::fetch(place);
  }
  const std::string context = "fetching the model " + place.uri();
  const Result<FileInfo> info = place.store->stat(place.path);
  if (!info.is_ok()) {
    return info.status().with_context(context);
  }
  log_info("fetching {} into a scratch folder", place.uri());
  CopyOptions options{.takes = {}, .wanted_bytes = {}, .stop = stop};
  if (!info->is_folder) {
    DARKROOM_ASSIGN_OR_RETURN(LocalCopy copy, LocalCopy::fetch(place, options));
    DARKROOM_RETURN_IF_ERROR(fetch_side_folders(place, copy, options));
    return copy;
  }
  std::vector<std::string> names;
  const auto add = [&](std::span<const FileInfo> page) {
    for (const FileInfo& file : page) {
      names.push_back(file.path.substr(place.path.size() + 1));
    }
    return Status::ok();
  };
  DARKROOM_RETURN_IF_ERROR(place.store->list_tree(place.path, stop, add).with_context(context));
  const std::set<std::string> useful = useful_names(names);
  options.takes = [&](const std::string& name) { return useful.contains(name) && (!takes || takes(name)); };
  options.wanted_bytes = [&](const std::string& name, const InputFile& file) -> Result<int64_t> {
    return is_pickle_name(name) && !useful.contains("state.json") ? 0 : file.size_bytes();
  };
  auto copy = LocalCopy::fetch(place, options);
  return copy.is_ok() ? std::move(copy) : copy.status().with_context(context);
}

}  // namespace darkroom
