#include "load_weights.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "darkroom/tensor/safetensors.h"

namespace darkroom {
namespace {

bool is_weight_dtype(torch::Dtype dtype) {
  return dtype == torch::kFloat32 || dtype == torch::kFloat16 || dtype == torch::kBFloat16 || dtype == torch::kFloat64;
}

std::optional<StoredPlace> find_place(const WeightFiles& weights, const WeightNaming& naming, const std::string& name) {
  for (auto& place : naming.places(name)) {
    if (weights.tensors().contains(place.tensor)) {
      return std::move(place);
    }
  }
  return std::nullopt;
}

// The shape that the stored tensor must have for this parameter.
std::vector<int64_t> stored_shape(const torch::Tensor& parameter, const StoredPlace& place, int64_t stored_dimensions) {
  std::vector<int64_t> shape = parameter.sizes().vec();
  shape.front() *= place.num_slices;
  if (place.is_1x1_convolution && stored_dimensions == parameter.dim() + 2) {
    shape.insert(shape.end(), {1, 1});
  }
  return shape;
}

Status fill_parameter(torch::Tensor& parameter, const std::string& name, const StoredPlace& place, const SafetensorsFile& file) {
  DARKROOM_ASSIGN_OR_RETURN(const auto whole, file.tensor(place.tensor));
  const auto want = stored_shape(parameter, place, whole.dim());
  if (whole.sizes() != want) {
    return Status::failed_precondition("weights do not fit their config: a tensor has another shape (tensor, stored as, want, got, file):",
                                       name, place.tensor, shape_json(want), shape_json(whole.sizes()), file.path());
  }
  if (!is_weight_dtype(whole.scalar_type())) {
    return Status::failed_precondition("weights must be float32, float16, bfloat16 or float64 (tensor, got, file):", place.tensor,
                                       safetensors_dtype_name(whole.scalar_type()), file.path());
  }
  const int64_t num_rows = parameter.size(0);
  const auto stored = whole.narrow(0, place.slice * num_rows, num_rows).view(parameter.sizes());
  if (stored.scalar_type() == parameter.scalar_type()) {
    parameter.set_data(stored);
  } else {
    parameter.copy_(stored);
  }
  return Status::ok();
}

}  // namespace

Status load_weights(torch::nn::Module& module, const WeightFiles& weights, const WeightNaming& naming, const std::string& source) {
  const torch::NoGradGuard no_grad;
  std::set<std::string> used;
  for (auto& item : module.named_parameters()) {
    const auto place = find_place(weights, naming, item.key());
    if (!place) {
      return Status::failed_precondition("weights do not fit their config: a tensor is missing (tensor, stored as, shape, where):",
                                         item.key(), naming.places(item.key()).front().tensor, shape_json(item.value().sizes()), source);
    }
    DARKROOM_RETURN_IF_ERROR(fill_parameter(item.value(), item.key(), *place, *weights.tensors().at(place->tensor)));
    used.insert(place->tensor);
  }
  for (const auto& [stored, file] : weights.tensors()) {
    if (!used.contains(stored) && !naming.is_foreign(stored)) {
      return Status::failed_precondition("weights do not fit their config: a tensor is surplus (tensor, shape, file):", stored,
                                         shape_json(file->spec(stored).value().shape), file->path());
    }
  }
  return Status::ok();
}

}  // namespace darkroom
