#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/web/address_policy.h"

namespace darkroom {

/// What a name stands for, or why that is not known.
struct DnsAnswer {
  enum class Kind {
    kOk,            ///< At least one address.
    kNoName,        ///< The name does not exist, has no address, or is no name.
    kServerFailed,  ///< No name server could say: SERVFAIL, REFUSED, none listens.
    kTimeout,       ///< No name server has answered in time.
    kStopped,       ///< The resolver ended first.
  };
  Kind kind = Kind::kOk;
  std::vector<IpAddress> addresses = {};
  bool is_from_cache = false;                        ///< Also of the hosts file, and of numeric names: no name server was heard just now.
  std::chrono::steady_clock::time_point asked_at{};  ///< When the query was sent that this answers, unless it is from the cache.
};

/// The kind in snake_case, for metrics and logs.
std::string_view dns_answer_name(DnsAnswer::Kind kind);

/// Turns host names into addresses. Thread safety: every member but the destructor may be called by any thread.
class Resolver {
 public:
  virtual ~Resolver() = default;
  /// Calls `done` exactly once: before it returns where the answer is known already, else in a thread of the resolver. `done` holds no
  /// lock, may call resolve(), computes little, and does not throw.
  virtual void resolve(const std::string& host, std::function<void(const DnsAnswer&)> done) = 0;
  /// As resolve(), before all names that wait for their turn: a question whether name servers answer must not wait for silent ones.
  virtual void resolve_at_once(const std::string& host, std::function<void(const DnsAnswer&)> done) = 0;
};

struct ResolverOptions {
  std::vector<std::string> servers = {};  ///< "192.0.2.1" or "192.0.2.1:5353"; empty: those of resolv_conf.
  std::string resolv_conf = "/etc/resolv.conf";
  uint16_t port = 53;                         ///< Of name servers that are named without one.
  std::string hosts_file = "/etc/hosts";      ///< Read once; empty: none.
  std::chrono::milliseconds try_time{2'000};  ///< Of the first try of each server; the next ones take longer.
  int num_tries = 3;
  int max_queries = 1'024;                 ///< Names asked for at once, those of resolve_at_once() besides; the others wait.
  bool uses_search_domains = false;        ///< Those of resolv_conf and LOCALDOMAIN, for names with fewer dots than its ndots.
  size_t max_names = 200'000;              ///< Kept; the one that was asked for longest ago goes.
  std::chrono::seconds shortest_life{60};  ///< Of an answer in the cache, whatever its TTL says,
  std::chrono::seconds longest_life{3'600};
  std::chrono::seconds negative_life{30};  ///< of kNoName. The other failures are not kept.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// A resolver over c-ares with one thread and a cache; one query a name however many ask. A and AAAA records of DNS and the hosts file;
/// search domains where they are asked for, no mDNS, nothing else that the system's resolver can be set up to ask. When a name is asked for
/// after resolv_conf has changed, that is read again, and what the former name servers had not answered is asked of the new ones.
/// `clock` (for the cache alone) and `metrics` (darkroom_dns_*) outlive it. Its destructor answers kStopped to all who wait.
/// Errors: kInvalidArgument (options), kUnavailable (c-ares or descriptors), kResourceExhausted (no thread).
Result<std::unique_ptr<Resolver>> start_resolver(const ResolverOptions& options, Clock& clock, MetricsRegistry& metrics);

}  // namespace darkroom
