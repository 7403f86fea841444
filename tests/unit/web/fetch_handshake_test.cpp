// Servers whose connections end within the TLS handshake, and fetchers that end before they have begun.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "fetch_web.h"

namespace darkroom {
namespace {

/// Takes the beginning of each handshake and then closes or resets the connection, or sends what no TLS is.
class HandshakeServer {
 public:
  enum class End { kClose, kReset, kNoTls };

  explicit HandshakeServer(End end) : end_(end), listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::jthread([this] { serve(); });
  }
  ~HandshakeServer() {
    is_stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  HandshakeServer(const HandshakeServer&) = delete;
  HandshakeServer& operator=(const HandshakeServer&) = delete;

  uint16_t port() const { return port_; }

 private:
  void serve() {
    while (!is_stopping_) {
      const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) {
        continue;
      }
      char hello[4096];
      EXPECT_GT(recv(connection, hello, sizeof hello, 0), 0);
      if (end_ == End::kReset) {
        const linger at_once{.l_onoff = 1, .l_linger = 0};
        EXPECT_EQ(setsockopt(connection, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
      } else if (end_ == End::kNoTls) {
        EXPECT_EQ(send(connection, "HTTP/1.1 400 No\r\n\r\n", 19, MSG_NOSIGNAL), 19);
      }
      ::close(connection);
    }
  }

  const End end_;
  const int listener_;
  uint16_t port_ = 0;
  std::atomic<bool> is_stopping_ = false;
  std::jthread thread_;
};

FetchReply fetch_from(HandshakeServer::End end) {
  const HandshakeServer server(end);
  FetchWeb web;
  web.start();
  FetchOptions options = web.options();
  options.allow_private.push_back(*AllowedNetwork::parse(fmt::format("127.0.0.1:{}", server.port())));
  return fetch_one(options, fmt::format("https://127.0.0.1:{}/a.jpg", server.port()));
}

TEST(fetch_handshake, that_breaks_off_is_a_broken_connection_and_tried_again) {
  for (const auto end : {HandshakeServer::End::kClose, HandshakeServer::End::kReset}) {
    const FetchReply reply = fetch_from(end);
    EXPECT_EQ(outcome(reply), "connect") << reply.body.error().detail;
    EXPECT_EQ(reply.num_retries, 2);
  }
}

TEST(fetch_handshake, with_what_speaks_no_tls_is_final) {
  const FetchReply reply = fetch_from(HandshakeServer::End::kNoTls);
  EXPECT_EQ(outcome(reply), "tls") << reply.body.error().detail;
  EXPECT_EQ(reply.num_retries, 0);
}

TEST(fetch_end, a_fetcher_may_end_as_soon_as_it_exists) {
  FetchWeb web;
  web.start();
  for (int i = 0; i < 500; ++i) {
    make_fetcher(web.options()).reset();
  }
}

}  // namespace
}  // namespace darkroom
