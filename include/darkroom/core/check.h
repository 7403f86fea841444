#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace darkroom {

/// A broken invariant: a bug of ours, never a user's mistake. Caught only at thread, stage, request and main boundaries.
class CheckFailure : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws CheckFailure; kept out of line so that checks stay cheap.
[[noreturn]] void fail_check(const char* file, int line, const char* condition, const std::string& message);

namespace internal {
inline std::string check_message() { return {}; }
template <typename... Values>
std::string check_message(std::string_view what, const Values&... values) {
  std::string message(what);
  ((message += ' ', message += fmt::format("{}", values)), ...);
  return message;
}
}  // namespace internal

}  // namespace darkroom

/// DARKROOM_CHECK(condition, "what is wrong (name):", value...): throws CheckFailure when `condition` is false.
#define DARKROOM_CHECK(condition, ...)                                                                               \
  do {                                                                                                               \
    if (!(condition)) [[unlikely]] {                                                                                 \
      ::darkroom::fail_check(__FILE_NAME__, __LINE__, #condition, ::darkroom::internal::check_message(__VA_ARGS__)); \
    }                                                                                                                \
  } while (false)
