#include "darkroom/optim/clip.h"

#include <algorithm>
#include <cmath>

#include "darkroom/ops/adamw_update.h"

namespace darkroom {

double flat_norm(const torch::Tensor& flat) { return std::sqrt(squared_norm(flat).item<double>()); }

double clip_coefficient(double norm, double max_norm) { return max_norm > 0.0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0; }

}  // namespace darkroom
