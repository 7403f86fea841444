#include "darkroom/core/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>

#include "darkroom/core/shown_uri.h"
#include "darkroom/core/verbosity.h"

namespace darkroom {
namespace {

// One terminal a process, so one lock, one progress line and one verbosity a process.
std::mutex& terminal_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string& progress_text() {
  static std::string text;
  return text;
}

std::atomic<Verbosity>& process_verbosity() {
  static std::atomic<Verbosity> verbosity = Verbosity::kNormal;
  return verbosity;
}

constexpr std::string_view kEraseLine = "\r\x1b[2K";

/// Who sits before a terminal knows the day; a file or a collector of logs is read later and elsewhere, so there it is RFC 3339's, in UTC.
std::string timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  if (stderr_is_terminal()) {
    localtime_r(&now, &parts);
    return fmt::format("{:02}:{:02}:{:02}", parts.tm_hour, parts.tm_min, parts.tm_sec);
  }
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday, parts.tm_hour,
                     parts.tm_min, parts.tm_sec);
}

void write_stderr(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

std::string mark(LogLevel level) {
  static const bool colored = may_color(STDERR_FILENO);
  switch (level) {
    case LogLevel::kError:
      return colored ? "\x1b[1;31merror:\x1b[0m " : "error: ";
    case LogLevel::kWarning:
      return colored ? "\x1b[1;33mwarning:\x1b[0m " : "warning: ";
    case LogLevel::kInfo:
      break;
  }
  return "";
}

// The terminal would wrap a longer line, and erasing takes one row only. Cut between characters of UTF-8.
std::string_view cut_to_columns(std::string_view text, size_t columns) {
  size_t num_characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts_character = (static_cast<unsigned char>(text[i]) & 0xC0) != 0x80;
    if (starts_character && num_characters++ == columns) {
      return text.substr(0, i);
    }
  }
  return text;
}

void write_line(std::string_view line) {
  const std::lock_guard lock(terminal_mutex());
  if (!progress_text().empty()) {
    write_stderr(kEraseLine);
  }
  write_stderr(line);
  write_stderr(progress_text());
  std::fflush(stderr);
}

}  // namespace

bool stderr_is_terminal() {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  return is_terminal;
}

void set_verbosity(Verbosity verbosity) { process_verbosity() = verbosity; }

Verbosity verbosity() { return process_verbosity(); }

bool may_color(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool is_capable = terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
  return (no_color == nullptr || *no_color == '\0') && is_capable && isatty(descriptor) == 1;
}

int terminal_columns() {
  constexpr int kUsual = 80;
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

void log_line(LogLevel level, std::string_view message) {
  if (level == LogLevel::kInfo && verbosity() == Verbosity::kQuiet) {
    return;
  }
  write_line(fmt::format("{} {}{}\n", timestamp(), mark(level), without_uri_secrets(message)));
}

void log_detail_line(std::string_view message) { write_line(fmt::format("{} {}\n", timestamp(), without_uri_secrets(message))); }

void show_progress(std::string_view text) {
  if (!stderr_is_terminal() || verbosity() == Verbosity::kQuiet) {
    return;
  }
  const std::lock_guard lock(terminal_mutex());
  progress_text() = cut_to_columns(text, static_cast<size_t>(terminal_columns()) - 1);
  write_stderr(kEraseLine);
  write_stderr(progress_text());
  std::fflush(stderr);
}

}  // namespace darkroom
