#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/core/row_error.h"
#include "darkroom/io/address_policy.h"

namespace darkroom {

struct FetchOptions {
  int num_concurrent = 256;                      ///< Transfers on the wire at once; also the connections that are kept.
  std::chrono::milliseconds timeout{20'000};     ///< Total deadline of a URL: name look-up, redirects, retries and waits between them.
  int num_retries = 2;                           ///< Further attempts after failures that may pass (see Fetcher).
  std::chrono::milliseconds first_backoff{500};  ///< Wait before the first retry, doubled for each further one; jittered by up to a half.
  int64_t max_body_bytes = 50'000'000;           ///< A longer body is kTooLarge.
  int64_t max_bytes_in_flight = 256'000'000;     ///< Body bytes held: those arriving and those of replies not yet taken.
  int max_redirects = 10;                        ///< One more is kTooManyRedirects.
  bool respect_noai = true;                      ///< X-Robots-Tag noai / noimageai gives kOptedOut, before the body is read.
  std::vector<AllowedNetwork> allow_private;     ///< Exceptions from the address policy.
  std::string user_agent = {};                   ///< Empty: "darkroom/VERSION".
  std::string certificate_authorities = {};      ///< PEM file of trusted roots; empty: the system's.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Open files that a Fetcher of this concurrency asks of the process: each place may hold a connection and the pair of sockets of a
/// name look-up; 64 more are the program's own.
int64_t descriptors_needed(int num_concurrent);

struct FetchRequest {
  uint64_t id = 0;  ///< Comes back in the reply.
  std::string url;
};

struct FetchReply {
  uint64_t id;
  RowResult<std::string> body;    ///< The bytes exactly as served (no content decoding), or why there are none.
  std::string final_url = {};     ///< After redirects; empty when no request was sent.
  std::string content_type = {};  ///< As the server says; empty if it says nothing.
  int http_status = 0;            ///< Of the last response; 0 if none came.
  int num_retries = 0;
  int64_t num_bytes = 0;  ///< Body bytes received over all attempts.
};

struct FetchStats {
  int64_t num_attempts = 0;     ///< Requests started, redirects not counted.
  int64_t num_connections = 0;  ///< Sockets opened.
  int64_t num_refused = 0;      ///< Connections that the address policy refused.
  int64_t num_retries = 0;
  int64_t num_bytes = 0;        ///< Body bytes received.
  int64_t bytes_in_flight = 0;  ///< Held now.
  int64_t peak_bytes_in_flight = 0;
  int num_active = 0;  ///< Transfers on the wire now.
};

/// Turns URLs into bytes: the only code that opens sockets to listed hosts. One thread of its own drives all transfers.
///
/// Safety: http and https only, no user names in URLs, no proxies, cookies, netrc or credentials, certificates verified.
/// Every connection, those of redirects too, is checked against the address policy on the very socket address that is
/// about to be connected.
///
/// Failures: kBadUrl, kDns, kConnect, kTls, kTimeout, kHttpStatus, kTooManyRedirects, kBlockedHost, kTooLarge,
/// kTruncated, kOptedOut. Retried: kConnect (also a connection that breaks before an answer), kTruncated, 429 and 5xx;
/// Retry-After is obeyed, and a wait that would pass the deadline is not begun.
///
/// Bounds: at most max_bytes_in_flight body bytes are held, plus max_body_bytes for the one transfer that may always
/// finish. The others pause at the limit (their deadlines with them) until replies are taken. At most num_outstanding()
/// requests are inside (queued, under way, or replies not taken).
///
/// Thread safety: every member may be called by any thread at any time.
class Fetcher {
 public:
  /// Errors: kInvalidArgument (options), kFailedPrecondition (too few open files allowed), kNotFound (no trusted roots).
  static Result<std::unique_ptr<Fetcher>> create(FetchOptions options);
  /// Cancels and joins the thread.
  ~Fetcher();
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  /// Queues a request. Blocks while num_outstanding() requests are inside, so a thread that submits and takes itself
  /// must not let more than that pile up. False after close() or cancel().
  bool submit(FetchRequest request);
  /// The next finished request, in any order. Blocks; nullopt when closed and drained, or cancelled.
  std::optional<FetchReply> next();
  /// No more requests; those inside are finished.
  void close();
  /// Drops everything; blocked calls return at once.
  void cancel();

  int num_outstanding() const;
  FetchStats stats() const;

 private:
  class Loop;
  explicit Fetcher(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace darkroom
