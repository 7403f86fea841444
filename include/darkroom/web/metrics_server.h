#pragma once

#include <chrono>
#include <memory>
#include <string_view>
#include <thread>

#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/web/http_exchange.h"

namespace darkroom {

/// Reads the value of --metrics-port: "9100" (of 127.0.0.1), "0.0.0.0:9100", "[::1]:9100", "localhost:9100". Port 0: one that is free.
/// Errors: kInvalidArgument with the text.
Result<SocketAddress> parse_metrics_address(std::string_view text);

struct MetricsServerOptions {
  SocketAddress address = {};                        ///< As of parse_metrics_address.
  std::chrono::milliseconds request_timeout{5'000};  ///< From accepting a connection to the end of the request's headers.
  std::chrono::milliseconds reply_timeout{10'000};   ///< For a client to take its reply.
  int max_connections = 16;                          ///< One more ends the oldest.
  Status validate() const;                           ///< kInvalidArgument naming the first bad field.
};

/// Serves a registry's numbers to Prometheus: GET or HEAD of /metrics over HTTP/1.x, one request per connection, on a thread of its own.
/// Whatever a client does costs its own connection alone: a request is at most 8 KiB and has a deadline, so has the taking of the reply.
/// There is no TLS and nobody is asked who he is: the numbers hold no secret, and the address is loopback unless the user says otherwise.
class MetricsServer {
 public:
  static constexpr size_t kMaxRequestBytes = 8192;

  /// Listens and starts the thread. `metrics` outlives the server. Errors: kInvalidArgument (options), kFailedPrecondition (the port is
  /// taken, may not be used, or the address is none of this machine), kResourceExhausted (no descriptor, no thread).
  static Result<std::unique_ptr<MetricsServer>> start(MetricsRegistry& metrics, const MetricsServerOptions& options);
  /// Ends the connections and the thread; a scrape that is being computed is waited for.
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  /// Where it listens, with the port that it got.
  const SocketAddress& address() const { return address_; }

 private:
  class Loop;
  MetricsServer(SocketAddress address, std::unique_ptr<Loop> loop);

  SocketAddress address_;
  std::unique_ptr<Loop> loop_;
  std::jthread thread_;
};

}  // namespace darkroom
