#include "standard_input.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace darkroom {

StandardInput::StandardInput(std::stop_token stop) : stop_(std::move(stop)), stopped_(eventfd(0, EFD_CLOEXEC)) {}

StandardInput::~StandardInput() { close(stopped_); }

size_t StandardInput::find_end() {
  const size_t end = text_.find('\n', std::max(begin_, scanned_));
  scanned_ = std::min(end, text_.size());
  return end;
}

Result<bool> StandardInput::next_line(std::string& line) {
  for (;;) {
    const size_t end = find_end();
    if (end != std::string::npos) {
      line.assign(text_, begin_, end - begin_);
      begin_ = end + 1;
      return true;
    }
    DARKROOM_ASSIGN_OR_RETURN(const bool is_more, read_more());
    if (!is_more) {
      line.assign(text_, begin_);
      begin_ = text_.size();
      return !line.empty();
    }
  }
}

Result<bool> StandardInput::read_more() {
  constexpr size_t kPiece = 65'536;
  constexpr size_t kMaxLineBytes = 64 << 20;  // As a row of a text table.
  if (text_.size() - begin_ > kMaxLineBytes) {
    return Status::corrupt_data("a line of the standard input is longer than 64 MiB; one line is one text");
  }
  const std::stop_callback raise(stop_, [this] { eventfd_write(stopped_, 1); });
  scanned_ -= begin_;
  text_.erase(0, std::exchange(begin_, 0));
  for (;;) {
    std::array<pollfd, 2> sources = {pollfd{STDIN_FILENO, POLLIN, 0}, pollfd{stopped_, POLLIN, 0}};
    if (poll(sources.data(), sources.size(), -1) < 0 && errno != EINTR) {
      return Status::unavailable("cannot wait for the standard input:", std::generic_category().message(errno));
    }
    if (stop_.stop_requested()) {
      return Status::cancelled("stopped while reading the standard input");
    }
    const size_t old_size = text_.size();
    text_.resize(old_size + kPiece);
    const ssize_t num_read = sources[0].revents == 0 ? -1 : read(STDIN_FILENO, text_.data() + old_size, kPiece);
    const int error = sources[0].revents == 0 ? EINTR : errno;
    text_.resize(old_size + static_cast<size_t>(num_read > 0 ? num_read : 0));
    if (num_read >= 0) {
      return num_read > 0;
    }
    if (error != EINTR && error != EAGAIN) {
      return Status::unavailable("cannot read the standard input:", std::generic_category().message(error));
    }
  }
}

}  // namespace darkroom
