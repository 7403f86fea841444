#pragma once

#include <torch/torch.h>

#include "support/error_bound.h"

namespace darkroom {

/// The largest |value|, in double; 0 of an empty tensor.
inline double largest(const torch::Tensor& tensor) {
  return tensor.numel() == 0 ? 0.0 : tensor.detach().to(torch::kFloat64).abs().max().item<double>();
}

/// Success where shapes are equal and no element is further than `bound` from its counterpart.
inline testing::AssertionResult is_near(const torch::Tensor& got, const torch::Tensor& want, double bound) {
  if (got.sizes() != want.sizes()) {
    return testing::AssertionFailure() << "got shape " << got.sizes() << ", want " << want.sizes();
  }
  return error_within(largest(got.detach().to(torch::kFloat64) - want.detach().to(torch::kFloat64)), bound);
}

/// The same with a bound for each element.
inline testing::AssertionResult is_near(const torch::Tensor& got, const torch::Tensor& want, const torch::Tensor& bound) {
  if (got.sizes() != want.sizes()) {
    return testing::AssertionFailure() << "got shape " << got.sizes() << ", want " << want.sizes();
  }
  const auto error = (got.detach().to(torch::kFloat64) - want.detach().to(torch::kFloat64)).abs();
  const auto share = torch::where(error == 0, torch::zeros_like(error), error / bound.to(torch::kFloat64));
  return error_within(largest(share), 1.0);
}

}  // namespace darkroom
