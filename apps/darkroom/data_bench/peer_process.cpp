#include "peer_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

extern char** environ;  // POSIX declares it nowhere.

namespace darkroom {
namespace {

constexpr size_t kMaxAnswerBytes = 65536;

int spawn_with_pipes(const std::vector<std::string>& command, int input, int output, pid_t& child) {
  std::vector<std::string> words = command;
  std::vector<char*> pointers;
  for (std::string& word : words) {
    pointers.push_back(word.data());
  }
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  // This program blocks SIGINT and SIGTERM and ignores SIGPIPE; the peers are to end by all three.
  sigset_t none;
  sigemptyset(&none);
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  const int error = posix_spawnp(&child, pointers[0], &actions, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

Result<std::unique_ptr<PeerProcess>> PeerProcess::start(const std::vector<std::string>& command) {
  std::array<int, 2> to_child{};
  std::array<int, 2> from_child{};
  if (pipe2(to_child.data(), O_CLOEXEC) != 0) {
    return Status::unavailable("cannot make a pipe to the peers (reason):", std::strerror(errno));
  }
  if (pipe2(from_child.data(), O_CLOEXEC) != 0) {
    close(to_child[0]);
    close(to_child[1]);
    return Status::unavailable("cannot make a pipe from the peers (reason):", std::strerror(errno));
  }
  pid_t child = 0;
  const int error = spawn_with_pipes(command, to_child[0], from_child[1], child);
  close(to_child[0]);
  close(from_child[1]);
  if (error != 0) {
    close(to_child[1]);
    close(from_child[0]);
    return Status::not_found("cannot start the peers' program (program, reason):", command[0], std::strerror(error));
  }
  std::unique_ptr<PeerProcess> process(new PeerProcess(child, fdopen(to_child[1], "w"), fdopen(from_child[0], "r")));
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json offer, process->read_answer());
  for (const auto& peer : offer.value("peers", nlohmann::json::array())) {
    process->peers_.push_back({peer.value("name", ""), peer.value("version", "")});
  }
  process->missing_ = offer.value("missing", std::map<std::string, std::string>());
  return process;
}

PeerProcess::~PeerProcess() {
  std::fclose(input_);
  std::fclose(output_);
  int state = 0;
  while (waitpid(child_, &state, 0) < 0 && errno == EINTR) {
  }
}

Result<PeerProcess::Run> PeerProcess::run(size_t index) {
  std::fprintf(input_, "%zu\n", index);
  if (std::fflush(input_) != 0) {
    return Status::unavailable("the peers' program has ended before run of peer:", index);
  }
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json answer, read_answer());
  if (!answer.contains("seconds") || !answer["seconds"].is_number() || !answer.contains("digest") || !answer["digest"].is_string()) {
    return Status::unavailable("the peers' program must answer with seconds and digest, it said:", answer.dump());
  }
  return Run{answer["seconds"].get<double>(), answer["digest"].get<std::string>()};
}

Result<nlohmann::json> PeerProcess::read_answer() {
  std::string line(kMaxAnswerBytes, '\0');
  if (std::fgets(line.data(), static_cast<int>(line.size()), output_) == nullptr) {
    return Status::unavailable("the peers' program has ended without an answer; what it wrote is above");
  }
  line.resize(std::strlen(line.c_str()));
  auto answer = nlohmann::json::parse(line, nullptr, false);
  if (!answer.is_object()) {
    return Status::unavailable("the peers' program must answer with a line of JSON, it said:", line);
  }
  return answer;
}

}  // namespace darkroom
