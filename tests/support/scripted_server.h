#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace darkroom {

/// A server on 127.0.0.1 that answers each request with the very bytes that a test gives it, right or wrong. One thread per connection.
class ScriptedServer {
 public:
  struct Request {
    std::string head;  ///< As it came, with the empty line.
    std::string body;
    int connection = 0;  ///< 0, 1, ... in the order of connecting.
  };
  struct Answer {
    std::string bytes;
    enum class Then { kNext, kClose, kReset, kHang } then = Then::kNext;  ///< kHang: until the other side closes.
  };
  using Script = std::function<Answer(const Request&)>;

  explicit ScriptedServer(Script script) : script_(std::move(script)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 128), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepting_ = std::jthread([this] { accept_all(); });
  }
  ~ScriptedServer() {
    is_stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    accepting_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int connection : connections_) {
        shutdown(connection, SHUT_RDWR);
      }
    }
    serving_.clear();
    ::close(listener_);
  }
  ScriptedServer(const ScriptedServer&) = delete;
  ScriptedServer& operator=(const ScriptedServer&) = delete;

  uint16_t port() const { return port_; }
  int num_connections() const { return num_connections_; }
  std::vector<Request> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void accept_all() {
    while (!is_stopping_) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) {
        continue;
      }
      const std::lock_guard lock(mutex_);
      connections_.push_back(connection);
      serving_.emplace_back([this, connection, number = num_connections_++] { serve(connection, number); });
    }
  }

  static bool read_more(int connection, std::string& received) {
    char buffer[65'536];
    const ssize_t num_bytes = recv(connection, buffer, sizeof buffer, 0);
    received.append(buffer, num_bytes > 0 ? static_cast<size_t>(num_bytes) : 0);
    return num_bytes > 0;
  }

  static size_t content_length(const std::string& head) {
    const size_t found = head.find("Content-Length: ");
    size_t length = 0;
    if (found != std::string::npos) {
      std::from_chars(head.data() + found + 16, head.data() + head.size(), length);
    }
    return length;
  }

  void serve(int connection, int number) {
    std::string received;
    for (bool goes_on = true; goes_on;) {
      size_t end = 0;
      while ((end = received.find("\r\n\r\n")) == std::string::npos && goes_on) {
        goes_on = read_more(connection, received);
      }
      if (!goes_on) {
        break;
      }
      Request request{received.substr(0, end + 4), "", number};
      const size_t length = content_length(request.head);
      while (received.size() < end + 4 + length && goes_on) {
        goes_on = read_more(connection, received);
      }
      request.body = received.substr(end + 4, length);
      received.erase(0, end + 4 + length);
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      goes_on = goes_on && answer(connection, script_(request));
    }
    {
      const std::lock_guard lock(mutex_);
      std::erase(connections_, connection);
    }
    ::close(connection);
  }

  static bool answer(int connection, const Answer& answer) {
    for (size_t num_sent = 0; num_sent < answer.bytes.size();) {
      const ssize_t num_bytes = send(connection, answer.bytes.data() + num_sent, answer.bytes.size() - num_sent, MSG_NOSIGNAL);
      if (num_bytes <= 0) {
        return false;
      }
      num_sent += static_cast<size_t>(num_bytes);
    }
    if (answer.then == Answer::Then::kHang) {
      std::string ignored;
      while (read_more(connection, ignored)) {
      }
    }
    if (answer.then == Answer::Then::kReset) {
      const linger at_once{1, 0};
      setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    }
    return answer.then == Answer::Then::kNext;
  }

  Script script_;
  int listener_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::atomic<int> num_connections_{0};
  mutable std::mutex mutex_;
  std::vector<int> connections_;
  std::vector<Request> requests_;
  std::list<std::jthread> serving_;
  std::jthread accepting_;
};

}  // namespace darkroom
