#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "child_process/child_process.h"
#include "darkroom/core/result.h"

namespace darkroom {

/// The words of --launcher, parted by spaces; in quotes of either kind a space is a word's own. Errors: kInvalidArgument (no word, a quote
/// that is not closed).
Result<std::vector<std::string>> launcher_words(const std::string& text);

/// `darkroom train` as a program beside this one, whose words go into a file. However this program ends, it ends, too; the destructor ends
/// it at once. With a launcher these are promises of what the launcher does: it is the process that is started, asked and ended here.
/// Thread safety: none. REQUIRES: the thread that started it lives as long.
class TrialProcess {
 public:
  using SteadyClock = std::chrono::steady_clock;

  /// Starts it with the flags of train, behind the words of a launcher where there are some. Errors: those of start_child; kUnavailable.
  static Result<std::unique_ptr<TrialProcess>> start(const std::vector<std::string>& launcher, const std::vector<std::string>& train_flags,
                                                     const std::string& log_path);
  ~TrialProcess();
  TrialProcess(const TrialProcess&) = delete;
  TrialProcess& operator=(const TrialProcess&) = delete;

  /// Asks it to end with a checkpoint, once.
  void ask_to_stop();
  bool was_asked() const { return was_asked_; }
  /// How it ended, if it has; of a launched one its size is not known, and 0. Does not wait. Errors: those of wait_for_child.
  Result<std::optional<ChildEnd>> poll_end();
  double seconds() const;
  /// Readable when it has ended.
  int watched() const { return watched_; }
  /// The last error that it told in this start, else its last line; "" where it told nothing.
  std::string last_words() const;

 private:
  TrialProcess() = default;

  pid_t pid_ = 0;
  int watched_ = -1;
  bool is_launched_ = false;
  bool was_asked_ = false;
  bool has_ended_ = false;
  SteadyClock::time_point began_;
  std::string log_path_;
  int64_t log_begin_ = 0;
};

/// Waits until one of the processes has ended, or for a tenth of a second.
void wait_for_any(const std::vector<const TrialProcess*>& processes);

}  // namespace darkroom
