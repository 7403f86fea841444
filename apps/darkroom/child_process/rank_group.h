#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// The exit code of a rank that ended because another one is gone.
inline constexpr int kExitRankLost = 75;  // EX_TEMPFAIL of sysexits.h.
/// The variable that tells a rank the process that started it, with which it ends.
inline constexpr const char* kRankLauncherVariable = "DARKROOM_RANK_LAUNCHER";

/// The variable that tells a rank of a spread group which start of the launcher it belongs to (RankPlace::attempt), whatever restarts its
/// machine's share has seen: ranks of one start meet, however often those of another machine have begun again.
inline constexpr const char* kRankMeetingVariable = "DARKROOM_RANK_MEETING";

/// From here on an exception that nobody catches, as in a thread of Gloo's own, is an error of this process: logged, exit code 1. Else it
/// were SIGABRT, and a launcher would take it for a rank that was lost.
void end_on_uncaught_exceptions();

/// A group of ranks on several machines, on each of which a launcher has started one process, which starts that machine's share.
struct SpreadGroup {
  int64_t first_rank = 0;     ///< Of this machine's.
  int64_t size = 1;           ///< Ranks of all machines.
  std::string host = {};      ///< Where they meet: of rank 0, or of the launcher that keeps the store.
  int64_t port = 0;           ///< There.
  bool hosts_store = true;    ///< Rank 0 keeps the store; false: the launcher does.
  std::string job = {};       ///< What the launcher calls the run, on all machines alike.
  std::string attempt = "0";  ///< Which start of the launcher's this is.
};

struct RankGroupOptions {
  std::vector<std::string> command;                               ///< Of every rank.
  int64_t num_ranks = 1;                                          ///< On this machine.
  std::optional<SpreadGroup> of = {};                             ///< Of which these are a share; empty: they are all.
  int64_t max_restarts = 3;                                       ///< Of the group, when a rank died, hung or was lost.
  std::chrono::milliseconds patience{30'000};                     ///< How long the others have to end once one rank has.
  std::string command_that_goes_on = "the same command goes on";  ///< What messages say of it.
  /// Before restart 1, 2, 3, ...: 2 s, five times as long each time, at most a minute, so that three of them outlast a store or a
  /// network that is away for a minute.
  std::chrono::milliseconds first_pause{2'000};
  std::chrono::milliseconds longest_pause{60'000};
};

/// How long to wait before a restart, counted from 1. Pure.
std::chrono::milliseconds pause_before_restart(const RankGroupOptions& options, int64_t restart);

/// Runs a command once a rank on this machine, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT, until all
/// end. Of a spread group the same with this machine's share: a rank that is lost ends those of the other machines with kExitRankLost, so
/// that each share begins again, by its own count. When one dies by a signal or says that another is lost, the rest is ended and the whole
/// group starts again after a pause; so it does where a rank cannot start for want of memory, processes or ports. A rank that ends with an
/// exit code of its own ends the group for good. A stop request is handed to all ranks as SIGTERM, and they are waited for; so it is where
/// a rank ends by a stop that came from elsewhere; during a pause it ends the group at once. Returns the exit code of the group: 0, or the
/// first rank's that failed by itself. Errors: kCancelled (stopped), kUnavailable (lost more often than may be), kNotFound (no such
/// program).
Result<int> run_rank_group(const RankGroupOptions& options, const std::stop_token& stop);

}  // namespace darkroom
