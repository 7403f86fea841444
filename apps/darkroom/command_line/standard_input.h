#pragma once

#include <stop_token>
#include <string>

#include "darkroom/core/result.h"

namespace darkroom {

/// Lines of the standard input; waiting for one ends when a stop is requested. Thread safety: one thread.
class StandardInput {
 public:
  explicit StandardInput(std::stop_token stop);
  ~StandardInput();
  StandardInput(const StandardInput&) = delete;
  StandardInput& operator=(const StandardInput&) = delete;

  /// Whether the next line is here already, so that next_line() will not wait.
  bool has_line() { return find_end() != std::string::npos; }
  /// Takes the next line, without its end; false at the end of the input. Errors: kCancelled, kUnavailable (cannot be read),
  /// kCorruptData (a line of more than 64 MiB).
  Result<bool> next_line(std::string& line);

 private:
  /// Where the line that begins at begin_ ends, or npos.
  size_t find_end();
  Result<bool> read_more();

  std::stop_token stop_;
  int stopped_;       // An eventfd that a stop request raises.
  std::string text_;  // Read, from begin_ on not taken yet.
  size_t begin_ = 0;
  size_t scanned_ = 0;  // No line ends between begin_ and here.
};

}  // namespace darkroom
