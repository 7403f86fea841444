#pragma once

#include <fmt/format.h>

#include <string_view>

namespace darkroom {

enum class LogLevel { kInfo, kWarning, kError };

/// Writes one line to stderr: "HH:MM:SS message", warnings and errors marked, addresses without secrets (shown_uri.h). Thread-safe.
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

/// Replaces the line that a terminal shows at the bottom; log lines scroll above it. An empty text removes it.
/// Does nothing when stderr is no terminal. Thread-safe.
void show_progress(std::string_view text);

/// Whether stderr is a terminal.
bool stderr_is_terminal();

}  // namespace darkroom
