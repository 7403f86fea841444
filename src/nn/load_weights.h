#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "darkroom/core/status.h"
#include "weight_files.h"

namespace darkroom {

/// Where one parameter lies in stored weights: a whole tensor, or one of several equal slices of its rows.
struct StoredPlace {
  std::string tensor;
  int64_t slice = 0;
  int64_t num_slices = 1;
  bool is_1x1_convolution = false;  ///< The tensor may have two last dimensions of size 1 that the parameter lacks.
};

/// How stored files name the parameters of one component.
struct WeightNaming {
  /// The places where the parameter of that name may lie; the first that is there counts.
  std::function<std::vector<StoredPlace>(const std::string& name)> places;
  /// Tensors that carry no weight of this component and are left unread. Every other stored tensor must be used.
  std::function<bool(const std::string& stored)> is_foreign;
};

/// Gives every parameter of `module` its stored values, in float32. What is stored as float32 is used in place: the parameter
/// becomes a view of the mapped file, without a copy; other types are converted, one tensor at a time. `source` is the folder
/// or file that messages name. Errors: kFailedPrecondition (a tensor missing, surplus, of another shape or no float).
Status load_weights(torch::nn::Module& module, const WeightFiles& weights, const WeightNaming& naming, const std::string& source);

}  // namespace darkroom
