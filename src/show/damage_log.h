#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/status.h"

namespace darkroom {

/// What a verification found: all are counted, the first 20 are kept. Switched off, the first finding is the verdict.
class DamageLog {
 public:
  static constexpr size_t kMaxLines = 20;

  explicit DamageLog(bool is_on) : is_on_(is_on) {}

  bool is_on() const { return is_on_; }
  void add(std::string line) {
    ++count_;
    if (lines_.size() < kMaxLines) {
      lines_.push_back(std::move(line));
    }
  }
  /// Whether a failure says something about the data, not about this run (stopped, out of memory, a bug, a wrong flag).
  static bool is_about_data(const Status& status) {
    return !status.is_ok() && status.code() != StatusCode::kCancelled && status.code() != StatusCode::kResourceExhausted &&
           status.code() != StatusCode::kInternal && status.code() != StatusCode::kInvalidArgument;
  }
  /// A failure that costs one file or one part of what is looked at: one more finding while the log is on, and the work
  /// goes on; returned when the log is off or the failure is not about the data.
  Status take(const Status& status) {
    if (!is_on_ || !is_about_data(status)) {
      return status;
    }
    add(status.message());
    return Status::ok();
  }
  /// Says `to` for `from` in what was found: of a copy what it was made of.
  void rename(const std::string& from, const std::string& to) {
    for (std::string& line : lines_) {
      line = renamed(std::move(line), from, to);
    }
  }
  static std::string renamed(std::string text, const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
    return text;
  }
  const std::vector<std::string>& lines() const { return lines_; }
  int64_t count() const { return count_; }

 private:
  bool is_on_;
  int64_t count_ = 0;
  std::vector<std::string> lines_;
};

}  // namespace darkroom
