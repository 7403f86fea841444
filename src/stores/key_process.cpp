#include "key_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "issued_keys.h"

namespace darkroom {
namespace {

using KeyProcessClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int64_t kLookForStopMs = 200;

Status key_process_failed(StatusCode code, std::string_view what, const std::string& program) {
  return Status::make(code, fmt::format("credential_process gave no keys: {} (program):", what), program);
}

std::string reason_of(int error) { return std::generic_category().message(error); }

/// What AWS's tools may want of our environment: all but the secrets of hubs, encoders and ranks.
std::vector<char*> environment_of_helper() {
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const auto begins = [text](std::string_view prefix) { return text.starts_with(prefix); };
    if (std::ranges::none_of(std::array<std::string_view, 3>{"HF_", "HUGGING_FACE_", "DARKROOM_"}, begins)) {
      variables.push_back(*variable);
    }
  }
  variables.push_back(nullptr);
  return variables;
}

class KeyProcess {
 public:
  KeyProcess() = default;
  ~KeyProcess() {
    end_group();
    for (const int descriptor : {output_, ended_}) {
      if (descriptor >= 0) {
        close(descriptor);
      }
    }
  }
  KeyProcess(const KeyProcess&) = delete;
  KeyProcess& operator=(const KeyProcess&) = delete;

  Status start(std::vector<std::string> command) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      return key_process_failed(StatusCode::kUnavailable, reason_of(errno), command.front());
    }
    output_ = ends[0];
    const int error = fcntl(output_, F_SETFL, O_NONBLOCK) != 0 ? errno : spawn(command, ends[1]);
    close(ends[1]);
    if (error != 0) {
      return key_process_failed(StatusCode::kNotFound, "it cannot be started, " + reason_of(error), command.front());
    }
    ended_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));  // Debian 12's header for it is none of C++.
    return ended_ >= 0 ? Status::ok() : key_process_failed(StatusCode::kUnavailable, reason_of(errno), command.front());
  }

  /// Its output, when it has ended well.
  Result<std::string> await(const std::string& program, KeyProcessClock::time_point deadline, const std::stop_token& stop) {
    std::string text;
    for (bool has_ended = false; !has_ended;) {
      std::array<pollfd, 2> watched = {pollfd{output_, POLLIN, 0}, pollfd{ended_, POLLIN, 0}};
      const auto left = std::chrono::ceil<milliseconds>(deadline - KeyProcessClock::now()).count();
      if (left <= 0) {
        return key_process_failed(StatusCode::kUnavailable, "it does not end in time", program);
      }
      if (stop.stop_requested()) {
        return key_process_failed(StatusCode::kCancelled, "it was stopped", program);
      }
      poll(watched.data(), watched.size(), static_cast<int>(std::min<int64_t>(left, kLookForStopMs)));
      has_ended = watched[1].revents != 0;
      take_output(text);
      if (text.size() > static_cast<size_t>(kMaxIssuedBytes)) {
        return key_process_failed(StatusCode::kFailedPrecondition, "it writes too much", program);
      }
    }
    int state = 0;
    const pid_t waited = waitpid(std::exchange(pid_, -1), &state, 0);
    if (waited > 0 && WIFEXITED(state) && WEXITSTATUS(state) == 0) {
      return text;
    }
    const std::string how = waited <= 0        ? "its end was lost"
                            : WIFEXITED(state) ? fmt::format("it ended with code {}", WEXITSTATUS(state))
                                               : fmt::format("it was ended by signal {}", WTERMSIG(state));
    return key_process_failed(StatusCode::kFailedPrecondition, how, program);
  }

 private:
  /// 0, or an errno.
  int spawn(std::vector<std::string>& command, int output) {
    std::vector<char*> arguments;
    for (std::string& word : command) {
      arguments.push_back(word.data());
    }
    arguments.push_back(nullptr);
    const std::vector<char*> variables = environment_of_helper();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    const int error = posix_spawnp(&pid_, arguments.front(), &actions, &attributes, arguments.data(), variables.data());
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    pid_ = error == 0 ? pid_ : -1;
    return error;
  }

  void take_output(std::string& text) {
    char buffer[4096];
    while (output_ >= 0) {
      const ssize_t num_bytes = read(output_, buffer, sizeof buffer);
      if (num_bytes < 0) {
        return;  // Nothing now.
      }
      if (num_bytes == 0 || text.size() > static_cast<size_t>(kMaxIssuedBytes)) {
        close(std::exchange(output_, -1));
        return;
      }
      text.append(buffer, static_cast<size_t>(num_bytes));
    }
  }

  void end_group() {
    if (pid_ > 0) {
      kill(-pid_, SIGKILL);
      waitpid(std::exchange(pid_, -1), nullptr, 0);
    }
  }

  pid_t pid_ = -1;
  int output_ = -1;
  int ended_ = -1;  // Readable once it has ended.
};

}  // namespace

Result<std::vector<std::string>> split_key_command(std::string_view command) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = 0;
  for (size_t at = 0; at < command.size(); ++at) {
    const char c = command[at];
    const bool is_blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (quote == 0 && is_blank) {
      if (word) {
        words.push_back(*std::exchange(word, std::nullopt));
      }
      continue;
    }
    if (!word) {
      word.emplace();
    }
    const bool escapes_here = quote == 0 || (quote == '"' && (command.substr(at + 1, 1) == "\"" || command.substr(at + 1, 1) == "\\"));
    if (c == '\\' && escapes_here && at + 1 < command.size()) {
      *word += command[++at];
    } else if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else {
      *word += c;
    }
  }
  if (word) {
    words.push_back(*std::move(word));
  }
  if (quote != 0 || words.empty()) {
    return Status::invalid_argument(quote != 0 ? "a quote in credential_process does not end" : "credential_process is empty");
  }
  return words;
}

Result<std::string> run_key_process(const std::vector<std::string>& command, std::chrono::milliseconds timeout,
                                    const std::stop_token& stop) {
  KeyProcess process;
  DARKROOM_RETURN_IF_ERROR(process.start(command));
  return process.await(command.front(), KeyProcessClock::now() + timeout, stop);
}

}  // namespace darkroom
