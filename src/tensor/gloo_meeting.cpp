#include "gloo_meeting.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "darkroom/core/nested_text.h"

namespace darkroom {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(50);  // How late a stop request may be seen while others are waited for,
constexpr auto kAttempt = std::chrono::seconds(2);     // and while there is no store yet.
constexpr auto kFarewell = std::chrono::seconds(10);   // How long rank 0 keeps the store for others to read why the ranks part.

constexpr const char* kVerdict = "verdict";  // Keys of one start.
std::string agreement_of(int64_t rank) { return "agreement/" + std::to_string(rank); }

/// A listening socket that this machine alone can reach: TCPStore's own listens on every address.
Result<int> listen_on_loopback(int64_t port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || listen(listener, SOMAXCONN) != 0) {
    const std::string reason = std::strerror(errno);
    close(listener);
    return Status::unavailable("rank 0 cannot listen for the other ranks; set another MASTER_PORT (port, reason):", port, reason);
  }
  return listener;
}

// A store that is not there yet is tried again and again: an attempt sees no stop request.
Result<StorePointer> connect_to_store(const RankPlace& place, const std::string& host, const c10d::TCPStoreOptions& options,
                                      std::chrono::seconds patience, const std::stop_token& stop) {
  const auto end = Clock::now() + patience;
  c10d::TCPStoreOptions attempt = options;
  attempt.timeout = options.isServer ? options.timeout : std::min<std::chrono::milliseconds>(options.timeout, kAttempt);
  for (;;) {
    try {
      StorePointer store = c10::make_intrusive<c10d::TCPStore>(host, attempt);
      store->setTimeout(options.timeout);
      return store;
    } catch (const std::exception& error) {
      if (options.isServer || Clock::now() >= end) {
        return Status::unavailable("no connection to the store where the ranks meet (rank, host, port, reason):", place.rank, place.host,
                                   place.port, first_line(error));
      }
    }
    if (stop.stop_requested()) {
      return Status::cancelled("stopped on request while there was no rank 0 yet (this rank, host, port):", place.rank, place.host,
                               place.port);
    }
    std::this_thread::sleep_for(kLook);
  }
}

std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// Names the first field in which two agreements differ.
Status compare_agreements(int64_t rank, const std::string& ours, int64_t other, const std::string& theirs) {
  if (ours == theirs) {
    return {};
  }
  const auto mine = parse_json(ours), yours = parse_json(theirs);
  if (mine.is_object() && yours.is_object()) {
    for (const auto& [field, value] : mine.items()) {
      if (!yours.contains(field) || yours[field] != value) {
        return Status::failed_precondition(
            "the ranks do not want the same run; they differ in (field, this rank, its value, other rank, its value):", field, rank,
            value.dump(), other, yours.value(field, nlohmann::json()).dump());
      }
    }
  }
  return Status::failed_precondition("what joins the ranks here is no rank of this run (this rank, other rank):", rank, other);
}

// The launcher's name of the run, where it has one.
std::string job_of(const std::string& agreement) {
  const auto fields = parse_json(agreement);
  const auto job = fields.is_object() ? fields.value("job", nlohmann::json()) : nlohmann::json();
  return job.is_string() ? job.get<std::string>() : "";
}

/// What the ranks say in the store before they know each other. Errors of all: also exceptions of c10d, when the store is gone.
class Meeting {
 public:
  Meeting(c10d::Store& base, c10d::Store& store, const GlooOptions& options, std::string agreement)
      : base_(base),
        store_(store),
        place_(options.place),
        patience_(options.arrival),
        stop_(options.stop),
        agreement_(std::move(agreement)),
        job_(job_of(agreement_)) {}

  /// Ranks of two jobs at one port: who came to the other's store goes without a word in it.
  Status find_own_job() {
    if (place_.rank == 0 && !base_.check({kJob})) {
      base_.set(kJob, bytes_of(job_));
      return {};
    }
    auto end = Clock::now() + 2 * patience_;  // Rank 0 may come late to a store that a launcher keeps.
    bool was_stopped = false;
    while (!base_.check({kJob})) {
      if (stop_.stop_requested() && !was_stopped) {
        was_stopped = true;
        if (place_.hosts_store) {  // It has the name at once, and is then told; until then it may be another job's, which must not hear of
                                   // it.
          end = std::min(end, Clock::now() + kFarewell);
        } else {
          store_.set(kStop, bytes_of("yes"));
          end = Clock::now();
        }
      }
      if (Clock::now() >= end) {
        return was_stopped ? Status::cancelled("stopped on request while the ranks were still coming; this rank:", place_.rank)
                           : Status::unavailable("rank 0 said nothing in time; this rank:", place_.rank);
      }
      std::this_thread::sleep_for(kLook);
    }
    const std::string job = text_of(base_.get(kJob));
    if (job == job_) {
      return {};
    }
    return Status::failed_precondition(
        "the ranks that meet here are of another job; set another MASTER_PORT for this one (this rank, port, its job, job there):",
        place_.rank, place_.port, fmt::format("'{}'", job_), fmt::format("'{}'", job));
  }

  /// Rank 0 compares all with itself and tells them what it found, so that all ranks end alike.
  Status agree() {
    store_.set(agreement_of(place_.rank), bytes_of(agreement_));
    return place_.rank == 0 ? judge() : take_verdict();
  }

 private:
  static constexpr const char* kJob = "darkroom/job";
  static constexpr const char* kStop = "stop";
  static std::string told(int64_t rank) { return "told/" + std::to_string(rank); }

  Status judge() {
    const Status verdict = compare_all();
    store_.set(kVerdict, bytes_of(nlohmann::json({{"code", static_cast<int>(verdict.code())}, {"message", verdict.message()}}).dump()));
    if (!verdict.is_ok()) {
      wait_until_told();
    }
    return verdict;
  }

  Status compare_all() {
    Status first_difference;
    auto end = Clock::now() + patience_;
    for (int64_t other = 1; other < place_.size; ++other) {
      const auto theirs = wait_for(agreement_of(other), end);
      if (!theirs.is_ok() && !first_difference.is_ok()) {
        return first_difference;
      }
      if (!theirs.is_ok() && theirs.status().code() == StatusCode::kUnavailable) {
        return Status::unavailable("a rank did not come in time (this rank, missing rank, seconds):", place_.rank, other,
                                   patience_.count());
      }
      DARKROOM_RETURN_IF_ERROR(theirs.status());
      const Status compared = compare_agreements(0, agreement_, other, *theirs);
      if (first_difference.is_ok() && !compared.is_ok()) {
        first_difference = compared;
        end = std::min(end, Clock::now() + kFarewell);  // Who comes a little later is told, too.
      }
    }
    return first_difference;
  }

  // The store goes with rank 0: those who came have to read the verdict first.
  void wait_until_told() {
    const auto end = Clock::now() + kFarewell;
    for (int64_t other = 1; other < place_.size; ++other) {
      while (store_.check({agreement_of(other)}) && !store_.check({told(other)}) && Clock::now() < end) {
        std::this_thread::sleep_for(kLook);
      }
    }
  }

  Status take_verdict() {
    const auto text = wait_for(kVerdict, Clock::now() + 2 * patience_);  // Rank 0 may have come late and wait for others.
    if (!text.is_ok()) {
      store_.set(told(place_.rank), bytes_of("yes"));  // Rank 0 need not wait for one who goes.
      return text.status();
    }
    const auto json = parse_json(*text);
    const auto code = static_cast<StatusCode>(json.value("code", static_cast<int>(StatusCode::kInternal)));
    const std::string message = json.value("message", std::string());
    const Status verdict = code == StatusCode::kOk            ? Status()
                           : code == StatusCode::kUnavailable ? Status::unavailable(message)
                           : code == StatusCode::kCancelled   ? Status::cancelled(message)
                                                              : Status::failed_precondition(message);
    const Status own = compare_agreements(place_.rank, agreement_, 0, text_of(store_.get(agreement_of(0))));
    store_.set(told(place_.rank), bytes_of("yes"));
    return own.is_ok() ? verdict : own;
  }

  // Looks instead of waiting within the store, which would see no stop request. One rank's stop is everybody's.
  Result<std::string> wait_for(const std::string& key, Clock::time_point end) {
    while (!store_.check({key})) {
      if (stop_.stop_requested()) {
        store_.set(kStop, bytes_of("yes"));
      }
      if (store_.check({kStop})) {
        return Status::cancelled("stopped on request while the ranks were still coming; this rank:", place_.rank);
      }
      if (Clock::now() >= end) {
        return Status::unavailable("rank 0 said nothing in time; this rank:", place_.rank);
      }
      std::this_thread::sleep_for(kLook);
    }
    return text_of(store_.get(key));
  }

  c10d::Store& base_;   // Of all starts.
  c10d::Store& store_;  // Of this start alone.
  const RankPlace& place_;
  const std::chrono::seconds patience_;
  const std::stop_token stop_;
  const std::string agreement_;
  const std::string job_;
};

// Whether this rank has said the same in the store before, and all were let begin: in a start that rank 0 has not ended yet. A store that
// goes while it is asked is over, too; a refusal is there to be read.
bool is_over(const RankPlace& place, const StorePointer& base, const std::string& agreement) {
  try {
    const StorePointer store = store_of_start(place, base);
    const std::string own = agreement_of(place.rank);
    return store->check({own, kVerdict}) && text_of(store->get(own)) == agreement &&
           parse_json(text_of(store->get(kVerdict))).value("code", -1) == static_cast<int>(StatusCode::kOk);
  } catch (const std::exception&) {
    return true;
  }
}

}  // namespace

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

Result<StorePointer> open_store(const RankPlace& place, bool may_host, std::chrono::seconds patience, const std::stop_token& stop) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(place.port);
  options.isServer = may_host && place.rank == 0 && place.hosts_store;
  options.numWorkers = static_cast<size_t>(place.size);
  options.waitWorkers = false;
  options.timeout = patience;
  const bool is_local = is_loopback(place.host);
  if (options.isServer && is_local) {
    DARKROOM_ASSIGN_OR_RETURN(options.masterListenFd, listen_on_loopback(place.port));
  }
  return connect_to_store(place, is_local ? "127.0.0.1" : place.host, options, patience, stop);
}

StorePointer store_of_start(const RankPlace& place, const StorePointer& base) {
  return c10::make_intrusive<c10d::PrefixStore>("darkroom/" + place.attempt, base);
}

Result<StorePointer> open_current_store(const GlooOptions& options, const std::string& agreement) {
  const RankPlace& place = options.place;
  const auto end = Clock::now() + options.arrival;
  for (;;) {
    DARKROOM_ASSIGN_OR_RETURN(StorePointer base, open_store(place, /*may_host=*/true, options.arrival, options.stop));
    if (place.rank == 0 || !place.hosts_store || !is_over(place, base, agreement)) {
      return base;
    }
    base.reset();
    if (options.stop.stop_requested()) {
      return Status::cancelled("stopped on request while rank 0 had not ended the start before (this rank, host, port):", place.rank,
                               place.host, place.port);
    }
    if (Clock::now() >= end) {
      return Status::unavailable("rank 0 did not end the start before in time (this rank, host, port):", place.rank, place.host,
                                 place.port);
    }
    std::this_thread::sleep_for(kAttempt);
  }
}

Status meet_ranks(c10d::Store& base, c10d::Store& store, const GlooOptions& options, const std::string& agreement) {
  Meeting meeting(base, store, options, agreement);
  DARKROOM_RETURN_IF_ERROR(meeting.find_own_job());
  return meeting.agree();
}

}  // namespace darkroom
