#include "darkroom/feed/dataset_files.h"

#include <algorithm>
#include <set>
#include <utility>

#include "darkroom/files/local_path.h"
#include "darkroom/files/paths.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/stores/input_listing.h"
#include "darkroom/tables/part_name.h"
#include "darkroom/tables/picture_inputs.h"

namespace darkroom {
namespace {

/// The folder that part names are relative to: the folder itself, that of a file, what stands before the first wildcard of a pattern.
Result<std::string> root_folder(const Location& place) {
  const std::string path(without_trailing_slashes(place.path));
  const auto info = place.store->stat(path);
  if (info.is_ok()) {
    return info->is_folder ? path : parent_folder(path);
  }
  if (!has_wildcard(path) && info.status().code() != StatusCode::kNotFound) {
    return info.status();
  }
  return folder_above_wildcards(path);
}

/// The lowest folder that all files lie in.
std::string common_folder(const std::vector<InputObject>& objects) {
  std::string folder = parent_folder(objects.front().place.path);
  for (const InputObject& object : objects) {
    while (!object.place.path.starts_with(folder + "/") && folder != "." && folder != "/") {
      folder = parent_folder(folder);
    }
  }
  return folder;
}

void take_out_superseded(std::vector<InputObject>& objects) {
  std::vector<FileInfo> listing;
  for (const InputObject& object : objects) {
    listing.push_back({.path = object.place.path, .size_bytes = object.size_bytes, .is_folder = false});
  }
  std::set<std::string> superseded;
  for (FileInfo& file : take_out_superseded_parts(listing)) {
    superseded.insert(std::move(file.path));
  }
  std::erase_if(objects, [&](const InputObject& object) { return superseded.contains(object.place.path); });
}

constexpr const char* kRootItself = "./";

bool is_hub_table(const std::string& uri) { return uri.starts_with("hf://") && uri.find('?') != std::string::npos; }

}  // namespace

std::string DatasetFiles::name_of(const Location& place) const {
  const bool is_inside = root.path != "." && place.path.starts_with(root.path + "/");
  if (place.path == join_path(root.path, "")) {
    return kRootItself;
  }
  return is_inside ? place.path.substr(root.path.size() + 1) : place.path;
}

Location DatasetFiles::place_of(const std::string& name) const {
  if (name == kRootItself) {
    return {.store = root.store, .path = join_path(root.path, "")};
  }
  return {.store = root.store, .path = name.starts_with("/") || root.path == "." ? name : join_path(root.path, name)};
}

namespace {

/// The dataset that an address named as these objects.
Result<DatasetFiles> dataset_of(StoreSet& stores, const std::string& uri, std::vector<InputObject> objects) {
  DatasetFiles dataset{.uri = recorded_uri(uri), .root = {}, .objects = std::move(objects)};
  take_out_superseded(dataset.objects);
  dataset.root.store = dataset.objects.front().place.store;
  if (is_hub_table(uri)) {
    dataset.root.path = common_folder(dataset.objects);
    return dataset;
  }
  DARKROOM_ASSIGN_OR_RETURN(const Location place, stores.resolve(uri, Access::kRead));
  DARKROOM_ASSIGN_OR_RETURN(dataset.root.path, root_folder(place));
  return dataset;
}

/// The same of the machine's own files.
Result<DatasetFiles> local_dataset_of(const std::string& uri, const std::vector<FileInfo>& inputs) {
  DatasetFiles dataset{.uri = recorded_uri(uri)};
  for (const FileInfo& input : inputs) {
    dataset.objects.push_back({.place = {.store = &local_store(), .path = input.path}, .size_bytes = input.size_bytes});
  }
  DARKROOM_ASSIGN_OR_RETURN(std::string path, local_path(uri));
  dataset.root.store = &local_store();
  DARKROOM_ASSIGN_OR_RETURN(dataset.root.path, root_folder({.store = &local_store(), .path = std::move(path)}));
  return dataset;
}

const std::string& path_of(const InputObject& object) { return object.place.path; }
const std::string& path_of(const FileInfo& file) { return file.path; }

/// The tables of an address; where there are none, or an index.json alone, its MDS shards.
template <typename ListTables, typename ListContainers>
auto tables_or_shards(const ListTables& list_tables, const ListContainers& list_containers) -> decltype(list_tables()) {
  const auto are_all = [](const auto& files, ContainerKind kind) {
    return std::ranges::all_of(files, [&](const auto& file) { return container_kind(path_of(file)) == kind; });
  };
  auto tables = list_tables();
  const bool may_be_shards = tables.is_ok() ? are_all(*tables, ContainerKind::kMdsIndex) : tables.status().code() == StatusCode::kNotFound;
  if (!may_be_shards) {
    return tables;
  }
  auto containers = list_containers();
  if (!containers.is_ok()) {
    return tables.is_ok() ? containers : tables;  // What is wrong with the index, or that there is nothing.
  }
  return are_all(*containers, ContainerKind::kMds) ? containers : tables;
}

}  // namespace

Result<DatasetFiles> find_dataset(StoreSet& stores, const std::string& uri) {
  DARKROOM_ASSIGN_OR_RETURN(std::vector<InputObject> objects,
                            tables_or_shards([&] { return stores.resolve_inputs(uri); }, [&] { return stores.resolve_image_inputs(uri); }));
  return dataset_of(stores, uri, std::move(objects));
}

Result<DatasetFiles> find_image_dataset(StoreSet& stores, const std::string& uri) {
  DARKROOM_ASSIGN_OR_RETURN(std::vector<InputObject> objects, stores.resolve_image_inputs(uri));
  return dataset_of(stores, uri, std::move(objects));
}

Result<DatasetFiles> find_local_dataset(const std::string& uri) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> inputs, tables_or_shards([&] { return list_inputs(local_files(), uri); },
                                                                                 [&] { return list_image_inputs(local_files(), uri); }));
  return local_dataset_of(uri, inputs);
}

Result<DatasetFiles> find_local_image_dataset(const std::string& uri) {
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> inputs, list_image_inputs(local_files(), uri));
  return local_dataset_of(uri, inputs);
}

Location place_aside(const Location& part) { return part.parent() / kSupersededFolder / part.name(); }

std::string recorded_uri(const std::string& uri) {
  const bool is_web = uri.starts_with("https://") || uri.starts_with("http://");
  return is_web ? shown_url(uri) : uri;
}

}  // namespace darkroom
