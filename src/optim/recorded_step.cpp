#include "recorded_step.h"

#include <algorithm>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

// What a graph was recorded with, beside values.
bool are_alike(const std::vector<torch::Tensor>& left, const std::vector<torch::Tensor>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](const torch::Tensor& one, const torch::Tensor& other) {
    return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type();
  });
}

}  // namespace

std::vector<torch::Tensor> samples_of(const std::vector<torch::Tensor>& tensors, int64_t first, int64_t count) {
  std::vector<torch::Tensor> views;
  views.reserve(tensors.size());
  for (const torch::Tensor& tensor : tensors) {
    views.push_back(tensor.narrow(0, first, count));
  }
  return views;
}

RecordedStep::Pass& RecordedStep::pass_of(const DeviceBatch& batch, const std::vector<torch::Tensor>& inputs, int64_t count) {
  const auto known = passes_.find(count);
  if (known != passes_.end()) {
    const std::vector<torch::Tensor>& recorded = known->second->inputs;
    DARKROOM_CHECK(inputs.size() == recorded.size(), "a recorded pass has always as many inputs (had, has):", recorded.size(),
                   inputs.size());
    if (are_alike(inputs, recorded)) {
      return *known->second;
    }
    synchronize(device_);
    passes_.clear();
  }
  return *(passes_[count] = make_pass(batch, inputs, count));
}

std::unique_ptr<RecordedStep::Pass> RecordedStep::make_pass(const DeviceBatch& batch, const std::vector<torch::Tensor>& inputs,
                                                            int64_t count) const {
  auto made = std::make_unique<Pass>(device_);
  Pass& pass = *made;
  for (const torch::Tensor& input : inputs) {
    pass.inputs.push_back(torch::empty(input.sizes(), input.options()));
  }
  pass.losses = torch::empty({count}, torch::dtype(torch::kFloat32).device(device_));
  pass.graph = std::make_unique<DeviceGraph>(device_, [&pass, losses_of = batch.losses, batch_size = static_cast<double>(batch.size)] {
    pass.begin.record();
    const torch::Tensor losses = losses_of(pass.inputs);
    DARKROOM_CHECK(losses.sizes() == pass.losses.sizes(), "an objective gives one loss a sample:", pass.losses.numel());
    pass.losses.copy_(losses.detach());
    pass.forward_end.record();
    (losses.sum() / batch_size).backward();
    pass.end.record();
  });
  return made;
}

void RecordedStep::run_pass(const DeviceBatch& batch, int64_t first, const torch::Tensor& losses) {
  const std::vector<torch::Tensor> inputs = samples_of(batch.inputs, first, losses.numel());
  Pass& pass = pass_of(batch, inputs, losses.numel());
  for (size_t i = 0; i < inputs.size(); ++i) {
    pass.inputs[i].copy_(inputs[i], /*non_blocking=*/true);
  }
  pass.graph->run();
  ++pass.runs;
  losses.copy_(pass.losses);
}

void RecordedStep::run_update(const std::function<void()>& update) {
  if (update_ == nullptr) {
    update_ = std::make_unique<DeviceGraph>(device_, update);
  }
  update_->run();
}

double RecordedStep::forward_share() {
  double forward_ms = 0, whole_ms = 0;
  for (const auto& [size, pass] : passes_) {
    if (const auto runs = static_cast<double>(std::exchange(pass->runs, 0)); runs > 0) {
      forward_ms += runs * pass->forward_end.ms_since(pass->begin);
      whole_ms += runs * pass->end.ms_since(pass->begin);
    }
  }
  forward_share_ = whole_ms > 0 ? forward_ms / whole_ms : forward_share_;
  return forward_share_;
}

void RecordedStep::forget() {
  synchronize(device_);
  passes_.clear();
  update_.reset();
}

}  // namespace darkroom
