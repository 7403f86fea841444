#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "darkroom/core/body_memory.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/core/row_error.h"
#include "darkroom/web/address_policy.h"
#include "darkroom/web/network_watch.h"
#include "darkroom/web/opt_out.h"
#include "darkroom/web/resolver.h"

namespace darkroom {

struct FetchOptions {
  int num_concurrent = 256;                      ///< Transfers that make progress at once; those that do not are apart (see Fetcher).
  std::chrono::milliseconds timeout{20'000};     ///< Total deadline of a URL: look-ups, redirects, retries and back-offs, not pauses.
  int num_retries = 2;                           ///< Further attempts after failures that may pass (see Fetcher).
  std::chrono::milliseconds first_backoff{500};  ///< Wait before the first retry, doubled for each further one; 50 to 100 % of it.
  int64_t max_body_bytes = 50'000'000;           ///< A longer body is kTooLarge.
  int64_t max_bytes_in_flight = 256'000'000;     ///< Body bytes held: those arriving and those of replies not yet taken.
  BodyMemory* memory = nullptr;                  ///< Of the caller, holds the bodies instead (see Fetcher); outlives the fetcher.
  int max_redirects = 10;                        ///< One more is kTooManyRedirects.
  OptOutRules respect = {};                      ///< Signals of servers that give kOptedOut, before the body is read.
  /// Asked about each hop of a row (UrlHop::url) before that is asked for: true gives kDenied. Called by the fetcher's thread, computes
  /// little and does not throw.
  std::function<bool(const std::string& url)> denies = {};
  std::vector<AllowedNetwork> allow_private;  ///< Exceptions from the address policy.
  std::string user_agent = {};                ///< Empty: "darkroom/VERSION".
  std::string certificate_authorities = {};   ///< PEM file of trusted roots; empty: that of SSL_CERT_FILE, else the system's.

  int per_host = 16;                                ///< Transfers from one host at a time.
  double per_host_rps = 0;                          ///< Requests begun a second and host, evenly spaced; 0: no limit.
  std::chrono::seconds max_park{600};               ///< How long a row may wait for its host besides its deadline; 0: not at all.
  std::chrono::milliseconds first_throttle{2'000};  ///< Pause of a host that says 429 without a time.
  std::set<uint16_t> ports = {80, 443};             ///< That public addresses may be asked at.
  int num_loops = 0;                                ///< Threads that carry transfers; a host belongs to one. 0: by the machine.
  ResolverOptions resolver = {};
  NetworkWatchOptions network = {};

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Open files that a Fetcher of this concurrency needs at least: one a transfer; 64 more are the program's own.
int64_t descriptors_needed(int num_concurrent);

struct FetchRequest {
  uint64_t id = 0;  ///< Comes back in the reply.
  std::string url;
  uint64_t order = 0;  ///< With FetchOptions::memory: the piece that the body is of.
};

struct FetchReply {
  uint64_t id;
  RowResult<std::string> body;          ///< The bytes exactly as served (no content decoding), or why there are none.
  int http_status = 0;                  ///< Of the last response; 0 if the last attempt had none.
  int num_retries = 0;                  ///< Attempts after the first, those after a pause of the host too; redirects are none.
  int64_t num_bytes = 0;                ///< Body bytes received over all attempts.
  std::chrono::nanoseconds on_wire{0};  ///< Time of all attempts, without what lay between them.
};

struct FetchStats {
  int64_t num_attempts = 0;     ///< Requests begun, to each address and each hop.
  int64_t num_connections = 0;  ///< Sockets opened.
  int64_t num_refused = 0;      ///< Hops that the address or port policy refused.
  int64_t num_retries = 0;
  int64_t num_bytes = 0;        ///< Body bytes received.
  int64_t bytes_in_flight = 0;  ///< Held now.
  int64_t peak_bytes_in_flight = 0;
  int num_active = 0;           ///< Rows on the wire now.
  int num_slow = 0;             ///< Of these, those that do not count as concurrent.
  int num_waiting = 0;          ///< Rows that wait for a place, a back-off or their host.
  bool is_network_out = false;  ///< Nothing starts or ends until this machine's network works again.
};

/// Turns URLs into bytes: the only code that opens sockets to listed hosts. One thread decides (HostScheduler, NetworkWatch), others
/// resolve names (Resolver) and carry transfers (HttpLoop).
///
/// Safety: http and https only, no user names in URLs, no proxies, cookies, netrc or credentials, certificates verified. Every hop, those
/// of redirects too, is resolved here; its port and all its addresses are checked, and the very address that was checked is connected to.
///
/// Failures: kBadUrl, kDns, kConnect, kTls, kTimeout, kHttpStatus, kTooManyRedirects, kBlockedHost, kTooLarge, kTruncated, kOptedOut,
/// kDenied.
/// Retried: kConnect (also a connection that breaks before an answer), kTruncated, a resolver in trouble, 5xx. A host that says 429, or 503
/// with Retry-After, is paused with all its rows, up to max_park a row; docs/fetch.md has the rules of hosts and of outages.
///
/// Places: a transfer that has made no progress (1 KiB, or a new state) for four times the usual time to a first byte (at first a second)
/// leaves its place to others until it makes some. Such slow ones are bounded by open files and kMaxPlaces in all. create() raises the
/// process's soft limit of open files.
///
/// Bounds: body bytes in transfers and untaken replies are at most max_bytes_in_flight, plus what the oldest transfer needs. The others
/// pause at the limit (their deadlines with them). At most num_outstanding() requests are inside (waiting, under way, or replies not
/// taken).
///
/// With a memory of the caller, each request's order is inside it from submit() until its reply has been taken or the fetcher is gone, and
/// the fetcher lets no order leave: after a reply the piece holds its body's bytes, or none where there is no body. A transfer is admitted
/// when it is granted what its body is expected to be, and the oldest piece always is. One that waits for more for half a second gives its
/// places and its bytes back and begins anew when it is granted all that it wanted. Requests are submitted in the order of their pieces,
/// or num_outstanding() never binds; else the oldest might stand outside.
///
/// Thread safety: every member may be called by any thread at any time.
class Fetcher {
 public:
  static constexpr int kMaxPlaces = 16'384;  ///< On the wire at once, unless num_concurrent is more.

  /// `metrics` (docs/metrics.md), when there are some, outlive the fetcher.
  /// Errors: kInvalidArgument (options), kFailedPrecondition (too few open files allowed), kNotFound (no trusted roots), kUnavailable,
  /// kResourceExhausted (descriptors, threads).
  static Result<std::unique_ptr<Fetcher>> create(FetchOptions options, MetricsRegistry* metrics = nullptr);
  /// Cancels and joins the threads.
  ~Fetcher();
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  /// Queues a request. Blocks while num_outstanding() requests are inside, so a thread that submits and takes itself
  /// must not let more than that pile up. False after close() or cancel(), or when the fetcher has failed.
  bool submit(FetchRequest request);
  /// The next finished request, in any order. Blocks; nullopt when closed and drained, cancelled, or failed.
  std::optional<FetchReply> next();
  /// Waits until more requests are of use: until fewer than two for each concurrent transfer have or want a place or have a reply that is
  /// not taken, and fewer than `max_beyond` (or that many) are beyond their host's own places. So a list that begins with many rows of one
  /// host is read on to those of others, but not without end. Those that no place would help (slow ones, back-offs, hosts in trouble) are
  /// not counted. False after cancel(), or when the fetcher has failed.
  bool wait_for_demand(int64_t max_beyond);
  /// No more requests; those inside are finished.
  void close();
  /// Drops everything; blocked calls return at once.
  void cancel();
  /// Why the fetcher has ended by itself: kInternal (a bug), kResourceExhausted. Ok: it has not.
  Status failure() const;

  int num_outstanding() const;
  FetchStats stats() const;

 private:
  class Engine;
  explicit Fetcher(std::unique_ptr<Engine> engine);

  std::unique_ptr<Engine> engine_;
};

}  // namespace darkroom
