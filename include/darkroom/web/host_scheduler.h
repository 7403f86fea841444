#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "darkroom/web/host_rules.h"
#include "darkroom/web/retry_rules.h"

namespace darkroom {

/// One hop of a row's URL on its way. The caller fills the first part, the scheduler keeps the rest.
struct Attempt {
  uint64_t row = 0;    ///< The caller's name for it.
  uint64_t order = 0;  ///< Older rows (smaller) go first.
  std::string host;    ///< As in the URL, in small letters. Limits are a host's, over all its ports.
  int port = 0;
  std::string url;
  std::chrono::nanoseconds timeout =
      std::chrono::seconds(20);  ///< Deadline of the row: time on the wire and in back-offs, all hops together.
  bool is_internal = false;  ///< Our own request (robots.txt): goes before the host's rows, in their turn, and also while the host is held.

  std::chrono::nanoseconds used{0};    ///< Of `timeout`. The attempt on the wire may last timeout - used.
  std::chrono::nanoseconds parked{0};  ///< Waited for hosts so far: at most max_park.
  int num_retries = 0;
  int num_redirects = 0;

  // Of the scheduler.
  std::chrono::steady_clock::time_point taken_at{};
  uint64_t num_pauses = 0;   ///< Of its host when it was taken: what it meets later says nothing of the pauses since.
  uint64_t num_answers = 0;  ///< Of its host when it was taken: a host that has answered another since is not dead.
  bool is_probe = false;     ///< The one attempt of a host whose breaker was open.
  bool is_suspect = false;   ///< Not yet judged or restarted.
};

/// What follows from an outcome. kFinish, kRedirect and kSuspect leave the attempt with the caller.
struct AttemptVerdict {
  enum class Kind {
    kFinish,    ///< The row ends: with `error`, or well.
    kRetry,     ///< Again at `at`, after a back-off.
    kPark,      ///< Again when its host may, at `at` or later.
    kRedirect,  ///< The caller sets host, port and url, and add()s it. Retries, redirects and deadline go on.
    kSuspect,   ///< A failure that may be this machine's: judge() it, or restart() it, once that is known (NetworkWatch).
  };
  Kind kind = Kind::kFinish;
  std::chrono::steady_clock::time_point at{};
  std::optional<RowError> error = std::nullopt;
};

/// Which attempt may start next, and what an outcome means. No thread, no clock, no sockets: `now` comes from the caller and, if it
/// ever goes back, counts as the latest one seen. The caller limits how many attempts are on the wire in all.
///
/// Of the attempts that may start the one with the smallest `order` does; of equal ones the one added first. Limits per host: places,
/// spacing, and pauses. A pause begins when the host says 429, or 503 with Retry-After (its length is what Retry-After asks, and grows
/// with each pause that the host answers with another), when its breaker opens, or by park(). It lasts the larger of max_park and
/// breaker_wait at most. After a breaker's pause one attempt probes the host; the others follow once that one is answered. A suspect is
/// not: it stays the probe until its verdict, and suspects that would open the breaker keep their host waiting. After any other pause all
/// of the host's places are free again.
///
/// A row ends with the error that keeps it, when it has waited max_park for paused hosts in all, or when its host has been in
/// trouble for max_park without one good answer: so a dead host costs a job max_park once, not once a row. Back-offs and turns do not count
/// as waiting.
///
/// Cost: O(log hosts + log rows of the host) an operation. Memory: what is inside, and hosts in trouble for forget_after, at most
/// max_idle_hosts of them.
/// Thread safety: one thread at a time.
class HostScheduler {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::nanoseconds;

  /// REQUIRES: valid rules. The seed decides back-offs only.
  HostScheduler(HostRules rules, uint64_t jitter_seed);
  ~HostScheduler();
  HostScheduler(const HostScheduler&) = delete;
  HostScheduler& operator=(const HostScheduler&) = delete;

  void add(std::unique_ptr<Attempt> attempt, Instant now);
  /// The attempt to start now; null: none may. It holds a place of its host until report() or put_back().
  std::unique_ptr<Attempt> take(Instant now);
  /// Gives back an attempt that was taken but not started; it counts for no rate.
  void put_back(std::unique_ptr<Attempt> attempt, Instant now);
  /// Gives back an attempt that we have broken off: its time on the wire, less `paused`, and its start count, nothing else does.
  void interrupt(std::unique_ptr<Attempt> attempt, Duration paused, Instant now);
  /// Ends the attempt on the wire. Takes it when it waits here for another try. A network failure is kSuspect and counts only by judge().
  AttemptVerdict report(std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant now);
  /// The verdict over a suspect whose failure is its host's own. REQUIRES: report() said kSuspect of it, and nobody judged or restarted it.
  AttemptVerdict judge(std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant now);
  /// Adds a suspect whose failure was this machine's: as if it had not been tried, with a fresh deadline. REQUIRES: as judge().
  void restart(std::unique_ptr<Attempt> attempt, Instant now);

  struct Expired {
    std::unique_ptr<Attempt> attempt;
    RowError error;
  };
  /// A row that has waited too long for its host; nullopt: none (any more).
  std::optional<Expired> take_expired(Instant now);

  /// Pauses a host for `wait` (at most the larger of max_park and breaker_wait); rows that wait too long end with `error`.
  void park(const std::string& host, Duration wait, RowError error, Instant now);
  /// Holds a host's rows, but not internal attempts, until release(): while its robots.txt is on its way. Does not count as waiting.
  void hold(const std::string& host, Instant now);
  void release(const std::string& host, Instant now);

  /// While paused (an outage) nothing starts or expires, and all times stand still: back-offs, pauses of hosts, waiting and deadlines.
  void set_paused(bool is_paused, Instant now);

  /// When take() or take_expired() may give more than now; nullopt: not before another call.
  std::optional<Instant> next_instant() const;

  /// Whether rows of this host, those of a back-off too, will have to wait for its places: connections to it will be used again.
  bool has_more(const std::string& host) const;
  int num_on_wire(const std::string& host) const;  ///< Of this host.

  size_t num_waiting() const { return num_waiting_; }  ///< Attempts inside.
  /// Of these, those that have to wait: in a back-off, or of a host that is paused or has yet to answer after its breaker opened.
  size_t num_set_aside() const { return backing_off_.size() + num_set_aside_; }
  /// Of these, those of other hosts beyond the places that their host has free.
  size_t num_beyond_places() const { return num_beyond_; }
  size_t num_on_wire() const { return num_on_wire_; }            ///< Taken and not yet reported.
  size_t num_hosts() const { return hosts_.size(); }             ///< Remembered.
  size_t num_parked_hosts() const { return num_parked_hosts_; }  ///< Paused, with rows that wait.

 private:
  struct Host;
  using Position = std::pair<uint64_t, uint64_t>;  // order, sequence.

  Instant local(Instant now);
  Host& host_of(const std::string& name);
  void enqueue(Host& host, std::unique_ptr<Attempt> attempt, Instant t);
  void leave_wire(Host& host, const Attempt& attempt);
  static void leave_suspects(Host& host, Attempt& attempt);
  AttemptVerdict decide(Host& host, std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant t);
  AttemptVerdict throttle(Host& host, std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant t);
  AttemptVerdict retry(Host& host, std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome, Instant t);
  static void note_answer(Host& host, const Attempt& attempt);
  void note_network_failure(Host& host, const Attempt& attempt, const RowError& error, Instant t);
  void pause_host(Host& host, Duration wait, RowError error, Instant t);
  std::chrono::seconds longest_pause() const;

  std::unique_ptr<Attempt> pop(Host& host, Position position, Instant t);
  Instant expiry(const Host& host, Instant t) const;
  void wake(Instant t);
  void refile(Host& host, Instant t);
  void file_ready(Host& host, Instant t);
  void unfile(Host& host);
  void drop_idle(Instant t);

  HostRules rules_;
  Duration spacing_{0};  // Between two starts of a host.
  std::minstd_rand jitter_;
  std::unordered_map<std::string, std::unique_ptr<Host>> hosts_;
  uint64_t next_sequence_ = 0;

  // Where a host is filed follows from its state: refile() after each change.
  std::set<std::pair<Position, Host*>> ready_;  // May start an attempt now, by its first one.
  std::set<std::pair<Instant, Host*>> asleep_;  // Its state changes then.
  std::set<Host*> expiring_;                    // Has a row that has waited too long.
  std::set<std::pair<Instant, Host*>> idle_;    // Has nothing inside; forgotten then.

  std::map<std::pair<Instant, uint64_t>, std::unique_ptr<Attempt>> backing_off_;

  Instant latest_ = Instant::min();  // `now` that was seen.
  Duration shift_{0};                // Real time less local time: the pauses so far.
  std::optional<Instant> paused_at_;
  size_t num_waiting_ = 0;
  size_t num_on_wire_ = 0;
  size_t num_parked_hosts_ = 0;
  size_t num_set_aside_ = 0;  // Sums over the hosts, as far as these were filed.
  size_t num_beyond_ = 0;
};

}  // namespace darkroom
