#pragma once

#include <fmt/format.h>

#include <string_view>

namespace darkroom {

enum class LogLevel { kInfo, kWarning, kError };

/// Writes one line to stderr: "TIME message", warnings and errors marked, addresses without secrets (shown_uri.h). TIME: HH:MM:SS of this
/// machine on a terminal, elsewhere date and time in UTC (RFC 3339). Thread-safe.
void log_line(LogLevel level, std::string_view message);

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

/// Replaces the lines (with '\n' between them) at the bottom of a terminal; each is cut to its columns, and of too many the last are shown.
/// Log lines scroll above them. An empty text removes them. Does nothing when stderr is no terminal. Thread-safe.
void show_progress(std::string_view text);

/// Whether stderr is a terminal.
bool stderr_is_terminal();

}  // namespace darkroom
