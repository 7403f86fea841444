#pragma once

#include <sys/types.h>
#include <time.h>

#include <chrono>
#include <optional>
#include <string>

#include "darkroom/core/result.h"

namespace darkroom {

/// How a child ended, for a sentence: "exit code 3", "SIGSEGV".
struct ProcessEnd {
  int signal = 0;  ///< That ended it; 0: it ended by itself.
  std::string how;
};

/// A running darkroom-decoder as its parent sees it. It is killed and waited for with the object. Thread safety: one thread.
class DecoderProcess {
 public:
  /// Starts `program` with `channel` as descriptor 3, an empty environment and every signal blocked that does not mean its death: what
  /// Ctrl-C or a service manager sends to all processes is for the parent to obey. Errors: kNotFound (no such program),
  /// kFailedPrecondition (no program that this machine can run), kUnavailable (no process to be had).
  static Result<DecoderProcess> start(const std::string& program, int channel);

  DecoderProcess(DecoderProcess&& other) noexcept;
  DecoderProcess& operator=(DecoderProcess&& other) noexcept;
  ~DecoderProcess();

  /// How it ended; none while it runs.
  std::optional<ProcessEnd> ended();
  /// Ends it, if it runs, and takes it from the process table. What it had done to the shared memory stays.
  void end();
  /// Processor time since its start; zero when it has ended.
  std::chrono::nanoseconds processor_time() const;
  /// What it wrote to stderr before it closed that: the loader's complaint about a missing library. One line.
  std::string said() const;

 private:
  DecoderProcess(pid_t pid, int said) : pid_(pid), said_(said) {}

  pid_t pid_ = -1;  // -1: not ours any more.
  int said_ = -1;
  clockid_t clock_{};  // Of its processor time.
  ProcessEnd end_;
};

}  // namespace darkroom
