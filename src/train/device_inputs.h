#pragma once

#include <torch/torch.h>

#include <map>
#include <string>

#include "darkroom/tensor/upload.h"

namespace darkroom {

/// What a step reads, on the device where it runs: the tensors of one batch after the other, by name, in the same memory as long as shapes
/// stay. The host does not wait for the device. Thread safety: none.
class DeviceInputs {
 public:
  explicit DeviceInputs(const torch::Device& device) : device_(device) {}

  const torch::Device& device() const { return device_; }
  /// `source` (CPU) on the device, in its type; itself where the step runs on the CPU.
  torch::Tensor put(const std::string& name, const torch::Tensor& source);

 private:
  struct Input {
    Upload upload;
    torch::Tensor values;
  };

  torch::Device device_;
  std::map<std::string, Input> inputs_;
};

}  // namespace darkroom
