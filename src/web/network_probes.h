#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "darkroom/web/network_watch.h"
#include "darkroom/web/resolver.h"
#include "darkroom/web/url_hop.h"
#include "fetch_inbox.h"

namespace darkroom {

/// Carries out what NetworkWatch wants to know: connects to addresses without sending anything, and asks the resolver for a name that
/// nobody has. Each probe is given up after kPatience. Thread safety: one thread; answers of the resolver come through the inbox.
class NetworkProbes {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kPatience{3};

  /// All outlive this, but the inbox is shared with the resolver's callbacks.
  NetworkProbes(const HopPolicy& policy, Resolver& resolver, std::shared_ptr<FetchInbox> inbox)
      : policy_(policy), resolver_(resolver), inbox_(std::move(inbox)) {}
  ~NetworkProbes();
  NetworkProbes(const NetworkProbes&) = delete;
  NetworkProbes& operator=(const NetworkProbes&) = delete;

  void begin(NetworkProbe probe, Instant now);
  /// The resolver's answer, from the inbox.
  void take_answer(const ProbeAnswer& answer);
  /// Sockets to wait for, and what came of it.
  void add_sockets(std::vector<pollfd>& sockets) const;
  void take_sockets(const std::vector<pollfd>& sockets);
  std::optional<Instant> next_instant() const;

  struct Ended {
    NetworkProbe probe;
    Instant began;
    bool is_answered = false;
  };
  /// A probe that has ended by now; nothing: none (any more).
  std::optional<Ended> take_ended(Instant now);

 private:
  struct Open {
    Ended ended;
    int socket = -1;
    std::optional<bool> answer;
  };
  void connect(Open& open);

  const HopPolicy& policy_;
  Resolver& resolver_;
  std::shared_ptr<FetchInbox> inbox_;
  std::vector<Open> open_;
  std::mt19937_64 names_{std::random_device{}()};
};

}  // namespace darkroom
