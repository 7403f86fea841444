#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "darkroom/core/check.h"

namespace darkroom {

/// Why one row has no result. A closed list: the names are written to disk and counted in summaries (docs/formats).
enum class RowErrorCode {
  kBadUrl,
  kDns,
  kConnect,
  kTls,
  kTimeout,
  kHttpStatus,  ///< Written as http_NNN.
  kTooManyRedirects,
  kBlockedHost,
  kTooLarge,
  kTruncated,
  kNotAnImage,
  kUnsupportedFormat,
  kTooSmall,
  kBadAspect,
  kBomb,
  kOptedOut,
  kDenied,
  kDuplicate,
  kEmptyCaption,
  kNullImage,
  kDecodeFailed,
  kNanLatents,
};

/// A row's failure: it costs only that row. `detail` is for people (the log and --json-summary show that of the first row of each code),
/// the code is for counting.
struct RowError {
  RowErrorCode code;
  int http_status = 0;  ///< Only with kHttpStatus.
  std::string detail = {};

  /// The stable name: "timeout", "http_404", ...
  std::string name() const;
};

/// A row's value, or why it has none.
template <typename T>
class [[nodiscard]] RowResult {
 public:
  RowResult(T value) : value_(std::move(value)) {}
  RowResult(RowError error) : error_(std::move(error)) {}

  bool is_ok() const { return value_.has_value(); }
  /// REQUIRES: is_ok().
  T& value() & {
    DARKROOM_CHECK(is_ok(), "value of a failed row");
    return *value_;
  }
  const T& value() const& {
    DARKROOM_CHECK(is_ok(), "value of a failed row");
    return *value_;
  }
  T&& value() && {
    DARKROOM_CHECK(is_ok(), "value of a failed row");
    return *std::move(value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  /// REQUIRES: !is_ok().
  const RowError& error() const {
    DARKROOM_CHECK(error_.has_value(), "error of a row that has none");
    return *error_;
  }

 private:
  std::optional<T> value_;
  std::optional<RowError> error_;
};

}  // namespace darkroom
