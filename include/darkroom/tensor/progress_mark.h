#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>

namespace darkroom {

/// What a rank says of its own progress, for a watch that looks at it from another thread: a process gives signs of life while its work
/// hangs at a disk that does not answer. Thread-safe.
class ProgressMark {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ProgressMark(std::chrono::seconds limit) : limit_(limit) {}

  /// The rank gets on, and does this now ("12 steps done, saving a checkpoint"). From the first time on it is expected again within the
  /// limit; an empty text ends that.
  void note(std::string doing);
  /// A thread of the rank waits for other ranks from here to end_wait(), for as long as it takes; several may at once.
  void begin_wait();
  void end_wait();

  struct Stall {
    std::string doing;
    std::chrono::seconds length;
  };
  /// One look of the watch: the rank's hang, when it neither got on nor waited for others in all looks of more than the limit.
  /// `was_away`: the watch itself could not look for a while (a suspended machine), which is nobody's silence.
  std::optional<Stall> look(Clock::time_point now, bool was_away);

 private:
  const std::chrono::seconds limit_;
  std::mutex mutex_;
  std::string doing_;
  int waiting_ = 0;
  bool got_on_ = false;  // Since the last look.
  Clock::time_point since_;
};

}  // namespace darkroom
