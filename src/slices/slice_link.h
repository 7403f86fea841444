#pragma once

#include <atomic>
#include <chrono>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "darkroom/slices/slice_fleet.h"
#include "frames.h"
#include "slice_desk.h"

namespace darkroom {

/// An event that the desk writes to when there is something to ask for, as long as this lives. Errors: std::system_error.
class WakeEvent {
 public:
  explicit WakeEvent(SliceDesk& desk);
  ~WakeEvent();
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  SliceDesk& desk_;
  const int descriptor_;
};

/// The way to one encoder, on a thread of its own: connects, asks for what lies on the desk, and connects again when the encoder is lost.
class SliceLink {
 public:
  /// All of them outlive this.
  SliceLink(EncoderAddress address, const SliceFleetOptions& options, const SliceReader& read, SliceDesk& desk);
  ~SliceLink();
  SliceLink(const SliceLink&) = delete;
  SliceLink& operator=(const SliceLink&) = delete;

  const EncoderAddress& address() const { return address_; }
  bool is_joined() const { return is_joined_; }

 private:
  using Clock = std::chrono::steady_clock;
  class Talk;

  void run(const std::stop_token& stop);
  void note_unreachable(const Status& failure);

  const EncoderAddress address_;
  const SliceFleetOptions& options_;
  const SliceReader& read_;
  SliceDesk& desk_;
  const WakeEvent wake_;
  std::atomic<bool> is_joined_ = false;
  bool was_refused_ = false;  // Said once.
  std::jthread thread_;       // Last: it uses all above.
};

}  // namespace darkroom
