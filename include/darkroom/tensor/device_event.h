#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <torch/torch.h>

#include <optional>

namespace darkroom {

/// A place in what a GPU has been asked for, whatever device the calling thread uses otherwise: torch's own events would open that one,
/// too, which costs memory on the first GPU for every process that trains on another. Thread safety: none.
class DeviceEvent {
 public:
  /// REQUIRES: `device` is a GPU.
  explicit DeviceEvent(const torch::Device& device) : device_(device) {}
  ~DeviceEvent();
  DeviceEvent(DeviceEvent&&) noexcept = default;
  DeviceEvent& operator=(DeviceEvent&&) = delete;

  /// The place behind everything that the current stream of this thread has been asked for so far, or `stream`.
  void record();
  void record(const c10::Stream& stream);
  /// What the current stream, or `stream`, is asked for from now on waits for the place. REQUIRES: record().
  void block();
  void block(const c10::Stream& stream);
  /// Whether the device has come to the place; true before record().
  bool is_reached() const;
  /// The CPU waits for it.
  void synchronize() const;

 private:
  torch::Device device_;
  std::optional<c10::Event> event_;
};

/// A stream of one's own on a GPU.
c10::Stream new_stream(const torch::Device& device);

}  // namespace darkroom
