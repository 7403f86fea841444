#include "weights_study.h"

#include <fmt/format.h>

#include <algorithm>

#include "cell_text.h"
#include "darkroom/files/paths.h"
#include "darkroom/tensor/safetensors.h"

namespace darkroom {
namespace {

bool is_variant(const std::string& path) { return file_name(path).find(".fp16.") != std::string::npos; }

bool is_pickle(const std::string& path) {
  return path.ends_with(".bin") || path.ends_with(".pt") || path.ends_with(".pth") || path.ends_with(".ckpt");
}

Status add_file(const std::string& path, WeightsFacts& facts) {
  DARKROOM_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(path));
  facts.paths.push_back(path);
  facts.num_bytes += static_cast<int64_t>(file->size_bytes());
  for (const std::string& name : file->names()) {
    DARKROOM_ASSIGN_OR_RETURN(const TensorSpec spec, file->spec(name));
    int64_t num_elements = 1;
    for (const int64_t extent : spec.shape) {
      num_elements *= extent;
    }
    facts.num_tensors += 1;
    facts.num_parameters += num_elements;
    facts.dtypes[safetensors_dtype_name(spec.dtype)] += 1;
  }
  return Status::ok();
}

Status check_file(const std::string& path, const std::stop_token& stop, DamageLog& damage) {
  DARKROOM_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::open(path));
  for (const std::string& name : file->names()) {
    if (stop.stop_requested()) {
      return Status::cancelled("inspect was stopped while it read tensors (file):", path);
    }
    DARKROOM_ASSIGN_OR_RETURN(const torch::Tensor tensor, file->tensor(name));
    if (!tensor.is_floating_point()) {
      continue;
    }
    const int64_t num_bad = tensor.numel() - torch::isfinite(tensor).sum().item<int64_t>();
    if (num_bad > 0) {
      damage.add(fmt::format("{}: tensor {} holds NaN or infinities: {} of {} values", path, name, num_bad, tensor.numel()));
    }
  }
  return Status::ok();
}

}  // namespace

std::string WeightsFacts::to_text() const {
  if (paths.empty()) {
    return has_pickle ? "only pickle files, which are not read" : "none";
  }
  std::string types;
  for (const auto& [name, count] : dtypes) {
    types += (types.empty() ? "" : ", ") + name;
  }
  return fmt::format("{} parameters in {} tensors ({}), {}{}", grouped_digits(num_parameters), grouped_digits(num_tensors), types,
                     paths.size() == 1 ? "" : fmt::format("{} files, ", paths.size()), bytes_text(num_bytes));
}

Result<WeightsFacts> read_weights_facts(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const FileInfo info, files.stat(path));
  WeightsFacts facts;
  if (!info.is_folder) {
    DARKROOM_RETURN_IF_ERROR(add_file(path, facts));
    return facts;
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::vector<FileInfo> entries, files.list(path));
  std::vector<std::string> full, variants;
  for (const FileInfo& entry : entries) {
    if (!entry.is_folder && entry.path.ends_with(".safetensors")) {
      (is_variant(entry.path) ? variants : full).push_back(entry.path);
    }
    facts.has_pickle = facts.has_pickle || (!entry.is_folder && is_pickle(entry.path));
  }
  for (const std::string& file : full.empty() ? variants : full) {
    DARKROOM_RETURN_IF_ERROR(add_file(file, facts));
  }
  return facts;
}

Status check_weights(const std::vector<std::string>& paths, const std::stop_token& stop, DamageLog& damage) {
  for (const std::string& path : paths) {
    DARKROOM_RETURN_IF_ERROR(damage.take(check_file(path, stop, damage)));
  }
  return Status::ok();
}

}  // namespace darkroom
