#include "darkroom/core/log.h"

#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>

namespace darkroom {
namespace {

// One terminal a process, so one lock and one progress line a process.
std::mutex& terminal_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string& progress_text() {
  static std::string text;
  return text;
}

constexpr std::string_view kEraseLine = "\r\x1b[2K";

std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return fmt::format("{:02}:{:02}:{:02}", parts.tm_hour, parts.tm_min, parts.tm_sec);
}

void write_stderr(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace

bool stderr_is_terminal() {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  return is_terminal;
}

void log_line(LogLevel level, std::string_view message) {
  const std::string_view mark = level == LogLevel::kError ? "error: " : level == LogLevel::kWarning ? "warning: " : "";
  const std::string line = fmt::format("{} {}{}\n", timestamp(), mark, message);
  const std::lock_guard lock(terminal_mutex());
  if (!progress_text().empty()) {
    write_stderr(kEraseLine);
  }
  write_stderr(line);
  write_stderr(progress_text());
  std::fflush(stderr);
}

void show_progress(std::string_view text) {
  if (!stderr_is_terminal()) {
    return;
  }
  const std::lock_guard lock(terminal_mutex());
  progress_text() = text;
  write_stderr(kEraseLine);
  write_stderr(text);
  std::fflush(stderr);
}

}  // namespace darkroom
