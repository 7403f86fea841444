#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "darkroom/core/result.h"
#include "loopback_hosts.h"
#include "web_answer.h"
#include "web_routes.h"

namespace darkroom {

/// Serves routes on loopback: one thread, epoll, non-blocking sockets.
class WebServer {
 public:
  explicit WebServer(WebRoutes& routes) : routes_(routes) {}
  ~WebServer();

  Status start(uint16_t port, LoopbackHosts hosts);
  void stop();

  uint16_t port() const { return port_; }
  int64_t num_requests() const { return num_requests_; }
  int64_t num_connections() const { return num_connections_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Connection {
    int socket = -1;
    std::string received;
    bool is_answering = false;
    bool wants_close = false;  // By the client.
    bool wants_writable = false;
    TroubledAnswer answer;
    size_t num_sent = 0;  // Of answer.bytes.
    int file = -1;
    int64_t file_sent = 0;
    Clock::time_point timer_at{};
  };
  enum class Progress { kDone, kBlocked, kFailed };

  void run();
  void accept_all();
  void on_event(Connection& connection, uint32_t events);
  void on_timer(Connection& connection);
  bool receive(Connection& connection);
  bool answer_received(Connection& connection);
  bool answer_next(Connection& connection);
  TroubledAnswer answer_to(std::string_view request, bool& wants_close);
  bool advance(Connection& connection);
  Progress send_bytes(Connection& connection);
  Progress send_file(Connection& connection);
  bool finish_answer(Connection& connection);
  void set_timer(Connection& connection, std::chrono::milliseconds wait);
  void watch(Connection& connection, bool wants_writable);
  void drop(Connection& connection, bool by_reset);

  WebRoutes& routes_;
  int listener_ = -1;
  int epoll_ = -1;
  int stop_event_ = -1;
  uint16_t port_ = 0;
  std::atomic<int64_t> num_requests_{0};
  std::atomic<int64_t> num_connections_{0};
  std::map<int, std::unique_ptr<Connection>> connections_;  // By socket; the thread's own.
  std::set<std::pair<Clock::time_point, int>> timers_;
  std::jthread thread_;
};

}  // namespace darkroom
