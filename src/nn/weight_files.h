#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/tensor/safetensors.h"

namespace darkroom {

/// What the weights of a component are called: those of U-Net and VAE, those of text encoders.
inline constexpr const char* kDiffusersStem = "diffusion_pytorch_model";
inline constexpr const char* kTransformersStem = "model";

/// "[2,3]": a shape in messages and fingerprints.
std::string shape_json(at::IntArrayRef shape);

/// Stored weights. In a component's folder: one safetensors file, or shards with their index, or the fp16 variant of either.
class WeightFiles {
 public:
  /// Opens what `folder` holds for `stem` (kDiffusersStem, kTransformersStem). Errors: kNotFound; kFailedPrecondition (only
  /// pickle files); kCorruptData (a damaged index or file, a tensor in two shards).
  static Result<WeightFiles> open(const std::string& folder, const std::string& stem);

  /// Opens one file with all its tensors. Errors: those of SafetensorsFile::open.
  static Result<WeightFiles> open_file(const std::string& path) { return open_files({path}); }

  /// Numbers in all tensors whose names `counts` takes; null: in all. Errors: those of reading their shapes.
  Result<int64_t> count_elements(const std::function<bool(const std::string& name)>& counts = {}) const;

  /// Stored names in byte order.
  const std::map<std::string, std::shared_ptr<SafetensorsFile>>& tensors() const { return tensors_; }

 private:
  static Result<WeightFiles> open_files(const std::vector<std::string>& paths);
  static Result<std::vector<std::string>> read_index(const std::string& folder, const std::string& path);

  std::map<std::string, std::shared_ptr<SafetensorsFile>> tensors_;  // A file is shared by its tensors.
};

}  // namespace darkroom
