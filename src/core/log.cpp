#include "darkroom/core/log.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>
#include <vector>

#include "darkroom/core/printable.h"
#include "darkroom/core/verbosity.h"

namespace darkroom {
namespace {

// One terminal a process, so one lock, one progress and one verbosity a process.
std::mutex& terminal_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::atomic<Verbosity>& process_verbosity() {
  static std::atomic<Verbosity> verbosity = Verbosity::kNormal;
  return verbosity;
}

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

struct TerminalSize {
  size_t rows;
  size_t columns;
};

TerminalSize terminal_size() {
  constexpr size_t kUsualRows = 24, kUsualColumns = 80;
  winsize size{};
  const bool is_known = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0;
  return {.rows = is_known && size.ws_row > 0 ? size.ws_row : kUsualRows,
          .columns = is_known && size.ws_col > 0 ? size.ws_col : kUsualColumns};
}

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

size_t num_characters(std::string_view text) { return static_cast<size_t>(std::ranges::count_if(text, starts_character)); }

// Between characters of UTF-8.
std::string_view cut_to_columns(std::string_view text, size_t columns) {
  size_t num_characters = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (starts_character(text[i]) && num_characters++ == columns) {
      return text.substr(0, i);
    }
  }
  return text;
}

/// The last lines of a text, at most so many.
std::vector<std::string_view> last_lines(std::string_view text, size_t max_lines) {
  std::vector<std::string_view> lines;
  while (lines.size() < max_lines) {
    const size_t newline = text.rfind('\n');
    lines.insert(lines.begin(), newline == std::string_view::npos ? text : text.substr(newline + 1));
    if (newline == std::string_view::npos) {
      break;
    }
    text = text.substr(0, newline);
  }
  return lines;
}

/// The lines at the bottom of the terminal. While they are there, the cursor stands behind the last of them. Guarded by terminal_mutex().
class BottomLines {
 public:
  void set(std::string_view text) { text_ = text; }
  bool are_drawn() const { return !drawn_widths_.empty(); }

  /// What takes them off the screen, or the cursor's own line where they are not on it.
  std::string erase() {
    const size_t num_rows = rows_taken(terminal_size().columns);
    drawn_widths_.clear();
    return num_rows <= 1 ? "\r\x1b[2K" : fmt::format("\r\x1b[{}A\x1b[J", num_rows - 1);
  }

  /// What puts them below what was written. REQUIRES: they are not drawn.
  std::string draw() {
    if (text_.empty()) {
      return "";
    }
    // A line that the terminal wraps takes a second row. The last one leaves room for the "^C" that a terminal echoes at the cursor.
    constexpr size_t kEdge = 1, kEcho = 2;
    const TerminalSize size = terminal_size();
    const std::vector<std::string_view> lines = last_lines(text_, std::max<size_t>(size.rows - 1, 1));
    std::string drawing;
    for (size_t i = 0; i < lines.size(); ++i) {
      const bool is_last = i + 1 == lines.size();
      const size_t margin = is_last ? kEdge + kEcho : kEdge;
      const std::string_view line = cut_to_columns(lines[i], size.columns - std::min(size.columns, margin));
      drawn_widths_.push_back(num_characters(line));
      drawing.append(line).append(is_last ? "" : "\n");
    }
    return drawing;
  }

 private:
  // A terminal that became narrower meanwhile has wrapped them.
  size_t rows_taken(size_t columns) const {
    size_t num_rows = 0;
    for (const size_t width : drawn_widths_) {
      num_rows += std::max<size_t>(1, (width + columns - 1) / columns);
    }
    return num_rows;
  }

  std::string text_;
  std::vector<size_t> drawn_widths_;  // In characters, of each line on the screen.
};

BottomLines& bottom_lines() {
  static BottomLines lines;
  return lines;
}

// In one piece, so that the terminal shows no state between.
void write_line(std::string_view line) {
  const std::lock_guard lock(terminal_mutex());
  BottomLines& bottom = bottom_lines();
  std::string said = bottom.are_drawn() ? bottom.erase() : "";
  write_stderr(said.append(line).append(bottom.draw()));
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

int terminal_columns() { return static_cast<int>(terminal_size().columns); }

void log_line(LogLevel level, std::string_view message) {
  if (level == LogLevel::kInfo && verbosity() == Verbosity::kQuiet) {
    return;
  }
  write_line(fmt::format("{} {}{}\n", timestamp(), mark(level), printable_message(message)));
}

void log_detail_line(std::string_view message) { write_line(fmt::format("{} {}\n", timestamp(), printable_message(message))); }

void show_progress(std::string_view text) {
  if (!stderr_is_terminal() || verbosity() == Verbosity::kQuiet) {
    return;
  }
  const std::lock_guard lock(terminal_mutex());
  BottomLines& bottom = bottom_lines();
  bottom.set(text);
  const std::string erasing = bottom.erase();
  write_stderr(erasing + bottom.draw());
  std::fflush(stderr);
}

}  // namespace darkroom
