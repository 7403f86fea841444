#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace darkroom {

/// A name server on 127.0.0.1, over UDP and TCP on one port, that answers each question as a test says (RFC 1035, section 4).
class StubDns {
 public:
  static constexpr uint16_t kA = 1, kCname = 5, kAaaa = 28;
  struct Question {
    std::string name;  ///< In small letters, without a dot at its end.
    uint16_t type = 0;
    bool is_tcp = false;
    int number = 0;  ///< How often this name and type were asked for before.
  };
  struct Record {
    std::string name;
    uint16_t type = 0;
    uint32_t ttl = 0;
    std::string value;  ///< An address in text, or a name.
  };
  struct Answer {
    int rcode = 0;  ///< 2 SERVFAIL, 3 NXDOMAIN, 5 REFUSED.
    std::vector<Record> records = {};
    bool is_silent = false;
    bool is_truncated = false;
  };
  using Script = std::function<Answer(const Question&)>;

  explicit StubDns(Script script) : script_(std::move(script)) {
    stop_event_ = eventfd(0, EFD_CLOEXEC);
    for (int i = 0; i < 100 && !open(); ++i) {
    }
    EXPECT_GE(tcp_, 0) << "no port is free for both";
    thread_ = std::jthread([this] { serve(); });
  }
  ~StubDns() {
    const uint64_t one = 1;
    EXPECT_EQ(write(stop_event_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    thread_.join();
    for (const int descriptor : {udp_, tcp_, stop_event_}) {
      ::close(descriptor);
    }
  }
  StubDns(const StubDns&) = delete;
  StubDns& operator=(const StubDns&) = delete;

  std::string server() const { return "127.0.0.1:" + std::to_string(port_); }
  /// Questions for a name, of all types, or of all names.
  int num_questions(const std::string& name = "") const {
    const std::lock_guard lock(mutex_);
    int count = 0;
    for (const auto& [question, times] : asked_) {
      count += name.empty() || question.first == name ? times : 0;
    }
    return count;
  }

  static Record a(const std::string& name, const std::string& address, uint32_t ttl = 300) { return {name, kA, ttl, address}; }
  static Record aaaa(const std::string& name, const std::string& address, uint32_t ttl = 300) { return {name, kAaaa, ttl, address}; }
  static Record cname(const std::string& name, const std::string& target, uint32_t ttl = 300) { return {name, kCname, ttl, target}; }

 private:
  bool open() {
    udp_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(udp_, reinterpret_cast<sockaddr*>(&address), size), 0);
    getsockname(udp_, reinterpret_cast<sockaddr*>(&address), &size);
    tcp_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(tcp_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(tcp_, 16) != 0) {
      ::close(udp_);
      ::close(tcp_);
      tcp_ = -1;
      return false;
    }
    port_ = ntohs(address.sin_port);
    return true;
  }

  void serve() {
    for (;;) {
      pollfd waited[] = {{stop_event_, POLLIN, 0}, {udp_, POLLIN, 0}, {tcp_, POLLIN, 0}};
      poll(waited, 3, -1);
      if (waited[0].revents != 0) {
        return;
      }
      if (waited[1].revents != 0) {
        serve_udp();
      }
      if (waited[2].revents != 0) {
        serve_tcp();
      }
    }
  }

  void serve_udp() {
    char buffer[1'500];
    sockaddr_in from{};
    socklen_t size = sizeof from;
    const ssize_t num_bytes = recvfrom(udp_, buffer, sizeof buffer, 0, reinterpret_cast<sockaddr*>(&from), &size);
    if (num_bytes > 12) {
      const std::string reply = reply_to({buffer, static_cast<size_t>(num_bytes)}, false);
      if (!reply.empty()) {
        sendto(udp_, reply.data(), reply.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
      }
    }
  }

  // One question a connection.
  void serve_tcp() {
    const int connection = accept(tcp_, nullptr, nullptr);
    uint8_t length[2] = {};
    std::string question;
    if (recv(connection, length, 2, MSG_WAITALL) == 2) {
      question.resize(static_cast<size_t>(length[0]) << 8 | length[1]);
      if (recv(connection, question.data(), question.size(), MSG_WAITALL) == static_cast<ssize_t>(question.size()) &&
          question.size() > 12) {
        const std::string reply = reply_to(question, true);
        const std::string whole = number(static_cast<uint32_t>(reply.size()), 2) + reply;
        EXPECT_EQ(send(connection, whole.data(), whole.size(), MSG_NOSIGNAL), static_cast<ssize_t>(whole.size()));
      }
    }
    ::close(connection);
  }

  static std::string number(uint32_t value, int num_bytes) {
    std::string bytes;
    for (int i = num_bytes - 1; i >= 0; --i) {
      bytes += static_cast<char>(value >> (8 * i));
    }
    return bytes;
  }

  static std::string labels(const std::string& name) {
    std::string bytes;
    for (size_t at = 0; at < name.size();) {
      const size_t end = std::min(name.find('.', at), name.size());
      bytes += static_cast<char>(end - at);
      bytes += name.substr(at, end - at);
      at = end + 1;
    }
    return bytes + '\0';
  }

  static std::string data_of(const Record& record) {
    if (record.type == kCname) {
      return labels(record.value);
    }
    char address[16];
    EXPECT_EQ(inet_pton(record.type == kA ? AF_INET : AF_INET6, record.value.c_str(), address), 1) << record.value;
    return {address, record.type == kA ? 4u : 16u};
  }

  std::string reply_to(const std::string& question, bool is_tcp) {
    Question asked;
    asked.is_tcp = is_tcp;
    size_t at = 12;
    while (at < question.size() && question[at] != 0) {
      const auto length = static_cast<size_t>(static_cast<uint8_t>(question[at]));
      asked.name += (asked.name.empty() ? "" : ".") + question.substr(at + 1, length);
      at += 1 + length;
    }
    asked.type = static_cast<uint16_t>(static_cast<uint8_t>(question.at(at + 1)) << 8 | static_cast<uint8_t>(question.at(at + 2)));
    {
      const std::lock_guard lock(mutex_);
      asked.number = asked_[{asked.name, asked.type}]++;
    }
    const Answer answer = script_(asked);
    if (answer.is_silent) {
      return "";
    }
    std::string records;
    for (const Record& record : answer.records) {
      const std::string data = data_of(record);
      records += labels(record.name) + number(record.type, 2) + number(1, 2) + number(record.ttl, 4) +
                 number(static_cast<uint32_t>(data.size()), 2) + data;
    }
    const uint32_t flags = 0x8180u | (answer.is_truncated ? 0x0200u : 0u) | static_cast<uint32_t>(answer.rcode);
    return question.substr(0, 2) + number(flags, 2) + number(1, 2) + number(static_cast<uint32_t>(answer.records.size()), 2) +
           number(0, 4) + question.substr(12, at + 5 - 12) + records;
  }

  Script script_;
  int udp_ = -1, tcp_ = -1, stop_event_ = -1;
  uint16_t port_ = 0;
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, uint16_t>, int> asked_;
  std::jthread thread_;
};

}  // namespace darkroom
