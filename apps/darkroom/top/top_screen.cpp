#include "top_screen.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <system_error>

namespace darkroom {
namespace {

// ECMA-48 and xterm: the second screen, cursor off, and back.
constexpr std::string_view kBegin = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kEnd = "\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H";
constexpr std::string_view kClearLine = "\x1b[K";
constexpr std::string_view kClearBelow = "\x1b[J";

Status write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t num_written = write(STDOUT_FILENO, text.data(), text.size());
    if (num_written < 0 && errno != EINTR) {
      return Status::unavailable("cannot write to the terminal:", std::generic_category().message(errno));
    }
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(num_written, 0)));
  }
  return Status::ok();
}

winsize terminal_size() {
  winsize size{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  size.ws_col = is_known && size.ws_col > 0 ? size.ws_col : 80;
  size.ws_row = is_known && size.ws_row > 0 ? size.ws_row : 24;
  return size;
}

}  // namespace

struct TopScreen::Settings {
  termios terminal{};
};

bool TopScreen::is_there() {
  const char* terminal = std::getenv("TERM");
  const bool is_capable = terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
  return is_capable && isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
}

Result<std::unique_ptr<TopScreen>> TopScreen::open() {
  std::unique_ptr<TopScreen> screen(new TopScreen());
  screen->woken_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (screen->woken_ < 0) {
    return Status::resource_exhausted("cannot wait for keys; let the process open more files (ulimit -n):",
                                      std::generic_category().message(errno));
  }
  auto before = std::make_unique<Settings>();
  if (tcgetattr(STDIN_FILENO, &before->terminal) != 0) {
    return Status::failed_precondition("cannot read the terminal's settings:", std::generic_category().message(errno));
  }
  termios raw = before->terminal;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);  // Ctrl-C stays a signal.
  if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0) {
    return Status::failed_precondition("cannot change the terminal's settings:", std::generic_category().message(errno));
  }
  screen->before_ = std::move(before);
  DARKROOM_RETURN_IF_ERROR(write_all(kBegin));
  return screen;
}

TopScreen::~TopScreen() {
  if (before_ != nullptr) {
    static_cast<void>(write_all(kEnd));
    tcsetattr(STDIN_FILENO, TCSANOW, &before_->terminal);
  }
  if (woken_ >= 0) {
    close(woken_);
  }
}

size_t TopScreen::columns() const { return terminal_size().ws_col; }
size_t TopScreen::rows() const { return terminal_size().ws_row; }

Status TopScreen::show(const std::string& frame) {
  std::string text(kHome);
  std::string_view rest = frame;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    text.append(rest.substr(0, end)).append(kClearLine);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    text += rest.empty() ? "" : "\r\n";
  }
  return write_all(text.append(kClearBelow));
}

bool TopScreen::wait(std::chrono::milliseconds interval, const std::stop_token& stop) {
  const std::stop_callback wake(stop, [this] { eventfd_write(woken_, 1); });
  const auto until = std::chrono::steady_clock::now() + interval;
  while (!stop.stop_requested()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    pollfd sources[] = {{STDIN_FILENO, POLLIN, 0}, {woken_, POLLIN, 0}};
    const int num_ready = left.count() <= 0 ? 0 : poll(sources, 2, static_cast<int>(left.count()));
    if (num_ready == 0) {
      return true;
    }
    char key = 0;
    if (num_ready > 0 && sources[0].revents != 0 && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q')) {
      return false;
    }
  }
  return false;
}

}  // namespace darkroom
