#include <sys/resource.h>
#include <time.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/median.h"
#include "data_benches.h"
#include "peer_process.h"
#include "resources.h"

namespace darkroom {
namespace {

using nlohmann::json;

double milliseconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

double time_one_run(const DataTask& task) {
  const clockid_t clock = task.is_on_the_wall_clock ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID;
  const double began = milliseconds_of(clock);
  task.run();
  return milliseconds_of(clock) - began;
}

/// The peers' program, or nothing with the reason in `missing`.
std::unique_ptr<PeerProcess> start_peers(const Result<std::vector<std::string>>& command, json& missing) {
  if (!command.is_ok()) {
    missing["peers"] = command.status().message();
    return nullptr;
  }
  auto peers = PeerProcess::start(*command);
  if (!peers.is_ok()) {
    missing["peers"] = peers.status().message();
    return nullptr;
  }
  for (const auto& [package, reason] : (*peers)->missing()) {
    missing[package] = reason;
  }
  return *std::move(peers);
}

struct Rounds {
  std::vector<double> ours;                 ///< Milliseconds, a round each.
  std::vector<std::vector<double>> theirs;  ///< [peer][round].
};

/// Milliseconds of one round: ours, then each peer's. Every result is compared.
Result<std::vector<double>> time_one_round(const DataTask& task, PeerProcess* peers) {
  const size_t num_peers = peers == nullptr ? 0 : peers->peers().size();
  std::vector<double> times = {time_one_run(task)};
  const std::string digest = num_peers > 0 ? task.digest() : "";
  for (size_t index = 0; index < num_peers; ++index) {
    DARKROOM_ASSIGN_OR_RETURN(const PeerProcess::Run run, peers->run(index));
    if (run.digest != digest) {
      return Status::internal("a peer's result differs from ours, so their times are not comparable (benchmark, peer, theirs, ours):",
                              task.name, peers->peers()[index].name, run.digest, digest);
    }
    times.push_back(1e3 * run.seconds);
  }
  return times;
}

/// One round that warms up and is not counted, then options.repeats; after a stop request those that are done.
Result<Rounds> take_turns(const DataTask& task, PeerProcess* peers, const BenchOptions& options) {
  Rounds rounds{.ours = {}, .theirs = std::vector<std::vector<double>>(peers == nullptr ? 0 : peers->peers().size())};
  for (int64_t round = 0; round <= options.repeats && !options.stop.stop_requested(); ++round) {
    const auto times = time_one_round(task, peers);
    if (times.status().code() == StatusCode::kUnavailable && options.stop.stop_requested()) {
      break;  // Whoever stopped this program may have ended the peers, too.
    }
    if (!times.is_ok()) {
      return times.status();
    }
    if (round > 0) {
      rounds.ours.push_back(times->front());
      for (size_t index = 0; index < rounds.theirs.size(); ++index) {
        rounds.theirs[index].push_back((*times)[index + 1]);
      }
    }
  }
  if (rounds.ours.empty()) {
    return Status::cancelled("stopped before the first round was measured");
  }
  return rounds;
}

json figures_of_peer(const PeerProcess::Peer& peer, const std::vector<double>& theirs, const std::vector<double>& ours, double units) {
  std::vector<double> ratios;
  for (size_t round = 0; round < ours.size(); ++round) {
    ratios.push_back(theirs[round] / ours[round]);
  }
  return {{"version", peer.version}, {"per_second", units * 1e3 / median(theirs)}, {"ratio", spread_of(ratios)}};
}

}  // namespace

Result<std::vector<std::string>> peers_command(const std::string& name, const std::string& folder, const BenchOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const std::string script, find_resource("benchmarks/peers.py"));
  const auto python = find_python();
  return std::vector<std::string>{python.is_ok() ? *python : "python3", script, name, folder, std::to_string(options.resolution)};
}

Result<json> measure_beside_peers(const DataTask& task, const Result<std::vector<std::string>>& command, const BenchOptions& options) {
  json missing = json::object();
  const auto peers = start_peers(command, missing);
  DARKROOM_ASSIGN_OR_RETURN(const Rounds rounds, take_turns(task, peers.get(), options));
  json figures = speed_of(task.unit, rounds.ours, task.units);
  figures.update({{"clock", task.is_on_the_wall_clock ? "wall" : "cpu"},
                  {"device", "cpu"},
                  {"threads", 1},
                  {"peers", json::object()},
                  {"missing", missing}});
  for (size_t index = 0; index < rounds.theirs.size(); ++index) {
    const PeerProcess::Peer& peer = peers->peers()[index];
    figures["peers"][peer.name] = figures_of_peer(peer, rounds.theirs[index], rounds.ours, task.units);
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  figures["peak_memory_bytes"] = int64_t{usage.ru_maxrss} * 1024;
  return figures;
}

}  // namespace darkroom
