#include "darkroom/web/metrics_server.h"
#include "darkroom/web/listen_failure.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <exception>
#include <list>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"

namespace darkroom {
namespace {

using MetricsClock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kMaxUnreadBytes = 65'536;  // Taken from a client after its reply, so that closing does not reset what it still reads.
constexpr milliseconds kMaxLinger{1'000};
constexpr int kAcceptBacklog = 64;
constexpr milliseconds kAcceptPause{100};  // When there are no descriptors left.

constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::string_view kWordsType = "text/plain; charset=utf-8";

struct MetricsReply {
  std::string_view status;  ///< "200 OK".
  std::string_view type = kWordsType;
  std::string body = {};
  std::string_view more_headers = {};
};

std::string reply_bytes(const MetricsReply& reply, bool has_body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
      "Connection: close\r\n\r\n{}",
      reply.status, reply.type, reply.body.size(), reply.more_headers, has_body ? std::string_view(reply.body) : "");
}

MetricsReply scrape(MetricsRegistry& metrics) {
  try {
    return {.status = "200 OK", .type = kMetricsType, .body = metrics.to_prometheus()};
  } catch (const std::exception& failure) {  // A request is a boundary: the job goes on without this scrape.
    log_warning("metrics could not be collected: {}", failure.what());
    return {.status = "500 Internal Server Error", .body = "the metrics could not be collected; the job's log says why\n"};
  }
}

/// The reply to a request whose headers are complete; `line` is its first line.
std::string answer_request(std::string_view line, MetricsRegistry& metrics) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  const bool has_three_parts = first != std::string_view::npos && last > first + 1;
  if (!has_three_parts || !line.substr(last + 1).starts_with("HTTP/1.")) {
    return reply_bytes({.status = "400 Bad Request", .body = "this is no HTTP/1 request\n"}, true);
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const bool has_body = method != "HEAD";
  if (target.substr(0, target.find('?')) != "/metrics") {
    return reply_bytes({.status = "404 Not Found", .body = "the metrics are at /metrics\n"}, has_body);
  }
  if (method != "GET" && method != "HEAD") {
    return reply_bytes(
        {.status = "405 Method Not Allowed", .body = "the metrics can only be read\n", .more_headers = "Allow: GET, HEAD\r\n"}, true);
  }
  return reply_bytes(scrape(metrics), has_body);
}

/// Empty as long as the headers may still become complete.
std::string answer_received(std::string_view received, MetricsRegistry& metrics) {
  const size_t end = received.find("\r\n\r\n");
  const std::string_view head = received.substr(0, end);
  const bool is_text = std::ranges::all_of(head, [](unsigned char c) { return c >= 0x20 || c == '\r' || c == '\n' || c == '\t'; });
  if (!is_text) {
    return reply_bytes({.status = "400 Bad Request", .body = "this is no HTTP/1 request (is it HTTPS?)\n"}, true);
  }
  if (end != std::string_view::npos) {
    return answer_request(head.substr(0, head.find("\r\n")), metrics);
  }
  return received.size() < MetricsServer::kMaxRequestBytes
             ? std::string()
             : reply_bytes({.status = "431 Request Header Fields Too Large", .body = "a request here has at most 8 KiB\n"}, true);
}

}  // namespace

Result<SocketAddress> parse_metrics_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  std::string_view host = colon == std::string_view::npos ? "127.0.0.1" : text.substr(0, colon);
  const std::string_view digits = colon == std::string_view::npos ? text : text.substr(colon + 1);
  if (host == "localhost") {
    host = "127.0.0.1";
  }
  const bool is_bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const auto ip = IpAddress::parse(is_bracketed ? host.substr(1, host.size() - 2) : host);
  uint16_t port = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (!ip || ip->is_ipv4 == is_bracketed || failure != std::errc() || end != digits.data() + digits.size()) {
    return Status::invalid_argument("--metrics-port is PORT or ADDRESS:PORT, such as 9100, 0.0.0.0:9100 or [::1]:9100, got:", text);
  }
  return SocketAddress{.ip = *ip, .port = port};
}

Status MetricsServerOptions::validate() const {
  if (request_timeout < milliseconds(1) || reply_timeout < milliseconds(1)) {
    return Status::invalid_argument("time-outs of the metrics server must be at least 1 ms, got (request, reply, in ms):",
                                    request_timeout.count(), reply_timeout.count());
  }
  if (max_connections < 1 || max_connections > 1000) {
    return Status::invalid_argument("max_connections of the metrics server must be 1 to 1000:", max_connections);
  }
  return Status::ok();
}

/// Everything that the thread does. Descriptors belong to it.
class MetricsServer::Loop {
 public:
  Loop(MetricsRegistry& metrics, const MetricsServerOptions& options) : metrics_(metrics), options_(options) {}
  ~Loop() {
    for (const Connection& connection : connections_) {
      ::close(connection.descriptor);
    }
    for (const int descriptor : {listener_, wake_event_}) {
      if (descriptor >= 0) {
        ::close(descriptor);
      }
    }
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Returns where it listens.
  Result<SocketAddress> listen() {
    const ListenerWords words{.task = "serve metrics", .port_flag = "--metrics-port", .address_flag = "--metrics-port"};
    wake_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_event_ < 0) {
      return listen_failure(options_.address, errno, words);
    }
    DARKROOM_ASSIGN_OR_RETURN(const Listener listener, open_listener(options_.address, kAcceptBacklog, words));
    listener_ = listener.descriptor;
    return listener.address;
  }

  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_event_, &one, sizeof one);  // Full: it is awake anyway.
  }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> watched = watch();
      if (poll(watched.data(), watched.size(), milliseconds_to_next()) < 0 && errno != EINTR) {
        log_error("metrics are served no longer: waiting for clients failed: {}", std::generic_category().message(errno));
        return;
      }
      serve_all(watched);
      if (watched[1].revents != 0) {
        accept_one();
      }
    }
  }

 private:
  enum class Phase { kReading, kReplying, kEnding };
  struct Connection {
    int descriptor = -1;
    Phase phase = Phase::kReading;
    MetricsClock::time_point deadline{};
    std::string received = {};
    std::string reply = {};
    size_t num_sent = 0;
    size_t num_unread = 0;  ///< Taken and dropped after the reply.
  };

  /// The wake event, the listener, then the connections in their order.
  std::vector<pollfd> watch() const {
    const bool accepts = MetricsClock::now() >= accepts_after_;
    std::vector<pollfd> watched = {{wake_event_, POLLIN, 0}, {accepts ? listener_ : -1, POLLIN, 0}};
    for (const Connection& connection : connections_) {
      watched.push_back({connection.descriptor, static_cast<short>(connection.phase == Phase::kReplying ? POLLOUT : POLLIN), 0});
    }
    return watched;
  }

  int milliseconds_to_next() const {
    const MetricsClock::time_point now = MetricsClock::now();
    auto next = MetricsClock::time_point::max();
    for (const Connection& connection : connections_) {
      next = std::min(next, connection.deadline);
    }
    next = now < accepts_after_ ? std::min(next, accepts_after_) : next;
    if (next == MetricsClock::time_point::max()) {
      return -1;
    }
    return static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<milliseconds>(next - now).count()));
  }

  void serve_all(const std::vector<pollfd>& watched) {
    size_t i = 2;
    for (auto it = connections_.begin(); it != connections_.end(); ++i) {
      const bool is_ready = watched[i].revents != 0;
      const bool goes_on = is_ready ? serve(*it) : MetricsClock::now() < it->deadline;
      if (!goes_on) {
        ::close(it->descriptor);
      }
      it = goes_on ? std::next(it) : connections_.erase(it);
    }
  }

  /// False: the connection is over.
  bool serve(Connection& connection) {
    if (MetricsClock::now() >= connection.deadline) {
      return false;  // However busy it keeps us.
    }
    return connection.phase == Phase::kReplying ? send_some(connection) : read_some(connection);
  }

  bool read_some(Connection& connection) {
    char buffer[kMaxRequestBytes];
    const ssize_t num_bytes = recv(connection.descriptor, buffer, sizeof buffer, 0);
    if (num_bytes <= 0) {
      return num_bytes < 0 && (errno == EAGAIN || errno == EINTR);
    }
    if (connection.phase == Phase::kEnding) {
      connection.num_unread += static_cast<size_t>(num_bytes);
      return connection.num_unread < kMaxUnreadBytes;
    }
    connection.received.append(buffer, std::min(static_cast<size_t>(num_bytes), kMaxRequestBytes - connection.received.size()));
    connection.reply = answer_received(connection.received, metrics_);
    if (connection.reply.empty()) {
      return true;
    }
    connection.phase = Phase::kReplying;
    connection.deadline = MetricsClock::now() + options_.reply_timeout;
    return send_some(connection);
  }

  bool send_some(Connection& connection) {
    while (connection.num_sent < connection.reply.size()) {
      const ssize_t num_bytes = send(connection.descriptor, connection.reply.data() + connection.num_sent,
                                     connection.reply.size() - connection.num_sent, MSG_NOSIGNAL);
      if (num_bytes < 0) {
        return errno == EAGAIN || errno == EINTR;
      }
      connection.num_sent += static_cast<size_t>(num_bytes);
    }
    connection.phase = Phase::kEnding;
    connection.deadline = MetricsClock::now() + kMaxLinger;
    return shutdown(connection.descriptor, SHUT_WR) == 0;
  }

  void accept_one() {
    const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor < 0) {
      const bool is_passing = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      accepts_after_ = is_passing ? accepts_after_ : MetricsClock::now() + kAcceptPause;
      return;
    }
    if (connections_.size() >= static_cast<size_t>(options_.max_connections)) {
      ::close(connections_.front().descriptor);
      connections_.pop_front();
    }
    connections_.push_back({.descriptor = descriptor, .deadline = MetricsClock::now() + options_.request_timeout});
  }

  MetricsRegistry& metrics_;
  const MetricsServerOptions options_;
  int wake_event_ = -1;
  int listener_ = -1;
  MetricsClock::time_point accepts_after_{};
  std::list<Connection> connections_;  // The oldest first.
};

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(MetricsRegistry& metrics, const MetricsServerOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  auto loop = std::make_unique<Loop>(metrics, options);
  DARKROOM_ASSIGN_OR_RETURN(const SocketAddress address, loop->listen());
  try {
    return std::unique_ptr<MetricsServer>(new MetricsServer(address, std::move(loop)));
  } catch (const std::system_error& failure) {
    return Status::resource_exhausted("cannot start the thread that serves metrics (reason):", failure.what());
  }
}

MetricsServer::MetricsServer(SocketAddress address, std::unique_ptr<Loop> loop)
    : address_(address), loop_(std::move(loop)), thread_([running = loop_.get()](const std::stop_token& stop) { running->run(stop); }) {}

MetricsServer::~MetricsServer() {
  thread_.request_stop();
  loop_->wake();
  thread_.join();
}

}  // namespace darkroom
