#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/web/http_exchange.h"

namespace darkroom {

struct HttpLoopOptions {
  int num_kept_connections = 16'384;         ///< Above what is ever open: closing one at this limit costs a look at all of them.
  std::string certificate_authorities = {};  ///< PEM file of trusted roots; empty: that of SSL_CERT_FILE, else the system's.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// Carries out any number of HTTP exchanges at once, in one thread of its own: libcurl over epoll.
///
/// http and https, HTTP/1.1, certificates verified. No redirects, proxies (also none of the environment), cookies, netrc, credentials of a
/// URL, content or transfer decoding, requests for transfer codings. Connections are kept; one that was made to another address, or
/// for another host name, is never used.
///
/// Every exchange ends exactly once: `done` is called with its result after the last call of its sink. Sink, body and policy must live
/// until then. `done` is called in the loop's thread (or, after a failure of the loop, within begin()), holds no lock, may call every
/// member but the destructor, and does not throw.
///
/// Memory: an exchange under way has a receive buffer of 64 KB.
/// Thread safety: every member but the destructor may be called by any thread at any time.
class HttpLoop {
 public:
  /// `metrics` (docs/metrics.md: darkroom_http_*) outlives the loop.
  /// Errors: kInvalidArgument (options), kNotFound (no trusted roots), kUnavailable (no descriptors), kResourceExhausted (no thread).
  static Result<std::unique_ptr<HttpLoop>> start(const HttpLoopOptions& options, MetricsRegistry& metrics);
  /// Ends every exchange with kCancelled, then joins the thread. REQUIRES: not called within a callback.
  ~HttpLoop();
  HttpLoop(const HttpLoop&) = delete;
  HttpLoop& operator=(const HttpLoop&) = delete;

  /// Never blocks. `done` may be called before this returns.
  ExchangeId begin(HttpRequest request, HttpSink& sink, std::function<void(HttpResult)> done);
  /// Goes on with an exchange that its sink has paused. Nothing happens to one that is not paused or has ended.
  void resume(ExchangeId id);
  /// Ends an exchange with kCancelled, in whatever state it is. Nothing happens to one that has ended, or is about to.
  void cancel(ExchangeId id);
  /// Why the loop has ended by itself, which is a bug; ok while it works.
  Status failure() const;

 private:
  class Thread;
  explicit HttpLoop(std::unique_ptr<Thread> thread);

  std::unique_ptr<Thread> thread_;
};

}  // namespace darkroom
