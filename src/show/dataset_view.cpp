#include "dataset_view.h"

#include <utility>

#include "darkroom/files/paths.h"
#include "darkroom/tables/part_name.h"

namespace darkroom {

Result<DatasetFiles> find_shown_dataset(StoreSet& stores, const std::string& address, bool is_folder) {
  return dataset_or_tables<DatasetFiles>(
      is_folder, [&] { return find_image_dataset(stores, address); }, [&] { return find_dataset(stores, address); });
}

DatasetView::DatasetView(DatasetFiles dataset) : dataset_(std::move(dataset)) {
  for (const InputObject& object : dataset_.objects) {
    if (object.place.path.ends_with('/')) {
      const Location folder{.store = object.place.store, .path = std::string(without_trailing_slashes(object.place.path))};
      inputs_.push_back({.path = join_path(folder.uri(), ""), .size_bytes = object.size_bytes, .is_folder = false});
      inputs_of_folders_.emplace(inputs_.back().path, object.place);
      continue;
    }
    inputs_.push_back({.path = object.place.uri(), .size_bytes = object.size_bytes, .is_folder = false});
    objects_.emplace(inputs_.back().path, object);
    folders_.emplace(parent_folder(inputs_.back().path), object.place.parent());
  }
}

Result<std::unique_ptr<InputFile>> DatasetView::open_input(const std::string& path) {
  if (const auto below = place_below(path)) {
    return below->store->open_input(below->path);
  }
  const auto found = objects_.find(path);
  if (const auto folder = folders_.find(parent_folder(path)); found == objects_.end() && folder != folders_.end()) {
    return folder->second.store->open_input((folder->second / file_name(path)).path);
  }
  const bool is_aside = file_name(parent_folder(path)) == kSupersededFolder;
  if (const auto folder = folders_.find(parent_folder(parent_folder(path))); is_aside && folder != folders_.end()) {
    return folder->second.store->open_input((folder->second / kSupersededFolder / file_name(path)).path);
  }
  if (found == objects_.end()) {
    return Status::not_found("no file of the dataset (address):", path);
  }
  const InputObject& object = found->second;
  return object.place.store->open_input(object.place.path, object.size_bytes);
}

Result<FileInfo> DatasetView::stat(const std::string& path) {
  const auto found = objects_.find(path);
  return found == objects_.end() ? Result<FileInfo>(Status::not_found("no file of the dataset (address):", path))
                                 : FileInfo{.path = path, .size_bytes = found->second.size_bytes, .is_folder = false};
}

Result<std::vector<FileInfo>> DatasetView::list(const std::string& folder) {
  const auto below = place_below(join_path(folder, ""));
  if (!below) {
    return inputs_;
  }
  DARKROOM_ASSIGN_OR_RETURN(std::vector<FileInfo> entries, below->store->list(std::string(without_trailing_slashes(below->path))));
  for (FileInfo& entry : entries) {
    entry.path = join_path(folder, file_name(entry.path));
  }
  return entries;
}

std::optional<Location> DatasetView::place_below(const std::string& path) const {
  for (const auto& [address, folder] : inputs_of_folders_) {
    if (path.starts_with(address)) {
      return Location{.store = folder.store, .path = folder.path + path.substr(address.size())};
    }
  }
  return std::nullopt;
}

}  // namespace darkroom
