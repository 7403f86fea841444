#pragma once

#include <chrono>
#include <memory>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"

namespace darkroom {

/// The whole terminal at the standard streams, for frames that replace each other: keys come at once and are not shown, and what was on it
/// comes back at the end. Thread safety: one thread.
class TopScreen {
 public:
  /// Whether standard input and output are a terminal that can be drawn on.
  static bool is_there();
  /// Errors: kFailedPrecondition, kResourceExhausted. REQUIRES: is_there().
  static Result<std::unique_ptr<TopScreen>> open();
  ~TopScreen();
  TopScreen(const TopScreen&) = delete;
  TopScreen& operator=(const TopScreen&) = delete;

  size_t columns() const;
  size_t rows() const;
  /// Errors: those of writing to the terminal.
  Status show(const std::string& frame);
  /// Waits for the interval to pass. False: `q` came, the input ended or a stop is requested.
  bool wait(std::chrono::milliseconds interval, const std::stop_token& stop);

 private:
  TopScreen() = default;

  struct Settings;  // Of the terminal before.
  std::unique_ptr<Settings> before_;
  int woken_ = -1;  // An eventfd that a stop request writes to.
};

}  // namespace darkroom
