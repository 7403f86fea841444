#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/status.h"

namespace darkroom {

/// Where flat parameters lie and in which precision the network computes. The defaults are a run on the CPU in float32.
struct FlatParametersOptions {
  torch::Device device = torch::kCPU;
  torch::ScalarType compute_type = torch::kFloat32;  ///< float32, or bfloat16 beside float32 master weights.
  bool channels_last = false;  ///< Convolution weights lie as O, H, W, I, which GPUs' convolutions take without a copy.
  int64_t alignment = 1;       ///< Each parameter starts at a multiple of so many elements; GPU kernels want 64 (128 bytes of bfloat16).
  // Of several ranks each keeps the float32 weights of its own slice alone (slice_of_rank) where the network computes with a copy.
  int64_t rank = 0;
  int64_t num_ranks = 1;

  /// What pays on a GPU: channels_last, aligned.
  static FlatParametersOptions for_gpu(const torch::Device& device, torch::ScalarType compute_type);
  /// kInvalidArgument naming the first bad field.
  Status validate() const;
};

/// Elements [first, first + count) of a flat buffer.
struct FlatRange {
  int64_t first = 0;
  int64_t count = 0;

  /// The buffer itself where the range is all of it.
  torch::Tensor of(const torch::Tensor& flat) const { return count == flat.numel() ? flat : flat.narrow(0, first, count); }
  /// What two ranges have in common; count 0: nothing.
  FlatRange overlap(const FlatRange& other) const;
  bool operator==(const FlatRange&) const = default;
};

/// All parameters of a module in flat buffers, in byte order of the parameter names: float32 master weights, which the optimizer
/// changes; what the module computes with; float32 gradients. With compute type float32 the module's tensors are views of the master
/// weights; with bfloat16 they are views of a second buffer, which AdamW's pass over memory rounds from the first. Construction copies
/// the values to the device and re-points every parameter and its gradient into the buffers, which gives the originals back before there
/// are gradients; from then on backward() adds into
/// gradients(), and the optimizer works on one array. Names and shapes stay the published ones whatever the layout.
///
/// Gradients are float32 in any case. In bfloat16 autograd hands over bfloat16, and backward() adds each parameter's straight into the
/// float32 buffer, with no copy of all of them between: so the sum over micro-batches rounds as float32 does.
///
/// REQUIRES: nobody replaces a parameter or its gradient afterwards (Module::to, Module::zero_grad).
/// Thread safety: as the module.
class FlatParameters {
 public:
  /// One parameter's place in the buffers, in elements; what alignment leaves between two of them is zero and stays so.
  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
    int64_t first = 0;
    int64_t count = 0;
  };

  /// REQUIRES: options.validate() is ok; the parameters are float on the CPU (of any float type) and none is shared.
  explicit FlatParameters(torch::nn::Module& module, const FlatParametersOptions& options = {});

  const std::vector<Entry>& entries() const { return entries_; }
  const FlatParametersOptions& options() const { return options_; }
  /// Elements of a buffer, alignment included.
  int64_t size() const { return size_; }
  FlatRange whole() const { return {0, size()}; }
  /// Elements of the parameters themselves.
  int64_t num_elements() const { return num_elements_; }
  /// What is here of the master weights: all, or this rank's slice.
  const FlatRange& master_range() const { return master_range_; }
  /// Master weights, float32 (master_range().count).
  const torch::Tensor& values() const { return values_; }
  /// A view of a part of them. REQUIRES: `range` lies within master_range().
  torch::Tensor values_of(const FlatRange& range) const;
  /// float32 (size()).
  const torch::Tensor& gradients() const { return gradients_; }
  /// The bfloat16 weights that the module computes with (size()); undefined where it computes with values().
  const torch::Tensor& compute_copy() const { return compute_copy_; }
  /// Rounds the master weights that are here to the compute copy: after writing into values(). Nothing to do without a copy.
  void refresh_compute_copy();

  void zero_gradients() { gradients_.zero_(); }
  /// The module's parameters, in the order of entries().
  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  /// Adds gradients in the order of parameters(), as backward() would; an undefined one is zero.
  void add_gradients(const std::vector<torch::Tensor>& gradients);
  /// Throws CheckFailure when a parameter or gradient has been replaced since construction.
  void check_bound() const;
  /// The parameters' names with views of `flat` in their shapes: of values(), of moments, of EMA weights. With channels_last
  /// a convolution weight's view is dense, but not contiguous.
  /// REQUIRES: `flat` is (size()).
  std::vector<std::pair<std::string, torch::Tensor>> named_views(const torch::Tensor& flat) const;
  /// The values of one parameter alone, as they lie in the buffers (entry.count), in its shape; not contiguous where they lie otherwise
  /// than the shape says.
  torch::Tensor shaped(const torch::Tensor& values, const Entry& entry) const;

  // What is stored has the canonical order, whatever the layout here: the parameters one after the other by name, each as its shape
  // says, nothing between; num_elements() in all. On the CPU.

  /// Elements `range` of the canonical order of `flat` (size()); `flat` itself where that is in this order, on the CPU and the range whole.
  torch::Tensor canonical_range(const torch::Tensor& flat, const FlatRange& range) const;
  /// Puts `values` (range.count) there.
  void set_canonical_range(const torch::Tensor& flat, const FlatRange& range, const torch::Tensor& values) const;
  /// Whether the buffers have that order.
  bool is_canonical() const;

 private:
  void take_weights();
  torch::Tensor view_of(const torch::Tensor& flat, const Entry& entry) const;

  FlatParametersOptions options_;
  int64_t size_ = 0;
  int64_t num_elements_ = 0;
  FlatRange master_range_;
  std::vector<Entry> entries_;
  std::vector<torch::Tensor> parameters_;
  torch::Tensor values_;
  torch::Tensor compute_copy_;
  torch::Tensor gradients_;
};

}  // namespace darkroom
