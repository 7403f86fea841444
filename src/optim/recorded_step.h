#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "darkroom/optim/train_step.h"
#include "darkroom/tensor/device_runtime.h"

namespace darkroom {

/// Samples [first, first + count) of tensors whose first dimension are samples, as views.
std::vector<torch::Tensor> samples_of(const std::vector<torch::Tensor>& tensors, int64_t first, int64_t count);

/// The two kinds of graphs of a step: forward and backward passes over a micro-batch, one graph for each number of samples (a batch may end
/// with a smaller micro-batch), and the update. A graph's tensors keep their places, so a micro-batch's inputs are copied to it first.
/// Inputs of another type or size than those before drop the graphs of passes, so that memory holds activations of one kind of inputs.
/// Thread safety: none.
class RecordedStep {
 public:
  explicit RecordedStep(const torch::Device& device) : device_(device) {}

  /// Adds the gradient of the samples that begin at `first` of the batch, as their share of the mean loss, and writes their losses,
  /// float32. REQUIRES: a batch has as many inputs as those before.
  void run_pass(const DeviceBatch& batch, int64_t first, const torch::Tensor& losses);
  /// Calls `update`, which is the same function in every step.
  void run_update(const std::function<void()>& update);
  /// Drops the graphs: what they knew changes its place or size. Waits for the device.
  void forget();
  /// Share of the forward passes in the device's time of the passes that were run since the last call, as each size's last run had it; as
  /// before where there were none. REQUIRES: the device has been waited for.
  double forward_share();

 private:
  struct Pass {
    explicit Pass(const torch::Device& device) : begin(device), forward_end(device), end(device) {}
    std::vector<torch::Tensor> inputs;
    torch::Tensor losses;
    TimeMark begin, forward_end, end;
    int64_t runs = 0;                    // Since the last forward_share().
    std::unique_ptr<DeviceGraph> graph;  // Last: its function uses the others.
  };

  Pass& pass_of(const DeviceBatch& batch, const std::vector<torch::Tensor>& inputs, int64_t count);
  std::unique_ptr<Pass> make_pass(const DeviceBatch& batch, const std::vector<torch::Tensor>& inputs, int64_t count) const;

  const torch::Device device_;
  std::map<int64_t, std::unique_ptr<Pass>> passes_;  // By their number of samples.
  std::unique_ptr<DeviceGraph> update_;
  double forward_share_ = 0;
};

}  // namespace darkroom
