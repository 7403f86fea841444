#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <variant>

#include "darkroom/core/result.h"
#include "darkroom/web/http_exchange.h"

namespace darkroom {

/// A whole request as the server read it.
struct HttpQuestion {
  std::string method;   ///< "GET".
  std::string path;     ///< Without the query, as sent: "/v1/models".
  std::string query;    ///< What follows the first "?", as sent.
  HttpHeaders headers;  ///< Names in lower case.
  std::string body;
  std::shared_ptr<const void> held = {};  ///< Room among the bodies of all connections, let go with the last copy.

  /// The value of the first field of this name (lower case); empty where there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  HttpHeaders headers = {};
  std::shared_ptr<const void> held = {};  ///< Let go once the reply is sent, or nobody is left to send it to.
};

/// A body that comes about while it is sent. The server asks for a piece once the client has taken the one before, so a slow client never
/// has more than one piece in memory: what it has not been asked for yet a stream may merge or drop. Destroyed once it has ended or the
/// client is gone, by any thread.
class ReplyStream {
 public:
  struct Piece {
    std::string bytes;
    bool is_last = false;
  };
  virtual ~ReplyStream() = default;
  /// The next piece. Nothing: there is none yet, and `wake` is to be called as soon as there may be one, by any thread, also within this
  /// call; a later call's `wake` takes the place of this one's, which may still be called. Asked by a thread that makes replies, never by
  /// two at a time.
  virtual std::optional<Piece> next(std::function<void()> wake) = 0;
};

/// A reply whose head is sent at once and whose body comes piece by piece: chunked in HTTP/1.1, up to the connection's end in 1.0.
struct StreamedReply {
  int status = 200;
  std::string type;
  HttpHeaders headers = {};
  std::shared_ptr<ReplyStream> stream;    ///< Shared by the connection and the thread that asks it.
  std::string idle_bytes = {};            ///< Sent when there was nothing else to send for HttpServerOptions::idle_period; empty: nothing.
  std::shared_ptr<const void> held = {};  ///< As HttpReply's.
};

/// Makes a reply. Run by a thread that only such makers wait for, because encoding pictures takes time; not at all once the client is gone.
using ReplyMaker = std::function<HttpReply()>;
using AnyReply = std::variant<HttpReply, ReplyMaker, StreamedReply>;

/// What answers questions. The server's I/O thread asks, one question at a time, so both functions must be quick.
class HttpService {
 public:
  /// To be called once, from any thread; a call for a client that is gone, or a server that is, does nothing.
  using Answer = std::function<void(AnyReply)>;

  virtual ~HttpService() = default;
  /// Asked as soon as a request's head is there (`body` is empty): what comes is the answer, and the body is not read.
  virtual std::optional<HttpReply> refuse(const HttpQuestion& /*head*/) { return std::nullopt; }
  /// The largest body that a request with this head may have; HttpServerOptions::max_body_bytes holds in any case.
  virtual size_t max_body_bytes(const HttpQuestion& /*head*/) const { return SIZE_MAX; }
  /// A whole request that was not refused; its answer may come later. `gone` is requested when the client closes its connection before it
  /// has its answer, of a streamed one the end, by the I/O thread.
  virtual void handle(HttpQuestion question, std::stop_token gone, Answer answer) = 0;
};

/// Files in PEM from which a server has TLS.
struct TlsFiles {
  std::string certificate = {};  ///< The server's certificate first, then those by which it was signed.
  std::string key = {};          ///< Its private key, without a password.
  bool is_empty() const { return certificate.empty() && key.empty(); }
};

struct HttpServerOptions {
  SocketAddress address = {};
  TlsFiles tls = {};  ///< Without them connections are plain. SIGHUP has them read again.
  size_t max_header_bytes = 16'384;
  size_t max_body_bytes = 2'000'000;
  int64_t max_bodies_bytes = 256'000'000;  ///< Of all bodies that are read or wait, as they come; one that finds no room for more: 503.
  /// For TLS's handshake, for a connection's first byte, and for a head from its first byte to its end.
  std::chrono::milliseconds head_timeout{10'000};
  /// From a reply to the first byte of the next request. Longer than proxies keep a connection (60 s, mostly), so that none sends a request
  /// on one that was just closed.
  std::chrono::milliseconds keep_alive_timeout{75'000};
  std::chrono::milliseconds body_period{10'000};    ///< Of a body that is read: in each of them min_body_bytes must come, or its end.
  size_t min_body_bytes = 100'000;                  ///< A body may take its time, but a client that drips must not keep its place.
  std::chrono::milliseconds reply_timeout{30'000};  ///< For a client to take its reply, or a piece of one that is streamed.
  std::chrono::milliseconds idle_period{10'000};    ///< Of a streamed reply without a piece, after which its idle_bytes are sent.
  int max_connections = 512;                        ///< One more ends one that asks nothing, else sends a body, else takes a reply.
  Status validate() const;                          ///< kInvalidArgument naming the first bad field.
};

/// HTTP/1.x over Boost.Beast: one thread for all connections and two that make replies. What could be read in two ways (Content-Length
/// beside Transfer-Encoding, two of them, two Hosts, a coding other than chunked, bad chunks) is answered 400 and ends the connection, too
/// large heads 431 and bodies 413, what began and does not go on 408. Trailers are dropped. TLS 1.2 and later, where it has files for it.
/// Thread safety: any thread.
class HttpServer {
 public:
  /// Listens and starts the threads. `service` outlives the server. Errors: kInvalidArgument (options, files of TLS), kFailedPrecondition
  /// (the address is taken, none of this machine's, or not allowed), kResourceExhausted (no descriptor, no thread).
  static Result<std::unique_ptr<HttpServer>> start(HttpService& service, const HttpServerOptions& options);
  /// Closes every connection and ends the threads.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Where it listens, with the port that it got.
  const SocketAddress& address() const { return address_; }
  /// From now on every reply ends its connection.
  void drain();
  /// Waits until no question is open: each is answered and the reply sent, or its client gone. False after `patience`.
  bool await_quiet(std::chrono::milliseconds patience) const;

 private:
  struct State;
  HttpServer(SocketAddress address, std::shared_ptr<State> state);

  SocketAddress address_;
  std::shared_ptr<State> state_;  // Shared with answers that may come after the server's end.
};

}  // namespace darkroom
