#include "decoder_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "decoder_channel.h"

namespace darkroom {
namespace {

constexpr int kAboveChannel = 10;
constexpr size_t kKeptWords = 500;

class DecoderSpawn {
 public:
  DecoderSpawn(int channel, int said) {
    posix_spawn_file_actions_init(&actions_);
    for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      posix_spawn_file_actions_adddup2(&actions_, said, standard);
    }
    posix_spawn_file_actions_adddup2(&actions_, channel, kChannelDescriptor);
    sigset_t blocked;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGXCPU);
    sigset_t defaults;
    sigfillset(&defaults);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~DecoderSpawn() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  DecoderSpawn(const DecoderSpawn&) = delete;
  DecoderSpawn& operator=(const DecoderSpawn&) = delete;

  int run(std::string program, pid_t& pid) const {
    std::string parent = std::to_string(getpid());
    std::array<char*, 3> arguments = {program.data(), parent.data(), nullptr};
    std::array<char*, 1> environment = {nullptr};
    return posix_spawn(&pid, program.c_str(), &actions_, &attributes_, arguments.data(), environment.data());
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

StatusCode code_of_spawn_error(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return StatusCode::kNotFound;
    case EACCES:
    case EPERM:
    case ENOEXEC:
    case EISDIR:
      return StatusCode::kFailedPrecondition;
    default:
      return StatusCode::kUnavailable;
  }
}

ProcessEnd describe_end(int state) {
  if (WIFSIGNALED(state)) {
    const char* name = sigabbrev_np(WTERMSIG(state));
    return {.signal = WTERMSIG(state), .how = name == nullptr ? fmt::format("signal {}", WTERMSIG(state)) : fmt::format("SIG{}", name)};
  }
  return {.signal = 0, .how = fmt::format("exit code {}", WEXITSTATUS(state))};
}

}  // namespace

Result<DecoderProcess> DecoderProcess::start(const std::string& program, int channel) {
  const int low = memfd_create("darkroom-decoder-said", MFD_CLOEXEC);
  const int said = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, kAboveChannel);
  if (low >= 0) {
    close(low);
  }
  if (said < 0) {
    return Status::unavailable("cannot start a decoder, no descriptor is left (program, reason):", program, std::strerror(errno));
  }
  DecoderProcess process(-1, said);
  if (const int error = DecoderSpawn(channel, said).run(program, process.pid_); error != 0) {
    process.pid_ = -1;
    return Status::make(code_of_spawn_error(error), "cannot start the decoder (program, reason):", program, std::strerror(error));
  }
  if (const int error = clock_getcpuclockid(process.pid_, &process.clock_); error != 0) {
    return Status::unavailable("cannot read the processor time of the decoder (program, reason):", program, std::strerror(error));
  }
  return process;
}

DecoderProcess::DecoderProcess(DecoderProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), said_(std::exchange(other.said_, -1)), clock_(other.clock_), end_(std::move(other.end_)) {}

DecoderProcess& DecoderProcess::operator=(DecoderProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(said_, other.said_);
  std::swap(clock_, other.clock_);
  std::swap(end_, other.end_);
  return *this;
}

DecoderProcess::~DecoderProcess() {
  end();
  if (said_ >= 0) {
    close(said_);
  }
}

std::optional<ProcessEnd> DecoderProcess::ended() {
  int state = 0;
  const pid_t gone = pid_ < 0 ? pid_ : waitpid(pid_, &state, WNOHANG);
  if (gone == 0 || (pid_ >= 0 && gone < 0 && errno == EINTR)) {
    return std::nullopt;
  }
  if (gone == pid_ && pid_ >= 0) {
    end_ = describe_end(state);
  } else if (pid_ >= 0) {
    end_ = {.signal = 0, .how = "an end that somebody else waited for"};
  }
  pid_ = -1;
  return end_;
}

void DecoderProcess::end() {
  if (ended()) {
    return;
  }
  kill(pid_, SIGKILL);
  int state = 0;
  while (waitpid(pid_, &state, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  end_ = describe_end(state);
}

std::chrono::nanoseconds DecoderProcess::processor_time() const {
  timespec time{};
  if (pid_ < 0 || clock_gettime(clock_, &time) != 0) {
    return std::chrono::nanoseconds(0);
  }
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

std::string DecoderProcess::said() const {
  std::array<char, kKeptWords> text{};
  const ssize_t size = said_ < 0 ? 0 : pread(said_, text.data(), text.size(), 0);
  const std::string words(text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  return words.substr(0, words.find('\n'));
}

}  // namespace darkroom
