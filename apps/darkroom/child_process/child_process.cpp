#include "child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

extern char** environ;  // POSIX declares it nowhere.

namespace darkroom {
namespace {

constexpr size_t kKeptBytes = 8192;
constexpr int kPollMilliseconds = 100;  // How late a stop request may be seen.

class SpawnSettings {
 public:
  explicit SpawnSettings(int output) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions_, output, STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  int spawn(std::vector<std::string> arguments, pid_t& child) {
    std::vector<char*> pointers;
    for (std::string& argument : arguments) {
      pointers.push_back(argument.data());
    }
    pointers.push_back(nullptr);
    return posix_spawn(&child, pointers[0], &actions_, &attributes_, pointers.data(), environ);
  }

 private:
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

int wait_for(pid_t child) {
  int state = 0;
  while (waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
}

}  // namespace

Result<ChildOutput> run_child(const std::vector<std::string>& arguments, const std::stop_token& stop) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return Status::unavailable("cannot make a pipe to a program (program, reason):", arguments[0], std::strerror(errno));
  }
  pid_t child = 0;
  const int error = SpawnSettings(ends[1]).spawn(arguments, child);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return Status::not_found("cannot start a program (program, reason):", arguments[0], std::strerror(error));
  }
  ChildOutput output;
  const bool has_ended = read_to_end(ends[0], output.text, stop);
  close(ends[0]);
  if (!has_ended) {
    kill(-child, SIGKILL);
  }
  output.exit_code = wait_for(child);
  if (!has_ended) {
    return Status::cancelled("stopped on request while this program ran:", arguments[0]);
  }
  return output;
}

}  // namespace darkroom
