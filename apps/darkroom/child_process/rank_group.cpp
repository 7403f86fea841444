#include "rank_group.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <optional>

#include "child_process.h"
#include "darkroom/core/clock.h"
#include "darkroom/core/log.h"

namespace darkroom {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr int kLookMilliseconds = 100;  // How late a stop request may be seen.

/// A port of the loopback that nobody uses now.
Result<int> free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const bool found = probe >= 0 && bind(probe, reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
                     getsockname(probe, reinterpret_cast<sockaddr*>(&address), &length) == 0;
  const std::string reason = found ? "" : std::strerror(errno);
  close(probe);
  if (!found) {
    return Status::unavailable("no port for the ranks to meet at (reason):", reason);
  }
  return static_cast<int>(ntohs(address.sin_port));
}

// By SIGSTOP and its like (proc(5): the state follows the name in parentheses).
bool is_stopped(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text.compare(name_end, 3, ") T") == 0;
}

/// What rank number `local_rank` of this machine finds in its environment in start `attempt` of this group.
std::vector<std::string> environment_of_rank(const RankGroupOptions& options, const SpreadGroup& group, int64_t local_rank,
                                             int64_t attempt) {
  return {fmt::format("RANK={}", group.first_rank + local_rank),
          fmt::format("WORLD_SIZE={}", group.size),
          fmt::format("LOCAL_RANK={}", local_rank),
          fmt::format("LOCAL_WORLD_SIZE={}", options.num_ranks),
          fmt::format("MASTER_ADDR={}", group.host),
          fmt::format("MASTER_PORT={}", group.port),
          fmt::format("TORCHELASTIC_USE_AGENT_STORE={}", group.hosts_store ? "False" : "True"),
          fmt::format("TORCHELASTIC_RESTART_COUNT={}", attempt > 0 ? std::to_string(attempt) : group.attempt),
          fmt::format("TORCHELASTIC_RUN_ID={}", group.job),
          fmt::format("{}={}", kRankMeetingVariable, options.of.has_value() ? group.attempt : std::to_string(attempt)),
          fmt::format("{}={}", kRankLauncherVariable, getpid())};
}

/// The group of ranks that are all on this machine, for one start.
Result<SpreadGroup> group_of_this_machine(const RankGroupOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(const int port, free_port());
  return SpreadGroup{.size = options.num_ranks, .host = "127.0.0.1", .port = port, .job = fmt::format("darkroom-{}", getpid())};
}

bool is_stop(int exit_code) { return exit_code == 128 + SIGTERM || exit_code == 128 + SIGINT; }

/// One start of all ranks. Whatever ends it, no rank outlives it.
class RunningRanks {
 public:
  RunningRanks() = default;
  ~RunningRanks() {
    signal_all(SIGKILL);
    for (Rank& rank : ranks_) {
      if (!rank.exit_code.has_value()) {
        static_cast<void>(wait_for_child(rank.pid));
      }
      close(rank.watched);
    }
  }
  RunningRanks(const RunningRanks&) = delete;
  RunningRanks& operator=(const RunningRanks&) = delete;

  Status start(const RankGroupOptions& options, int64_t attempt) {
    DARKROOM_ASSIGN_OR_RETURN(const SpreadGroup group,
                              options.of.has_value() ? Result<SpreadGroup>(*options.of) : group_of_this_machine(options));
    for (int64_t rank = 0; rank < options.num_ranks; ++rank) {
      ChildOptions child{.has_own_group = true, .shares_output = true};
      child.environment = environment_of_rank(options, group, rank, attempt);
      DARKROOM_ASSIGN_OR_RETURN(const Child started, start_child(options.command, child));
      ranks_.push_back({started.pid, watch_child(started.pid), {}});
      if (ranks_.back().watched < 0) {
        return Status::unavailable("cannot watch a rank (rank, reason):", rank, std::strerror(errno));
      }
    }
    return {};
  }

  /// Until all have ended: with a stop request, when they like; after a failure, within `patience`.
  Status wait(std::chrono::milliseconds patience, const std::stop_token& stop) {
    bool was_told = false;
    constexpr auto kNever = SteadyClock::time_point::max();
    auto end = kNever;
    while (num_running() > 0) {
      DARKROOM_RETURN_IF_ERROR(collect());
      if (!was_told && (stop.stop_requested() || was_stopped_elsewhere())) {
        was_told = true;
        signal_all(SIGTERM);
      }
      if (!has_failed(was_told) && !only_stopped_are_left()) {
        end = kNever;  // One that was stopped has gone on.
      } else if (end == kNever) {
        end = SteadyClock::now() + patience;
      }
      if (SteadyClock::now() >= end) {
        signal_all(SIGKILL);
      }
    }
    return {};
  }

  /// By rank; as wait_for_child. REQUIRES: wait() was ok.
  std::vector<int> exit_codes() const {
    std::vector<int> codes;
    for (const Rank& rank : ranks_) {
      codes.push_back(rank.exit_code.value_or(0));
    }
    return codes;
  }

 private:
  struct Rank {
    pid_t pid = 0;
    int watched = -1;
    std::optional<int> exit_code;
  };

  int64_t num_running() const {
    return std::count_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.exit_code.has_value(); });
  }
  // After a stop the others may end long before rank 0, which writes the report.
  bool has_failed(bool was_told) const {
    return std::any_of(ranks_.begin(), ranks_.end(), [=](const Rank& rank) {
      const int code = rank.exit_code.value_or(0);
      return code != 0 && !(was_told && is_stop(code));
    });
  }
  // A stop of one rank, here or on another machine, is everybody's: the others may still save.
  bool was_stopped_elsewhere() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return is_stop(rank.exit_code.value_or(0)); });
  }
  // Ranks watch each other until the run is done; a signal that stops one after that is missed by nobody else.
  bool only_stopped_are_left() const {
    return num_running() < static_cast<int64_t>(ranks_.size()) &&
           std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.exit_code.has_value() || is_stopped(rank.pid); });
  }
  void signal_all(int number) const {
    for (const Rank& rank : ranks_) {
      if (!rank.exit_code.has_value()) {
        kill(rank.pid, number);
      }
    }
  }
  // Waits a moment for one to end.
  Status collect() {
    std::vector<pollfd> sources;
    for (const Rank& rank : ranks_) {
      sources.push_back({rank.exit_code.has_value() ? -1 : rank.watched, POLLIN, 0});  // -1 is passed over.
    }
    if (poll(sources.data(), sources.size(), kLookMilliseconds) <= 0) {
      return {};
    }
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (sources[i].revents != 0) {
        DARKROOM_ASSIGN_OR_RETURN(ranks_[i].exit_code, wait_for_child(ranks_[i].pid));
      }
    }
    return {};
  }

  std::vector<Rank> ranks_;
};

bool is_lost(int exit_code) { return exit_code == kExitRankLost || (exit_code > 128 && !is_stop(exit_code)); }

// "rank 0: signal 9, rank 1: another rank was lost".
std::string describe(const std::vector<int>& codes) {
  std::string text;
  for (size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] != 0) {
      text += fmt::format("{}rank {}: {}", text.empty() ? "" : ", ", rank,
                          codes[rank] == kExitRankLost ? "missed another"
                          : codes[rank] > 128          ? fmt::format("signal {}", codes[rank] - 128)
                                                       : fmt::format("exit code {}", codes[rank]));
    }
  }
  return text;
}

Status stopped(const RankGroupOptions& options) {
  return Status::cancelled(fmt::format("stopped on request; {} from the last checkpoint; ranks:", options.command_that_goes_on),
                           options.num_ranks);
}

/// How one start of all ranks ended.
struct Ending {
  std::optional<int> exit_code;  ///< Of the group, for good; empty: ranks were lost.
  std::string lost;              ///< What was lost, for people.
};

Result<Ending> run_once(const RankGroupOptions& options, int64_t attempt, const std::stop_token& stop) {
  RunningRanks ranks;
  if (Status started = ranks.start(options, attempt); !started.is_ok()) {  // What the machine has none of now it may have again.
    const bool may_pass = started.code() == StatusCode::kResourceExhausted || started.code() == StatusCode::kUnavailable;
    return may_pass ? Result<Ending>(Ending{.exit_code = {}, .lost = started.message()}) : started;
  }
  DARKROOM_RETURN_IF_ERROR(ranks.wait(options.patience, stop));
  const std::vector<int> codes = ranks.exit_codes();
  const auto failed = std::find_if(codes.begin(), codes.end(), [](int code) { return code != 0 && !is_lost(code); });
  if (failed != codes.end() && *failed < 128) {
    return Ending{.exit_code = *failed, .lost = {}};
  }
  if (stop.stop_requested()) {
    return stopped(options);
  }
  if (failed != codes.end()) {
    return Ending{.exit_code = *failed, .lost = {}};  // A rank was stopped by SIGTERM or SIGINT from elsewhere, and the others with it.
  }
  if (std::all_of(codes.begin(), codes.end(), [](int code) { return code == 0; })) {
    return Ending{.exit_code = 0, .lost = {}};
  }
  return Ending{.exit_code = {}, .lost = describe(codes)};
}

}  // namespace

void end_on_uncaught_exceptions() {
  std::set_terminate([] {
    try {
      if (const auto exception = std::current_exception()) {
        std::rethrow_exception(exception);
      }
      log_error("a rank ends: terminated without an exception");
    } catch (const std::exception& error) {
      const std::string text = error.what();
      log_error("a rank ends, because of what its ranks exchange or a bug of darkroom: {}", text.substr(0, text.find('\n')));
    } catch (...) {
      log_error("a rank ends, because of an unknown exception");
    }
    _exit(1);
  });
}

std::chrono::milliseconds pause_before_restart(const RankGroupOptions& options, int64_t restart) {
  constexpr int64_t kGrowth = 5;
  std::chrono::milliseconds pause = options.first_pause;
  for (int64_t i = 1; i < restart && pause < options.longest_pause; ++i) {
    pause *= kGrowth;
  }
  return std::min(pause, options.longest_pause);
}

Result<int> run_rank_group(const RankGroupOptions& options, const std::stop_token& stop) {
  for (int64_t attempt = 0;; ++attempt) {
    DARKROOM_ASSIGN_OR_RETURN(const Ending ending, run_once(options, attempt, stop));
    if (ending.exit_code.has_value()) {
      return *ending.exit_code;
    }
    if (attempt >= options.max_restarts) {
      return Status::unavailable(
          fmt::format("ranks were lost ({}), more often than --max-restarts allows; {} from the last checkpoint; restarts:", ending.lost,
                      options.command_that_goes_on),
          options.max_restarts);
    }
    const std::chrono::milliseconds pause = pause_before_restart(options, attempt + 1);
    log_warning("ranks were lost ({}): all start again from the last checkpoint in {:.0f} s, number {} of at most {}", ending.lost,
                std::chrono::duration<double>(pause).count(), attempt + 1, options.max_restarts);
    if (!system_clock().sleep_until(system_clock().now() + pause, stop)) {
      return stopped(options);
    }
  }
}

}  // namespace darkroom
