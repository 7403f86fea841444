#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "darkroom/image/sandbox.h"
#include "decoder_channel.h"
#include "decoder_process.h"

namespace darkroom {

/// What became of one request.
struct Exchange {
  enum class Outcome {
    kAnswered,  ///< `response` is the child's, not judged yet.
    kDied,
    kKilled,  ///< By a SIGKILL of somebody else's: perhaps no fault of the picture.
    kOverran,
    kBroken,  ///< It wrote a number that is nobody's turn.
    kStopped,
  };
  Outcome outcome = Outcome::kAnswered;
  DecoderResponse response{};
  std::string trouble{};  ///< A sentence, unless answered.
  /// kOverran: it had so much of its processor time left.
  std::chrono::nanoseconds time_left{0};
};

/// One darkroom-decoder in its sandbox, with the memory that it shares with us. After an exchange that was not answered it must be
/// dropped. Thread safety: one thread.
class SandboxedChild {
 public:
  /// Starts it and waits for its report. Errors: those of decoder_in_child.
  static Result<SandboxedChild> start(const SandboxOptions& options, size_t input_capacity, size_t output_capacity);

  /// The picture lies in input() by then.
  Exchange ask(const DecoderRequest& request, const SandboxOptions& options);

  const DecoderChannel& channel() const { return channel_; }
  const SandboxProtection& protection() const { return protection_; }
  /// Whether it can be asked from this thread.
  bool is_alive() { return !process_.ended(); }
  bool is_of_this_thread() const { return thread_ == std::this_thread::get_id(); }
  std::chrono::nanoseconds processor_time() const { return process_.processor_time(); }

 private:
  using Instant = std::chrono::steady_clock::time_point;
  SandboxedChild(DecoderChannel channel, DecoderProcess process) : channel_(std::move(channel)), process_(std::move(process)) {}

  Status take_report(const SandboxOptions& options);
  // Waits for the response of this number: until then, or until so much processor time of the child.
  Exchange await(uint32_t number, Instant deadline, std::chrono::nanoseconds processor_deadline, const std::stop_token& stop);
  Exchange answer() const;

  DecoderChannel channel_;
  DecoderProcess process_;
  SandboxProtection protection_;
  uint32_t number_ = ChannelHeader::kReady;
  std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace darkroom
