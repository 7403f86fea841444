#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/web/host_scheduler.h"

namespace darkroom {

struct NetworkWatchOptions {
  std::chrono::milliseconds probe_after{3000};         ///< Nobody answers for so long: probe.
  std::chrono::milliseconds first_interval{1000};      ///< Between the first two rounds of probes; doubled for each further one.
  std::chrono::milliseconds longest_interval{10'000};  ///< Also between rounds that only confirm that silent hosts are silent.
};

/// A question that tells whether the network works. To be answered, or given up after a few seconds, by probe_ended().
struct NetworkProbe {
  enum class Kind {
    kAddress,  ///< Connect to `address`, which answered lately. A refusal is an answer.
    /// Ask the resolver for a name that no cache holds. NXDOMAIN is an answer, SERVFAIL is none. A fresh name under a large public domain:
    /// resolvers answer .invalid and its like by themselves (RFC 6761), and names between two signed ones from their cache (RFC 8198).
    kResolver,
  };
  Kind kind = Kind::kAddress;
  std::string address = {};
  uint64_t round = 0;
};

/// An attempt whose failure may be this machine's own.
struct NetworkSuspect {
  std::unique_ptr<Attempt> attempt;
  AttemptOutcome outcome;
};

/// Ours or the web's? Keeps every network failure until it is known whether the network of this machine worked when it happened.
///
/// A witness is an exchange that began after the failure and was answered: anything sooner could be what was already on its way when
/// the network broke. The network works since a connection's witness; or since a round of probes in which the resolver answered while
/// none of the addresses did that answered lately, because these may be dead by themselves. A failure of the resolver needs a witness of
/// the resolver besides.
///
/// With a witness the failure is confirmed: it is the host's own. Without one for `probe_after`, or when nothing at all was heard for so
/// long while attempts are on the wire, a round of probes begins (all addresses that answered lately, eight at most, and the resolver).
/// A round without a witness: an outage. It ends by a witness that began after it was noticed; then all suspects are cleared: they
/// are to be tried again. So are failures of attempts that began before its end, however late they come. Every suspect comes back,
/// confirmed or cleared, exactly once.
///
/// Cost: O(1) an operation, amortised. Thread safety: one thread at a time.
class NetworkWatch {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  enum class State {
    kFine,
    kSuspicious,  ///< Suspects wait for a witness.
    kOut,         ///< Nothing works: HostScheduler::set_paused(true) until it does.
  };

  /// REQUIRES: no wait is negative, 0 < first_interval <= longest_interval.
  explicit NetworkWatch(NetworkWatchOptions options = {});

  /// A connection to `address` (any text that a probe can use) was made or refused, or a byte came: of an exchange that `began` then.
  void answered(const std::string& address, Instant began, Instant now);
  /// The resolver answered a query sent at `began`: addresses or NXDOMAIN. Not from a cache of ours.
  void resolved(Instant began, Instant now);

  /// How many attempts are on the wire from now on.
  void set_on_wire(size_t num_attempts, Instant now);

  /// A failure at `now` of an attempt that `began` then. REQUIRES: outcome.is_network.
  void suspect(NetworkSuspect suspect, Instant began, Instant now);
  /// Failures that are the host's own: for HostScheduler::judge().
  std::optional<NetworkSuspect> take_confirmed();
  /// Failures that say nothing: for HostScheduler::restart().
  std::optional<NetworkSuspect> take_cleared();

  /// The probes to send now; mostly none.
  std::vector<NetworkProbe> take_probes(Instant now);
  void probe_ended(const NetworkProbe& probe, bool is_answered, Instant now);
  /// When take_probes() gives some unless a witness comes; nullopt: never.
  std::optional<Instant> next_instant() const;

  State state() const;
  std::optional<Instant> out_since() const { return out_since_; }  ///< The first sign of it.
  size_t num_suspects() const { return connections_.size() + lookups_.size(); }

 private:
  struct Kept {
    Instant failed_at;
    NetworkSuspect suspect;
  };

  void remember(const std::string& address);
  void settle(Instant now);
  void confirm(std::deque<Kept>& kept, Instant until);
  void clear_all();
  void hear(Instant now, std::chrono::milliseconds patience);
  void end_round(Instant now);
  std::optional<Instant> oldest() const;

  NetworkWatchOptions options_;
  std::deque<std::string> addresses_;  // That answered lately, the latest last.
  std::deque<Kept> connections_;       // Suspects by time of failure: whose connection failed,
  std::deque<Kept> lookups_;           // and whose look-up did.
  std::deque<NetworkSuspect> confirmed_, cleared_;

  // The latest beginning of a witness.
  Instant connection_works_ = Instant::min();  // Of a connection, or a round that proves as much.
  Instant resolver_works_ = Instant::min();

  uint64_t round_ = 0;
  size_t num_probes_ = 0;  // Of the round, on their way.
  Instant round_began_ = Instant::min();
  bool has_address_answered_ = false;
  bool has_resolver_answered_ = false;
  Instant next_round_ = Instant::min();
  std::chrono::milliseconds interval_{0};

  // Silence.
  size_t num_on_wire_ = 0;
  Instant heard_ = Instant::min();  // Of anybody, or the beginning of being on the wire.
  std::chrono::milliseconds patience_{0};

  std::optional<Instant> out_since_;
  Instant out_noticed_ = Instant::min();
  bool needs_resolver_ = false;  // For the end of the outage.
  Instant last_out_ended_ = Instant::min();
};

}  // namespace darkroom
