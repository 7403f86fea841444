#include "web_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace darkroom {
namespace {

constexpr size_t kMaxRequestBytes = 32'768;
constexpr std::chrono::milliseconds kResetDelay{20};  // Lets the client read what came before the reset.

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// Whether a request's head has the line "NAME: VALUE".
bool has_header(std::string_view head, std::string_view name, std::string_view value) {
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    if (line.size() > name.size() && line[name.size()] == ':' && equal_ignoring_case(line.substr(0, name.size()), name)) {
      const size_t at = line.find_first_not_of(' ', name.size() + 1);
      return value.empty() || (at != std::string_view::npos && equal_ignoring_case(line.substr(at), value));
    }
  }
  return false;
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK; }

}  // namespace

Status WebServer::start(uint16_t port, LoopbackHosts hosts) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int on = 1;
  setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const bool is_on_device = hosts == LoopbackHosts::kAll && setsockopt(listener_, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2) == 0;
  address.sin_addr.s_addr = htonl(is_on_device ? INADDR_ANY : INADDR_LOOPBACK);
  address.sin_port = htons(port);
  socklen_t length = sizeof address;
  if (listener_ < 0 || bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 || listen(listener_, 4096) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return Status::unavailable("cannot listen on 127.0.0.1 (port, reason):", port, std::strerror(errno));
  }
  port_ = ntohs(address.sin_port);
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  stop_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (const int descriptor : {listener_, stop_event_}) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = descriptor}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event) != 0) {
      return Status::unavailable("cannot open the web server's event queue:", std::strerror(errno));
    }
  }
  thread_ = std::jthread([this] { run(); });
  return Status::ok();
}

WebServer::~WebServer() {
  stop();
  for (const int descriptor : {listener_, epoll_, stop_event_}) {
    if (descriptor >= 0) {
      ::close(descriptor);
    }
  }
}

void WebServer::stop() {
  if (!thread_.joinable()) {
    return;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(stop_event_, &one, sizeof one);
  thread_.join();
  while (!connections_.empty()) {
    drop(*connections_.begin()->second, false);
  }
  ::close(std::exchange(listener_, -1));
}

void WebServer::run() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);  // sendfile to a closed connection raises it.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::array<epoll_event, 256> events;
  while (true) {
    int wait_ms = -1;
    if (!timers_.empty()) {
      const auto wait = std::chrono::ceil<std::chrono::milliseconds>(timers_.begin()->first - Clock::now()).count();
      wait_ms = static_cast<int>(std::clamp<int64_t>(wait, 0, 60'000));
    }
    const int num_events = epoll_wait(epoll_, events.data(), events.size(), wait_ms);
    for (int i = 0; i < num_events; ++i) {
      const int descriptor = events[i].data.fd;
      if (descriptor == stop_event_) {
        return;
      }
      if (descriptor == listener_) {
        accept_all();
      } else if (const auto found = connections_.find(descriptor); found != connections_.end()) {
        on_event(*found->second, events[i].events);
      }
    }
    const auto now = Clock::now();
    while (!timers_.empty() && timers_.begin()->first <= now) {
      const int descriptor = timers_.begin()->second;
      timers_.erase(timers_.begin());
      on_timer(*connections_.at(descriptor));
    }
  }
}

void WebServer::accept_all() {
  while (true) {
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      return;
    }
    const int on = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto connection = std::make_unique<Connection>();
    connection->socket = socket;
    epoll_event event{.events = EPOLLIN, .data = {.fd = socket}};
    epoll_ctl(epoll_, EPOLL_CTL_ADD, socket, &event);
    connections_.emplace(socket, std::move(connection));
    ++num_connections_;
  }
}

void WebServer::on_event(Connection& connection, uint32_t events) {
  bool is_alive = (events & EPOLLERR) == 0;
  if (is_alive && (events & (EPOLLIN | EPOLLHUP)) != 0) {
    is_alive = receive(connection);
  }
  if (is_alive && connection.is_answering && (events & EPOLLOUT) != 0) {
    is_alive = advance(connection);
  }
  if (!is_alive || !answer_received(connection)) {
    drop(connection, false);
  }
}

void WebServer::on_timer(Connection& connection) {
  connection.timer_at = {};
  if (connection.answer.then == TroubledAnswer::Then::kReset) {
    drop(connection, true);
  } else if (!advance(connection) || !answer_received(connection)) {
    drop(connection, false);
  }
}

// Answers what was asked meanwhile; false when the connection is over.
bool WebServer::answer_received(Connection& connection) {
  while (!connection.is_answering && connection.received.find("\r\n\r\n") != std::string::npos) {
    if (!answer_next(connection)) {
      return false;
    }
  }
  return true;
}

bool WebServer::receive(Connection& connection) {
  std::array<char, 16'384> buffer;
  while (true) {
    const ssize_t num_bytes = recv(connection.socket, buffer.data(), buffer.size(), 0);
    if (num_bytes < 0) {
      return would_block() || errno == EINTR;
    }
    if (num_bytes == 0) {
      return false;
    }
    connection.received.append(buffer.data(), static_cast<size_t>(num_bytes));
    const bool is_http = connection.received[0] >= 'A' && connection.received[0] <= 'Z';  // Not, say, a TLS greeting.
    if (!is_http || connection.received.size() > kMaxRequestBytes) {
      return false;
    }
    if (static_cast<size_t>(num_bytes) < buffer.size()) {
      return true;
    }
  }
}

bool WebServer::answer_next(Connection& connection) {
  const size_t end = connection.received.find("\r\n\r\n") + 4;
  connection.answer = answer_to(std::string_view(connection.received).substr(0, end), connection.wants_close);
  connection.received.erase(0, end);
  connection.is_answering = true;
  connection.num_sent = 0;
  connection.file_sent = 0;
  if (!connection.answer.file_path.empty()) {
    connection.file = open(connection.answer.file_path.c_str(), O_RDONLY | O_CLOEXEC);
    if (connection.file < 0) {
      return false;
    }
  }
  return advance(connection);
}

TroubledAnswer WebServer::answer_to(std::string_view request, bool& wants_close) {
  ++num_requests_;
  const size_t line_end = request.find("\r\n");
  const std::string_view line = request.substr(0, line_end);
  const std::string_view headers = request.substr(line_end + 2);
  const size_t path_at = line.find(' ') + 1;
  const size_t version_at = line.rfind(' ') + 1;
  wants_close = has_header(headers, "connection", "close");
  const bool has_body = has_header(headers, "content-length", "") || has_header(headers, "transfer-encoding", "");
  if (!line.starts_with("GET /") || version_at <= path_at || line.substr(version_at) != "HTTP/1.1" || has_body) {
    wants_close = true;
    return plain_answer(400, "Connection: close\r\n", "only GET of HTTP/1.1 without a body\n");
  }
  const std::string_view path = line.substr(path_at, version_at - path_at - 1);
  const auto route = routes_.find(path);
  return route == routes_.end() ? plain_answer(404, "", "no such route\n") : answer_request(route->second, path);
}

// Goes on with the answer; false when the connection is over.
bool WebServer::advance(Connection& connection) {
  while (true) {
    Progress progress = send_bytes(connection);
    if (progress == Progress::kDone && connection.file >= 0) {
      progress = send_file(connection);
    }
    if (progress != Progress::kDone) {
      return progress == Progress::kBlocked;
    }
    if (connection.answer.then != TroubledAnswer::Then::kRepeat) {
      return finish_answer(connection);
    }
    connection.answer.bytes = connection.answer.repeated;
    connection.num_sent = 0;
  }
}

WebServer::Progress WebServer::send_bytes(Connection& connection) {
  const std::string& bytes = connection.answer.bytes;
  while (connection.num_sent < bytes.size()) {
    const bool file_follows = connection.answer.file_bytes > 0 && connection.answer.bytes_per_second == 0;
    const int more = file_follows ? MSG_MORE : 0;
    const ssize_t num_bytes =
        send(connection.socket, bytes.data() + connection.num_sent, bytes.size() - connection.num_sent, MSG_NOSIGNAL | more);
    if (num_bytes < 0) {
      if (!would_block()) {
        return Progress::kFailed;
      }
      watch(connection, true);
      return Progress::kBlocked;
    }
    connection.num_sent += static_cast<size_t>(num_bytes);
  }
  return Progress::kDone;
}

WebServer::Progress WebServer::send_file(Connection& connection) {
  const TroubledAnswer& answer = connection.answer;
  const bool is_slow = answer.bytes_per_second > 0;
  // A slow answer sends a tenth of a second's worth at a time, one byte at least.
  const int64_t step = is_slow ? std::max(1, answer.bytes_per_second / 10) : answer.file_bytes;
  while (connection.file_sent < answer.file_bytes) {
    off_t offset = connection.file_sent;
    const auto wanted = static_cast<size_t>(std::min(step, answer.file_bytes - connection.file_sent));
    const ssize_t num_bytes = sendfile(connection.socket, connection.file, &offset, wanted);
    if (num_bytes == 0 || (num_bytes < 0 && !would_block())) {
      return Progress::kFailed;
    }
    if (num_bytes < 0) {
      watch(connection, true);
      return Progress::kBlocked;
    }
    connection.file_sent += num_bytes;
    if (is_slow) {
      watch(connection, false);
      set_timer(connection, std::chrono::milliseconds(1000 * step / answer.bytes_per_second));
      return Progress::kBlocked;
    }
  }
  ::close(std::exchange(connection.file, -1));
  return Progress::kDone;
}

bool WebServer::finish_answer(Connection& connection) {
  watch(connection, false);
  switch (connection.answer.then) {
    case TroubledAnswer::Then::kReset:
      set_timer(connection, kResetDelay);
      return true;
    case TroubledAnswer::Then::kHang:
      return true;
    case TroubledAnswer::Then::kClose:
      return false;
    default:
      connection.is_answering = false;
      return !connection.wants_close;
  }
}

void WebServer::set_timer(Connection& connection, std::chrono::milliseconds wait) {
  timers_.erase({connection.timer_at, connection.socket});
  connection.timer_at = Clock::now() + wait;
  timers_.insert({connection.timer_at, connection.socket});
}

void WebServer::watch(Connection& connection, bool wants_writable) {
  if (connection.wants_writable == wants_writable) {
    return;
  }
  connection.wants_writable = wants_writable;
  epoll_event event{.events = uint32_t{EPOLLIN} | (wants_writable ? uint32_t{EPOLLOUT} : 0), .data = {.fd = connection.socket}};
  epoll_ctl(epoll_, EPOLL_CTL_MOD, connection.socket, &event);
}

void WebServer::drop(Connection& connection, bool by_reset) {
  timers_.erase({connection.timer_at, connection.socket});
  if (by_reset) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    setsockopt(connection.socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  if (connection.file >= 0) {
    ::close(connection.file);
  }
  ::close(connection.socket);
  connections_.erase(connection.socket);
}

}  // namespace darkroom
