#pragma once

#include <torch/torch.h>

#include <optional>
#include <vector>

#include "darkroom/tensor/device_event.h"

namespace darkroom {

/// Sends tensors to a device while the host goes on: through page-locked slots, taken in turn, so that the host may change or drop what it
/// sent at once. Waits only when the copy of as many sends before is still under way, which keeps the host from running far ahead.
/// Thread safety: none.
class Upload {
 public:
  static constexpr size_t kSlots = 2;

  explicit Upload(const torch::Device& device) : device_(device) {}

  /// Copies `source` (CPU) into `target`, of the same shape and type, after what the device was asked for before.
  void send(const torch::Tensor& source, const torch::Tensor& target);

 private:
  struct Slot {
    torch::Tensor staging;
    std::optional<DeviceEvent> sent;
  };

  torch::Device device_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
};

}  // namespace darkroom
