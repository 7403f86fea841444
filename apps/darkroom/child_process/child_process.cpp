#include "child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <utility>

extern char** environ;  // POSIX declares it nowhere.

namespace darkroom {
namespace {

constexpr size_t kKeptBytes = 8192;
constexpr int kPollMilliseconds = 100;  // How late a stop request may be seen.

// Both ends are closed with the object, but for those that were taken.
class Pipe {
 public:
  static Result<Pipe> make(const std::string& program) {
    Pipe pipe;
    if (pipe2(pipe.ends_.data(), O_CLOEXEC) != 0) {
      return Status::unavailable("cannot make a pipe to a program (program, reason):", program, std::strerror(errno));
    }
    return pipe;
  }
  // Only an end to write to.
  static Result<Pipe> into_file(const std::string& path) {
    constexpr mode_t kMode = 0644;
    Pipe pipe;
    pipe.ends_[1] = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kMode);
    if (pipe.ends_[1] < 0) {
      return Status::unavailable("cannot open a file for a program's output (file, reason):", path, std::strerror(errno));
    }
    return pipe;
  }
  Pipe() = default;
  ~Pipe() {
    for (const int end : ends_) {
      if (end >= 0) {
        close(end);
      }
    }
  }
  Pipe(Pipe&& other) noexcept : ends_(std::exchange(other.ends_, {-1, -1})) {}
  Pipe& operator=(Pipe&& other) noexcept {
    std::swap(ends_, other.ends_);
    return *this;
  }

  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  int take_reader() { return std::exchange(ends_[0], -1); }
  int take_writer() { return std::exchange(ends_[1], -1); }

 private:
  std::array<int, 2> ends_ = {-1, -1};
};

class SpawnSettings {
 public:
  // `input` below 0: an empty stdin.
  SpawnSettings(int input, int output, const ChildOptions& options) {
    posix_spawn_file_actions_init(&actions_);
    if (input >= 0) {
      posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO);
    } else {
      posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    }
    posix_spawn_file_actions_adddup2(&actions_, output >= 0 ? output : STDOUT_FILENO, STDOUT_FILENO);
    if (options.merges_errors) {
      posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
    }
    if (options.closes_others) {
      posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1);
    }
    sigset_t none;
    sigemptyset(&none);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, static_cast<short>(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                              (options.has_own_group ? POSIX_SPAWN_SETPGROUP : 0)));
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  int spawn(std::vector<std::string> command, std::vector<std::string> environment, pid_t& pid) {
    std::vector<char*> variables = pointers_to(environment);
    for (char** inherited = environ; *inherited != nullptr; ++inherited) {
      const std::string_view name = name_of(*inherited);
      if (std::none_of(environment.begin(), environment.end(), [&](const std::string& own) { return name_of(own) == name; })) {
        variables.push_back(*inherited);
      }
    }
    variables.push_back(nullptr);
    std::vector<char*> words = pointers_to(command);
    words.push_back(nullptr);
    return posix_spawnp(&pid, words[0], &actions_, &attributes_, words.data(), variables.data());
  }

 private:
  static std::vector<char*> pointers_to(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (std::string& text : texts) {
      pointers.push_back(text.data());
    }
    return pointers;
  }
  static std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Reads until every writer is gone; false when a stop was requested before.
bool read_to_end(int input, std::string& text, const std::stop_token& stop) {
  std::array<char, 4096> buffer;
  while (!stop.stop_requested()) {
    pollfd source{input, POLLIN, 0};
    if (poll(&source, 1, kPollMilliseconds) <= 0) {
      continue;
    }
    const ssize_t count = read(input, buffer.data(), buffer.size());
    if (count > 0) {
      text.append(buffer.data(), static_cast<size_t>(count));
      text.erase(0, text.size() > kKeptBytes ? text.size() - kKeptBytes : 0);
    } else if (count == 0 || errno != EINTR) {
      return true;
    }
  }
  return false;
}

}  // namespace

Result<Child> start_child(const std::vector<std::string>& command, const ChildOptions& options) {
  Pipe input;
  if (options.has_input) {
    DARKROOM_ASSIGN_OR_RETURN(input, Pipe::make(command[0]));
  }
  Pipe output;
  if (!options.output_path.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(output, Pipe::into_file(options.output_path));
  } else if (!options.shares_output) {
    DARKROOM_ASSIGN_OR_RETURN(output, Pipe::make(command[0]));
  }
  Child child;
  const int error = SpawnSettings(input.reader(), output.writer(), options).spawn(command, options.environment, child.pid);
  if (error != 0) {
    const bool is_want = error == EAGAIN || error == ENOMEM;
    return Status::make(is_want ? StatusCode::kResourceExhausted : StatusCode::kNotFound,
                        "cannot start a program (program, reason):", command[0], std::strerror(error));
  }
  child.input = input.take_writer();
  child.output = output.take_reader();
  return child;
}

Result<int> wait_for_child(pid_t pid) {
  DARKROOM_ASSIGN_OR_RETURN(const ChildEnd end, wait_for_child_end(pid));
  return end.exit_code;
}

Result<ChildEnd> wait_for_child_end(pid_t pid) {
  int state = 0;
  rusage usage{};
  while (wait4(pid, &state, 0, &usage) < 0) {
    if (errno != EINTR) {
      return Status::unavailable("cannot learn how a program ended (process, reason):", pid, std::strerror(errno));
    }
  }
  constexpr int64_t kKibibyte = 1024;
  return ChildEnd{WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state), usage.ru_maxrss * kKibibyte};
}

// glibc 2.36 declares pidfd_open for C alone.
int watch_child(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

Result<ChildOutput> run_child(const std::vector<std::string>& command, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const Child child, start_child(command, {.merges_errors = true, .has_own_group = true}));
  ChildOutput output;
  const bool has_ended = read_to_end(child.output, output.text, stop);
  close(child.output);
  if (!has_ended) {
    kill(-child.pid, SIGKILL);
  }
  const Result<int> exit_code = wait_for_child(child.pid);
  if (!has_ended) {
    return Status::cancelled("stopped on request while this program ran:", command[0]);
  }
  DARKROOM_RETURN_IF_ERROR(exit_code.status());
  output.exit_code = *exit_code;
  return output;
}

}  // namespace darkroom
