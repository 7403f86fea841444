#include "recorded_step.h"

#include "darkroom/core/check.h"

namespace darkroom {

std::vector<torch::Tensor> samples_of(const std::vector<torch::Tensor>& tensors, int64_t first, int64_t count) {
  std::vector<torch::Tensor> views;
  views.reserve(tensors.size());
  for (const torch::Tensor& tensor : tensors) {
    views.push_back(tensor.narrow(0, first, count));
  }
  return views;
}

RecordedStep::Pass& RecordedStep::pass_of(const DeviceBatch& batch, int64_t count) {
  std::unique_ptr<Pass>& found = passes_[count];
  if (found != nullptr) {
    return *found;
  }
  found = std::make_unique<Pass>();
  Pass& pass = *found;
  for (const torch::Tensor& input : samples_of(batch.inputs, 0, count)) {
    pass.inputs.push_back(torch::empty(input.sizes(), input.options()));
  }
  pass.losses = torch::empty({count}, torch::dtype(torch::kFloat32).device(device_));
  pass.graph = std::make_unique<DeviceGraph>(device_, [&pass, losses_of = batch.losses, batch_size = static_cast<double>(batch.size)] {
    const torch::Tensor losses = losses_of(pass.inputs);
    DARKROOM_CHECK(losses.sizes() == pass.losses.sizes(), "an objective gives one loss a sample:", pass.losses.numel());
    pass.losses.copy_(losses.detach());
    (losses.sum() / batch_size).backward();
  });
  return pass;
}

void RecordedStep::run_pass(const DeviceBatch& batch, int64_t first, const torch::Tensor& losses) {
  Pass& pass = pass_of(batch, losses.numel());
  const std::vector<torch::Tensor> inputs = samples_of(batch.inputs, first, losses.numel());
  DARKROOM_CHECK(inputs.size() == pass.inputs.size(), "a recorded pass has always the same inputs (had, has):", pass.inputs.size(),
                 inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    DARKROOM_CHECK(inputs[i].sizes() == pass.inputs[i].sizes() && inputs[i].scalar_type() == pass.inputs[i].scalar_type(),
                   "an input of a recorded pass keeps its size and type (number):", i);
    pass.inputs[i].copy_(inputs[i], /*non_blocking=*/true);
  }
  pass.graph->run();
  losses.copy_(pass.losses);
}

void RecordedStep::run_update(const std::function<void()>& update) {
  if (update_ == nullptr) {
    update_ = std::make_unique<DeviceGraph>(device_, update);
  }
  update_->run();
}

void RecordedStep::forget() {
  synchronize(device_);
  passes_.clear();
  update_.reset();
}

}  // namespace darkroom
