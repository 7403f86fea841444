#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/web/address_policy.h"

namespace darkroom {

// One HTTP/1.1 request and its answer, as HttpLoop carries it out. Mechanism only: what may be asked of whom, what an answer means, and
// whether to ask again is decided by who makes the request.

/// One end of a connection. Thread safety: a value type.
struct SocketAddress {
  IpAddress ip;
  uint16_t port = 0;

  std::string to_string() const;  ///< "192.0.2.1:80", "[2001:db8::1]:80".
  sockaddr_storage to_sockaddr() const;
  /// Nothing for families other than IPv4 and IPv6.
  static std::optional<SocketAddress> from_sockaddr(const sockaddr& address);

  bool operator==(const SocketAddress& other) const {
    return ip.bytes == other.ip.bytes && ip.is_ipv4 == other.ip.is_ipv4 && port == other.port;
  }
};

/// Name and value of each header, in the order in which they are sent.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpLimits {
  std::chrono::milliseconds connect{10'000};  ///< Until the connection, TLS included, can take the request.
  std::chrono::milliseconds idle{20'000};     ///< Without a byte in either direction, once connected.
  std::chrono::milliseconds total{20'000};    ///< From the start on the wire to the last byte.
  int64_t max_header_bytes = 262'144;         ///< Of all header lines together, those of 1xx answers and trailers too.
  int64_t max_body_bytes = 50'000'000;        ///< Of a wanted body.
  int64_t max_dropped_bytes = 65'536;         ///< Of a body that is not wanted: reading so much of it keeps the connection.
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;  ///< http or https, normalised: it is sent as it is, dots and escapes too. No user name. A fragment is not sent.
  HttpHeaders headers = {};
  /// The only address that is connected to; Host, TLS' server name and the certificate stay the URL's. Nothing: the system resolves the
  /// name, for places that the user chose.
  std::optional<SocketAddress> connect_to = std::nullopt;
  /// Asked once more of the very address of each new connection. Null: everything is allowed. Outlives the exchange.
  const AddressPolicy* policy = nullptr;
  /// Sent with its Content-Length. The memory lives until the exchange has ended. Empty: none; PUT and POST send a length of 0.
  std::vector<std::span<const std::byte>> body = {};
  HttpLimits limits = {};
  bool needs_new_connection = false;  ///< Not one that was kept. Otherwise the request is sent again, once and unseen, when a kept
                                      ///< connection turns out to be closed before any byte of an answer.
  bool may_keep_connection = true;
};

/// Status and header lines of the final answer.
class HttpHead {
 public:
  int status = 0;
  std::optional<int64_t> content_length = std::nullopt;  ///< As announced; nothing for chunks.

  /// The value of the first header of this name, in any letter case, without blanks around it.
  std::optional<std::string_view> find(std::string_view name) const;
  /// Every header in its order; a folded line (RFC 9112, section 5.2) is one.
  void for_each(const std::function<void(std::string_view name, std::string_view value)>& visit) const;

  /// Adds a line as it came. Of the loop, and of tests.
  void add_line(std::string_view line);
  void clear();

 private:
  std::string lines_;  // Each ends with '\n'.
};

/// Takes the answer of one exchange. Called in the loop's thread: it computes little and never blocks. An exception ends the exchange with
/// kSinkFailed.
class HttpSink {
 public:
  virtual ~HttpSink() = default;

  enum class Want {
    kBody,
    kDrop,  ///< Not the body; a short one is read away, a long one costs the connection. The exchange ends as kAnswered either way.
    kStop,  ///< End now, as kStopped.
  };
  /// Called once, before any byte of the body.
  virtual Want headers(const HttpHead& head) = 0;

  enum class Take {
    kTaken,
    kPause,  ///< Not taken: they come again after HttpLoop::resume(). Meanwhile no time limit runs.
    kStop,   ///< End now, as kStopped.
  };
  /// The next bytes of the body, 1 to 16,384 of them, exactly as served: no content coding is decoded.
  virtual Take bytes(std::span<const std::byte> piece) = 0;
};

/// How an exchange ended.
enum class HttpEnd {
  kAnswered,           ///< A final status; the body is whole if it was wanted.
  kBadRequest,         ///< The request cannot be sent: its URL, method or headers.
  kUnresolved,         ///< The system found no address for the name. Never with connect_to.
  kRefusedAddress,     ///< The policy; no packet was sent.
  kConnectionRefused,  ///< By the host: an answer of a kind.
  kUnreachable,        ///< No route, or the connection could not be made for another reason.
  kConnectTimeout,
  kTls,              ///< Handshake or certificate.
  kBroken,           ///< The connection ended before the headers were complete.
  kTruncated,        ///< The connection ended within a wanted body.
  kIdleTimeout,      ///< HttpLimits::idle.
  kDeadline,         ///< HttpLimits::total.
  kNotHttp,          ///< The answer is no HTTP/1.x, or its transfer coding is none that we take (chunked alone).
  kHeadersTooLarge,  ///< HttpLimits::max_header_bytes, or one line of more than 100 KiB.
  kBodyTooLarge,     ///< Announced or counted.
  kStopped,          ///< By the sink.
  kSinkFailed,       ///< The sink threw.
  kCancelled,        ///< By cancel(), or the loop ended.
  kNoDescriptors,    ///< This process may open no more files.
  kInternal,         ///< A failure of libcurl or of the loop that says nothing of the web.
};

/// The name in snake_case, for metrics and logs.
std::string_view http_end_name(HttpEnd end);

/// Whether a broken network of this machine looks the same: unresolved, unreachable, not connected in time, connection lost, silence.
bool may_be_own_network(HttpEnd end);

/// Names an exchange of one loop; never used twice.
using ExchangeId = uint64_t;

struct HttpResult {
  ExchangeId id = 0;
  HttpEnd end = HttpEnd::kAnswered;
  std::string detail = {};                           ///< For people; empty when answered.
  HttpHead head = {};                                ///< Status 0 when none was complete. May be there with any end.
  int64_t num_bytes = 0;                             ///< Of the body, received.
  std::optional<SocketAddress> peer = std::nullopt;  ///< Of the connection that was used.

  // Since the start on the wire; nothing: it did not come so far.
  std::optional<std::chrono::microseconds> connected_after = std::nullopt;
  std::optional<std::chrono::microseconds> first_byte_after = std::nullopt;
  std::chrono::microseconds ended_after{0};
};

}  // namespace darkroom
