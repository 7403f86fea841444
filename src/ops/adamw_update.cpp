#include "darkroom/ops/adamw_update.h"

#include <algorithm>
#include <initializer_list>

#include "darkroom/core/check.h"
#include "references.h"

namespace darkroom {
namespace {

void check_array(const torch::Tensor& array, const torch::Tensor& like, std::initializer_list<torch::ScalarType> types, const char* name) {
  DARKROOM_CHECK(array.dim() == 1 && array.is_contiguous() && array.numel() == like.numel() && array.device() == like.device(),
                 "an update's arrays are flat, of one length and on one device:", name);
  DARKROOM_CHECK(std::find(types.begin(), types.end(), array.scalar_type()) != types.end(),
                 "an array of the update has a wrong type:", name, c10::toString(array.scalar_type()));
}

void check_scalars(const torch::Tensor& scalars) {
  DARKROOM_CHECK(scalars.scalar_type() == torch::kFloat64 && scalars.is_contiguous() && scalars.numel() == AdamWScalar::kCount,
                 "the scalars of an update are float64 (count):", scalars.numel());
}

}  // namespace

void adamw_update(const AdamWArrays& arrays, const torch::Tensor& scalars) {
  const torch::NoGradGuard no_grad;
  check_array(arrays.weights, arrays.weights, {torch::kFloat32}, "weights");
  check_array(arrays.gradients, arrays.weights, {torch::kFloat32, torch::kBFloat16}, "gradients");
  check_array(arrays.first_moment, arrays.weights, {torch::kFloat32}, "first_moment");
  check_array(arrays.second_moment, arrays.weights, {torch::kFloat32}, "second_moment");
  if (arrays.ema.defined()) {
    check_array(arrays.ema, arrays.weights, {torch::kFloat32}, "ema");
  }
  if (arrays.compute.defined()) {
    check_array(arrays.compute, arrays.weights, {torch::kBFloat16}, "compute");
  }
  check_scalars(scalars);
  operations_for(arrays.weights.device().type()).adamw_update(arrays, scalars);
}

torch::Tensor norm_partials(const torch::Tensor& flat) {
  const torch::NoGradGuard no_grad;
  check_array(flat, flat, {torch::kFloat32, torch::kBFloat16}, "the norm's");
  return operations_for(flat.device().type()).norm_partials(flat);
}

torch::Tensor add_norm_partials(const torch::Tensor& partials) {
  const torch::NoGradGuard no_grad;
  check_array(partials, partials, {torch::kFloat64}, "the norm's partial sums");
  return operations_for(partials.device().type()).add_norm_partials(partials);
}

torch::Tensor squared_norm(const torch::Tensor& flat) { return add_norm_partials(norm_partials(flat)); }

void clip_scale(const torch::Tensor& squared_norm, const torch::Tensor& losses, const torch::Tensor& scalars) {
  const torch::NoGradGuard no_grad;
  DARKROOM_CHECK(squared_norm.scalar_type() == torch::kFloat64 && squared_norm.numel() == 1, "a squared norm is one float64");
  check_array(losses, losses, {torch::kFloat32}, "losses");
  check_scalars(scalars);
  operations_for(scalars.device().type()).clip_scale(squared_norm, losses, scalars);
}

}  // namespace darkroom
