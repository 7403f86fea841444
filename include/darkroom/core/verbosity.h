#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace darkroom {

/// How much the log says: warnings and errors only, what a user wants to know, or details, too.
enum class Verbosity { kQuiet, kNormal, kVerbose };

/// Of the whole process; kNormal at its start. Quiet also hides the progress line. Thread-safe.
void set_verbosity(Verbosity verbosity);
Verbosity verbosity();

/// Writes one line to stderr when the verbosity is kVerbose.
void log_detail_line(std::string_view message);

template <typename... Args>
void log_detail(fmt::format_string<Args...> format, Args&&... args) {
  if (verbosity() == Verbosity::kVerbose) {
    log_detail_line(fmt::format(format, std::forward<Args>(args)...));
  }
}

/// Whether a stream of the process may be coloured: it is a terminal that can, and NO_COLOR is not set (or empty).
bool may_color(int descriptor);

/// Columns of the terminal at stderr; 80 when it does not say.
int terminal_columns();

}  // namespace darkroom
