#include "weight_files.h"

#include <nlohmann/json.hpp>
#include <set>

#include "darkroom/core/nested_text.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

using nlohmann::json;

// A shard lies beside its index, so that an index cannot point elsewhere on the machine.
bool is_plain_name(const std::string& name) { return !name.empty() && name.find('/') == std::string::npos && name != "." && name != ".."; }

Status no_weights(const std::string& folder, const std::string& stem) {
  DARKROOM_ASSIGN_OR_RETURN(const auto entries, local_files().list(folder));
  for (const auto& entry : entries) {
    for (const char* ending : {".bin", ".ckpt", ".pt", ".pth", ".pkl"}) {
      if (entry.path.ends_with(ending)) {
        return Status::failed_precondition(std::string("the weights are a pickle file; ") + kPickleConversion + " (file):", entry.path);
      }
    }
  }
  return Status::not_found("no " + stem + ".safetensors, no index of shards and no fp16 variant in folder:", folder);
}

}  // namespace

Result<WeightFiles> WeightFiles::open_files(const std::vector<std::string>& paths) {
  WeightFiles result;
  for (const auto& path : paths) {
    DARKROOM_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(path));
    for (const auto& name : file->names()) {
      const auto [place, is_new] = result.tensors_.emplace(name, file);
      if (!is_new) {
        return Status::corrupt_data("read sharded weights: a tensor lies in two files (tensor, files):", name, place->second->path(), path);
      }
    }
  }
  return result;
}

Result<std::vector<std::string>> WeightFiles::read_index(const std::string& folder, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const auto text, read_file(local_files(), path));
  const auto index = parse_json(text);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    return Status::corrupt_data("read an index of sharded weights: no object 'weight_map' in it (path):", path);
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      return Status::corrupt_data("read an index of sharded weights: want the name of a file beside it (path, tensor, value):", path,
                                  tensor, file.dump());
    }
    names.insert(file.get<std::string>());
  }
  std::vector<std::string> paths;
  for (const auto& name : names) {
    paths.push_back(join_path(folder, name));
  }
  return paths;
}

Result<WeightFiles> WeightFiles::open(const std::string& folder, const std::string& stem) {
  const std::string base = join_path(folder, stem);
  for (const char* variant : {"", ".fp16"}) {
    const std::string single = base + variant + ".safetensors";
    DARKROOM_ASSIGN_OR_RETURN(const bool has_single, local_files().exists(single));
    if (has_single) {
      return open_files({single});
    }
    // Both orders of the words occur for the variant's index.
    for (const std::string& index : {base + ".safetensors.index" + variant + ".json", base + variant + ".safetensors.index.json"}) {
      DARKROOM_ASSIGN_OR_RETURN(const bool has_index, local_files().exists(index));
      if (has_index) {
        DARKROOM_ASSIGN_OR_RETURN(const auto paths, read_index(folder, index));
        return open_files(paths);
      }
    }
  }
  return no_weights(folder, stem);
}

std::string shape_json(at::IntArrayRef shape) { return nlohmann::json(shape.vec()).dump(); }

Result<int64_t> WeightFiles::count_elements(const std::function<bool(const std::string& name)>& counts) const {
  int64_t num_elements = 0;
  for (const auto& [name, file] : tensors_) {
    if (counts == nullptr || counts(name)) {
      DARKROOM_ASSIGN_OR_RETURN(const TensorSpec spec, file->spec(name));
      num_elements += c10::multiply_integers(spec.shape);
    }
  }
  return num_elements;
}

}  // namespace darkroom
