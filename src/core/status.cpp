#include "darkroom/core/status.h"

namespace darkroom {

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kInvalidArgument:
      return "invalid_argument";
    case StatusCode::kNotFound:
      return "not_found";
    case StatusCode::kAlreadyExists:
      return "already_exists";
    case StatusCode::kFailedPrecondition:
      return "failed_precondition";
    case StatusCode::kUnavailable:
      return "unavailable";
    case StatusCode::kCorruptData:
      return "corrupt_data";
    case StatusCode::kResourceExhausted:
      return "resource_exhausted";
    case StatusCode::kCancelled:
      return "cancelled";
    case StatusCode::kInternal:
      return "internal";
  }
  return "unknown";
}

Status::Status(StatusCode code, std::string message) : failure_(std::make_shared<const Failure>(Failure{code, std::move(message)})) {}

const std::string& Status::message() const {
  static const std::string kEmpty;
  return failure_ ? failure_->message : kEmpty;
}

std::string Status::to_string() const {
  if (is_ok()) {
    return "ok";
  }
  return fmt::format("{}: {}", status_code_name(code()), message());
}

Status Status::with_context(std::string_view context) const {
  if (is_ok()) {
    return *this;
  }
  return Status(code(), fmt::format("{}: {}", context, message()));
}

void Status::append(std::string& message, std::string_view value) {
  message += ' ';
  message += value;
}

}  // namespace darkroom
