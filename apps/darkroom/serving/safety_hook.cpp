#include "serving/safety_hook.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "child_process/child_process.h"

namespace darkroom {
namespace {

using Instant = std::chrono::steady_clock::time_point;

constexpr size_t kMostAnswer = 4096;
constexpr std::chrono::milliseconds kLookAround{100};  // For a stop.

/// The talk with a program: the picture goes out as its answer comes in.
class Talk {
 public:
  explicit Talk(Child& child) : child_(child) {
    fcntl(child_.input, F_SETFL, O_NONBLOCK);
    fcntl(child_.output, F_SETFL, O_NONBLOCK);
  }

  /// False: it did not come to an end by then.
  bool hold(std::string_view picture, Instant until, const std::stop_token& stop) {
    while (child_.output >= 0 && !stop.stop_requested()) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
      if (left.count() <= 0) {
        return false;
      }
      pollfd ends[2] = {{.fd = child_.output, .events = POLLIN, .revents = 0}, {.fd = child_.input, .events = POLLOUT, .revents = 0}};
      poll(ends, 2, static_cast<int>(std::min(left, kLookAround).count()));
      if (ends[1].revents != 0) {
        send(picture);
      }
      if (ends[0].revents != 0) {
        receive();
      }
    }
    return child_.output < 0;
  }
  const std::string& answer() const { return answer_; }

 private:
  // A program may answer without reading to the end.
  void send(std::string_view& picture) {
    const ssize_t num_bytes = write(child_.input, picture.data(), picture.size());
    if (num_bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    picture.remove_prefix(num_bytes < 0 ? picture.size() : static_cast<size_t>(num_bytes));
    if (picture.empty()) {
      close(std::exchange(child_.input, -1));
    }
  }
  void receive() {
    char buffer[kMostAnswer];
    const ssize_t num_bytes = read(child_.output, buffer, sizeof buffer);
    if (num_bytes < 0 && (errno == EAGAIN || errno == EINTR)) {
      return;
    }
    if (num_bytes <= 0) {
      close(std::exchange(child_.output, -1));
    } else if (answer_.size() < kMostAnswer) {
      answer_.append(buffer, static_cast<size_t>(num_bytes));
    }
  }

  Child& child_;
  std::string answer_;
};

void close_if_open(int descriptor) {
  if (descriptor >= 0) {
    close(descriptor);
  }
}

/// Whether a child that says nothing more ends in time; it is not reaped.
bool ends_by_itself(pid_t pid, std::chrono::steady_clock::time_point until, const std::stop_token& stop) {
  constexpr std::chrono::milliseconds kLook{5};
  for (;;) {
    siginfo_t ended{};
    const bool is_known = waitid(P_PID, static_cast<id_t>(pid), &ended, WEXITED | WNOHANG | WNOWAIT) == 0;
    if (!is_known || ended.si_pid == pid) {
      return is_known;
    }
    if (stop.stop_requested() || std::chrono::steady_clock::now() >= until) {
      return false;
    }
    std::this_thread::sleep_for(kLook);
  }
}

Result<bool> read_answer(const std::string& program, std::string text, int exit_code) {
  constexpr size_t kMostShown = 80;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) {
    text.pop_back();
  }
  if (exit_code != 0 || (text != "allow" && text != "block")) {
    return Status::unavailable("the program must end with 0 and write allow or block (program, exit code, what it wrote):", program,
                               exit_code, std::string_view(text).substr(0, kMostShown));
  }
  return text == "allow";
}

Result<bool> ask_program(const std::vector<std::string>& command, const std::string& picture, std::chrono::milliseconds patience,
                         const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(Child child, start_child(command, {.has_input = true, .has_own_group = true, .closes_others = true}));
  Talk talk(child);
  const auto until = std::chrono::steady_clock::now() + patience;
  const bool has_ended = talk.hold(picture, until, stop);
  close_if_open(child.input);
  close_if_open(child.output);
  const bool is_done = has_ended && ends_by_itself(child.pid, until, stop);
  kill(-child.pid, SIGKILL);  // Also what it has started itself. It is not reaped yet, so the group is still its own.
  const Result<int> exit_code = wait_for_child(child.pid);
  if (!is_done) {
    return Status::unavailable("the program did not answer in time (program, milliseconds):", command.front(), patience.count());
  }
  DARKROOM_RETURN_IF_ERROR(exit_code.status());
  return read_answer(command.front(), talk.answer(), *exit_code);
}

}  // namespace

Result<SafetyCheck> safety_program(const std::string& command, std::chrono::milliseconds patience) {
  std::istringstream text(command);
  std::vector<std::string> words;
  for (std::string word; text >> word;) {
    words.push_back(word);
  }
  if (words.empty() || words.front().find("://") != std::string::npos) {
    return Status::invalid_argument("--safety-hook takes a program with its arguments (curl can ask an address for it), got:", command);
  }
  return SafetyCheck(
      [words, patience](const std::string& png, const std::stop_token& stop) { return ask_program(words, png, patience, stop); });
}

}  // namespace darkroom
