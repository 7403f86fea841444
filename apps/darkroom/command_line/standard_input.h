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
  bool has_line() const { return text_.find('\n', begin_) != std::string::npos; }
  /// Takes the next line, without its end; false at the end of the input. Errors: kCancelled, kUnavailable (cannot be read).
  Result<bool> next_line(std::string& line);

 private:
  Result<bool> read_more();

  std::stop_token stop_;
  int stopped_;       // An eventfd that a stop request raises.
  std::string text_;  // Read, from begin_ on not taken yet.
  size_t begin_ = 0;
};

}  // namespace darkroom
