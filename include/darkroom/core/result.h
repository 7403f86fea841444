#pragma once

#include <optional>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/status.h"

namespace darkroom {

/// A value, or the Status that says why there is none.
/// Thread safety: a value type.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  /// REQUIRES: `failure` is not ok.
  Result(Status failure) : status_(std::move(failure)) {
    DARKROOM_CHECK(!status_.is_ok(), "a Result was built from an ok status without a value");
  }

  bool is_ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  /// REQUIRES: is_ok(); throws CheckFailure with the status otherwise.
  T& value() & {
    require();
    return *value_;
  }
  const T& value() const& {
    require();
    return *value_;
  }
  T&& value() && {
    require();
    return *std::move(value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }

 private:
  void require() const { DARKROOM_CHECK(value_.has_value(), "value of a failed Result:", status_.to_string()); }

  Status status_;
  std::optional<T> value_;
};

}  // namespace darkroom

#define DARKROOM_CONCAT_INNER(a, b) a##b
#define DARKROOM_CONCAT(a, b) DARKROOM_CONCAT_INNER(a, b)
#define DARKROOM_ASSIGN_OR_RETURN_IMPL(result, declaration, expression) \
  auto result = (expression);                                           \
  if (!result.is_ok()) {                                                \
    return result.status();                                             \
  }                                                                     \
  declaration = std::move(result).value()

/// Evaluates `expression` (a Result<T>), returns its status on failure, else assigns its value to `declaration`.
#define DARKROOM_ASSIGN_OR_RETURN(declaration, expression) \
  DARKROOM_ASSIGN_OR_RETURN_IMPL(DARKROOM_CONCAT(darkroom_result_, __LINE__), declaration, expression)
