#include "dataset_view.h"

#include <utility>

namespace darkroom {

DatasetView::DatasetView(DatasetFiles dataset) : dataset_(std::move(dataset)) {
  for (const InputObject& object : dataset_.objects) {
    inputs_.push_back({.path = object.place.uri(), .size_bytes = object.size_bytes, .is_folder = false});
    objects_.emplace(inputs_.back().path, object);
  }
}

Result<std::unique_ptr<InputFile>> DatasetView::open_input(const std::string& path) {
  const auto found = objects_.find(path);
  if (const std::string root = dataset_.root.uri() + "/"; found == objects_.end() && path.starts_with(root)) {
    return dataset_.root.store->open_input((dataset_.root / path.substr(root.size())).path);
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

Result<std::vector<FileInfo>> DatasetView::list(const std::string& /*folder*/) { return inputs_; }

Status DatasetView::refusal(const std::string& path) {
  return Status::failed_precondition("a dataset is only looked at here (address):", path);
}

}  // namespace darkroom
