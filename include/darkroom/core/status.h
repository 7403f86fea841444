#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

namespace darkroom {

/// What kind of failure a Status reports. Callers branch on the code, people read the message.
enum class StatusCode {
  kOk,
  kInvalidArgument,     ///< Flags or configuration alone are wrong (exit code 2).
  kNotFound,            ///< A named file, column, tensor or row does not exist.
  kAlreadyExists,       ///< Something else already has that name.
  kFailedPrecondition,  ///< The request and the state on disk do not fit (another job's folder, another model's config).
  kUnavailable,         ///< The store or the network failed; the same call may succeed later.
  kCorruptData,         ///< Bytes that were read are damaged or are not what they claim to be.
  kResourceExhausted,   ///< Disk, memory or another limit is used up.
  kCancelled,           ///< Stopped on request.
  kInternal,            ///< A broken invariant of ours.
};

/// The code's name in snake_case, for logs and JSON.
std::string_view status_code_name(StatusCode code);

/// Success, or a code and a message. Cheap to copy and to move; ok is one null pointer.
/// Thread safety: a value type.
class [[nodiscard]] Status {
 public:
  Status() = default;

  static Status ok() { return {}; }

  /// Builds a failure. `what` says what was being done and what was wrong; the values follow it, separated by spaces.
  /// Example: Status::corrupt_data("row count differs (path, want, got):", path, 10, 9).
  template <typename... Values>
  static Status make(StatusCode code, std::string_view what, const Values&... values) {
    std::string message(what);
    (append(message, fmt::format("{}", values)), ...);
    return Status(code, std::move(message));
  }
  template <typename... Values>
  static Status invalid_argument(std::string_view what, const Values&... values) {
    return make(StatusCode::kInvalidArgument, what, values...);
  }
  template <typename... Values>
  static Status not_found(std::string_view what, const Values&... values) {
    return make(StatusCode::kNotFound, what, values...);
  }
  template <typename... Values>
  static Status already_exists(std::string_view what, const Values&... values) {
    return make(StatusCode::kAlreadyExists, what, values...);
  }
  template <typename... Values>
  static Status failed_precondition(std::string_view what, const Values&... values) {
    return make(StatusCode::kFailedPrecondition, what, values...);
  }
  template <typename... Values>
  static Status unavailable(std::string_view what, const Values&... values) {
    return make(StatusCode::kUnavailable, what, values...);
  }
  template <typename... Values>
  static Status corrupt_data(std::string_view what, const Values&... values) {
    return make(StatusCode::kCorruptData, what, values...);
  }
  template <typename... Values>
  static Status resource_exhausted(std::string_view what, const Values&... values) {
    return make(StatusCode::kResourceExhausted, what, values...);
  }
  template <typename... Values>
  static Status cancelled(std::string_view what, const Values&... values) {
    return make(StatusCode::kCancelled, what, values...);
  }
  template <typename... Values>
  static Status internal(std::string_view what, const Values&... values) {
    return make(StatusCode::kInternal, what, values...);
  }

  bool is_ok() const { return failure_ == nullptr; }
  StatusCode code() const { return failure_ ? failure_->code : StatusCode::kOk; }
  /// Empty when ok.
  const std::string& message() const;
  /// "ok", or "code_name: message".
  std::string to_string() const;
  /// The same failure with `context: ` before its message; ok stays ok.
  Status with_context(std::string_view context) const;

 private:
  struct Failure {
    StatusCode code;
    std::string message;
  };
  Status(StatusCode code, std::string message);
  static void append(std::string& message, std::string_view value);

  std::shared_ptr<const Failure> failure_;  // Shared by copies of one status; immutable.
};

}  // namespace darkroom

/// Returns from the enclosing function when `expression` (a Status) is a failure.
#define DARKROOM_RETURN_IF_ERROR(expression)                                             \
  do {                                                                                   \
    if (::darkroom::Status darkroom_status_ = (expression); !darkroom_status_.is_ok()) { \
      return darkroom_status_;                                                           \
    }                                                                                    \
  } while (false)
