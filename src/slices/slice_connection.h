#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "darkroom/slices/slice_server.h"
#include "frames.h"
#include "slice_workers.h"

namespace darkroom {

/// Tells of connections that are refused, of which a stranger can make as many as it likes: of the first ten, then of one a minute. Thread
/// safety: none.
class RefusalLog {
 public:
  void note(const Status& reason);

 private:
  using Clock = std::chrono::steady_clock;

  int num_told_ = 0;
  int64_t num_untold_ = 0;
  Clock::time_point next_ = {};
};

/// A trainer's connection as the server sees it: who may ask, what was asked and not yet sent. Thread safety: none.
class SliceConnection {
 public:
  using Clock = std::chrono::steady_clock;

  /// Takes the descriptor over and greets. `has_room`: whether one more connection may be served, asked when this one has said its hello.
  /// `options`, `workers` and `refusals` outlive this.
  SliceConnection(uint64_t number, int descriptor, const SliceServerOptions& options, SliceWorkers& workers, RefusalLog& refusals,
                  std::function<bool()> has_room);
  ~SliceConnection();
  SliceConnection(const SliceConnection&) = delete;
  SliceConnection& operator=(const SliceConnection&) = delete;

  int descriptor() const { return descriptor_; }
  uint64_t number() const { return number_; }
  /// Whether it has not said its hello yet.
  bool is_greeting() const { return phase_ == Phase::kGreeting; }
  /// Whether it is a trainer's, and not over.
  bool is_serving() const { return phase_ == Phase::kServing; }
  /// Whether it takes frames: not while as much is asked for, or made and not sent, as may be.
  bool wants_to_read() const {
    return phase_ == Phase::kEnding || in_flight_ + static_cast<int>(writer_.num_frames()) < options_.max_in_flight;
  }
  bool wants_to_write() const { return !writer_.is_empty(); }
  /// Until when something has to happen; max() where nothing has to.
  Clock::time_point deadline() const;
  /// When it is to be looked after again: at its deadline, or to say that it is worked on.
  Clock::time_point next_look() const;
  /// Tells a trainer that waits for long that its slices are worked on, where they are.
  void say_working();

  /// False: the connection is over. The reason, where somebody should know it, has been logged.
  bool read();
  bool write();
  /// An answer to one of its requests.
  void send_answer(std::string frame);
  /// Says why it is not served, and ends once that is sent.
  void refuse(const Status& reason);
  /// Says that nothing more comes, once all is sent.
  void end();

 private:
  enum class Phase { kGreeting, kServing, kEnding };

  bool drop_unread();
  Status take(const Frame& frame);
  Status take_hello(const Frame& frame);
  Status take_request(const Frame& frame);
  Status check_hello(const nlohmann::json& hello) const;

  const uint64_t number_;
  const int descriptor_;
  const SliceServerOptions& options_;
  SliceWorkers& workers_;
  RefusalLog& refusals_;
  const std::function<bool()> has_room_;
  const std::string nonce_;
  Phase phase_ = Phase::kGreeting;
  Clock::time_point deadline_;  // Of the greeting, then of what is being sent.
  FrameReader reader_{kMaxWordsBytes};
  FrameWriter writer_;
  int in_flight_ = 0;
  Clock::time_point next_word_{};  // While something is in flight.
  size_t num_dropped_ = 0;         ///< Bytes, after a refusal.
};

}  // namespace darkroom
