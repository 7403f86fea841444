#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace darkroom {

/// All parameters of a module in one float32 buffer, and all gradients in another, both in byte order of the parameter
/// names without padding. Construction copies the values and re-points every parameter and its gradient into the buffers;
/// from then on backward() adds into gradients(), and the optimizer works on one array.
/// REQUIRES: nobody replaces a parameter or its gradient afterwards (Module::to, Module::zero_grad).
/// Thread safety: as the module.
class FlatParameters {
 public:
  /// One parameter's place in the buffers.
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    int64_t first = 0;
    int64_t count = 0;
  };

  /// REQUIRES: the parameters are float on the CPU (other float types are converted to float32) and none is shared.
  explicit FlatParameters(torch::nn::Module& module);

  const std::vector<Entry>& entries() const { return entries_; }
  int64_t size() const { return values_.numel(); }
  /// float32 (size()).
  const torch::Tensor& values() const { return values_; }
  const torch::Tensor& gradients() const { return gradients_; }

  void zero_gradients() { gradients_.zero_(); }
  /// Throws CheckFailure when a parameter or gradient has been replaced since construction.
  void check_bound() const;
  /// The parameters' names with views of `flat` in their shapes: of values(), of moments, of EMA weights.
  /// REQUIRES: `flat` is (size()).
  std::vector<std::pair<std::string, torch::Tensor>> named_views(const torch::Tensor& flat) const;

 private:
  std::vector<Entry> entries_;
  std::vector<torch::Tensor> parameters_;
  torch::Tensor values_;
  torch::Tensor gradients_;
};

}  // namespace darkroom
