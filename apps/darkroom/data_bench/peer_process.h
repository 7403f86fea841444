#pragma once

#include <sys/types.h>

#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// A program beside this one that runs the peers of a benchmark (benchmarks/peers.py), asked one run at a time so that both sides stay
/// warm and take turns. Ctrl-C does not reach it; it ends when its input ends, with this program at the latest. Thread safety: one object,
/// one thread.
class PeerProcess {
 public:
  struct Peer {
    std::string name;
    std::string version;
  };
  struct Run {
    double seconds = 0;
    std::string digest;  ///< SHA-256 (hex) of the result.
  };

  /// Starts `command` (its first word is looked up in PATH) and reads what it offers.
  /// Errors: kNotFound (cannot be started), kUnavailable (ended, or said something else).
  static Result<std::unique_ptr<PeerProcess>> start(const std::vector<std::string>& command);
  /// Ends the program by closing its input.
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  const std::vector<Peer>& peers() const { return peers_; }
  /// Package -> why it is not there.
  const std::map<std::string, std::string>& missing() const { return missing_; }
  /// One run of peers()[index]. Errors: kUnavailable.
  Result<Run> run(size_t index);

 private:
  PeerProcess(pid_t child, std::FILE* input, std::FILE* output) : child_(child), input_(input), output_(output) {}
  Result<nlohmann::json> read_answer();

  pid_t child_;
  std::FILE* input_;   // What the program reads.
  std::FILE* output_;  // What it writes.
  std::vector<Peer> peers_;
  std::map<std::string, std::string> missing_;
};

}  // namespace darkroom
