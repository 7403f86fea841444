#include "darkroom/web/metrics_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/no_new_threads.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// One connection to the server, with waits of at most a minute.
class MetricsClient {
 public:
  explicit MetricsClient(const MetricsServer& server) {
    const sockaddr_storage place = server.address().to_sockaddr();
    socket_ = socket(place.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof(sockaddr_in)), 0);
  }
  ~MetricsClient() { ::close(socket_); }
  MetricsClient(const MetricsClient&) = delete;
  MetricsClient& operator=(const MetricsClient&) = delete;

  void send_text(const std::string& text) const {
    // The server may have closed already: what it answered is what counts.
    [[maybe_unused]] const ssize_t sent = send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  void half_close() const { shutdown(socket_, SHUT_WR); }

  /// Everything until the server closes.
  std::string receive_all() const {
    std::string received;
    for (;;) {
      pollfd watched{socket_, POLLIN, 0};
      if (poll(&watched, 1, 60'000) != 1) {
        ADD_FAILURE() << "the server neither answers nor closes";
        return received;
      }
      char buffer[65'536];
      const ssize_t num_bytes = recv(socket_, buffer, sizeof buffer, 0);
      if (num_bytes <= 0) {
        return received;
      }
      received.append(buffer, static_cast<size_t>(num_bytes));
    }
  }

  void set_receive_buffer(int num_bytes) const { setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &num_bytes, sizeof num_bytes); }

 private:
  int socket_ = -1;
};

size_t num_descriptors() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator()));
}

SocketAddress free_port() { return parse_metrics_address("0").value(); }

class metrics_server : public testing::Test {
 protected:
  MetricsServer& start(MetricsServerOptions options = {}) {
    options.address = options.address.port == 0 ? free_port() : options.address;
    auto started = MetricsServer::start(metrics_, options);
    EXPECT_TRUE(started.is_ok()) << started.status().to_string();
    server_ = *std::move(started);
    return *server_;
  }
  std::string ask(const std::string& request) const {
    const MetricsClient client(*server_);
    client.send_text(request);
    return client.receive_all();
  }
  std::string ask_for(const std::string& target) const { return ask(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", target)); }

  MetricsRegistry metrics_;
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(metrics_server, serves_the_numbers_of_now) {
  Counter& rows = metrics_.counter("darkroom_rows_total", "Rows.", {{"stage", "fetch"}});
  start();
  rows.add(7);
  const std::string body = "# HELP darkroom_rows_total Rows.\n# TYPE darkroom_rows_total counter\ndarkroom_rows_total{stage=\"fetch\"} 7\n";
  const std::string answer = ask_for("/metrics");
  EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"),
                            HasSubstr(fmt::format("Content-Length: {}\r\n", body.size())), EndsWith("\r\n\r\n" + body)));
  rows.add(1);
  EXPECT_THAT(ask_for("/metrics?name[]=x"), EndsWith("{stage=\"fetch\"} 8\n"));
  EXPECT_THAT(ask("GET /metrics HTTP/1.0\r\n\r\n"), EndsWith("{stage=\"fetch\"} 8\n"));
}

TEST_F(metrics_server, answers_head_without_a_body) {
  metrics_.counter("rows_total", "");
  start();
  EXPECT_THAT(ask("HEAD /metrics HTTP/1.1\r\n\r\n"), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\n")));
  EXPECT_THAT(ask("HEAD /other HTTP/1.1\r\n\r\n"), AllOf(StartsWith("HTTP/1.1 404 "), EndsWith("\r\n\r\n")));
}

TEST_F(metrics_server, refuses_what_it_does_not_serve) {
  start();
  for (const std::string target : {"/", "/metric", "/metrics/", "/../metrics", "*"}) {
    EXPECT_THAT(ask_for(target), AllOf(StartsWith("HTTP/1.1 404 Not Found\r\n"), EndsWith("the metrics are at /metrics\n"))) << target;
  }
  for (const std::string method : {"POST", "PUT", "DELETE", "OPTIONS", "get"}) {
    EXPECT_THAT(ask(method + " /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
                AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("\r\nAllow: GET, HEAD\r\n")))
        << method;
  }
  for (const std::string line : {"", "GET", "GET /metrics", "GET  HTTP/1.1", "GET /metrics HTTP/2", "GET /metrics FTP/1.1"}) {
    EXPECT_THAT(ask(line + "\r\n\r\n"), StartsWith("HTTP/1.1 400 ")) << line;
  }
  EXPECT_THAT(ask(std::string("\x16\x03\x01\x02", 4)), AllOf(StartsWith("HTTP/1.1 400 "), HasSubstr("is it HTTPS?")));
}

TEST_F(metrics_server, takes_a_request_in_pieces_up_to_its_bound) {
  start();
  const MetricsClient client(*server_);
  for (const char c : std::string("GET /metrics HTTP/1.1\r\n\r\n")) {
    client.send_text(std::string(1, c));
  }
  EXPECT_THAT(client.receive_all(), StartsWith("HTTP/1.1 200 "));
  const std::string begin = "GET /metrics HTTP/1.1\r\nX: ";
  const std::string end = "\r\n\r\n";
  const size_t room = MetricsServer::kMaxRequestBytes - begin.size() - end.size();
  EXPECT_THAT(ask(begin + std::string(room, 'x') + end), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask(begin + std::string(room + 1, 'x') + end), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(ask(begin + std::string(60'000, 'x')), StartsWith("HTTP/1.1 431 "));
}

TEST_F(metrics_server, closes_on_a_client_that_does_not_finish_its_request) {
  start({.request_timeout = milliseconds(50)});
  EXPECT_EQ(ask(""), "");
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\n"), "");
  const MetricsClient gone(*server_);
  gone.send_text("GET ");
  gone.half_close();
  EXPECT_EQ(gone.receive_all(), "");
  start({.request_timeout = std::chrono::minutes(10)});
  EXPECT_THAT(ask_for("/metrics"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(metrics_server, closes_on_a_client_that_does_not_take_its_reply) {
  metrics_.gauge("darkroom_much", std::string(20'000'000, 'x'));  // More than any socket holds.
  start({.reply_timeout = milliseconds(200)});
  const size_t before = num_descriptors();
  const MetricsClient slow(*server_);
  slow.set_receive_buffer(4096);
  slow.send_text("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(ask("GET /other HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));  // Others do not wait for it.
  for (int i = 0; i < 6'000 && num_descriptors() > before + 1; ++i) {
    poll(nullptr, 0, 10);
  }
  EXPECT_EQ(num_descriptors(), before + 1);  // The client's own end is left, which has read nothing.
}

TEST_F(metrics_server, one_client_too_many_ends_the_oldest) {
  start({.request_timeout = std::chrono::minutes(10), .max_connections = 3});
  std::vector<std::unique_ptr<MetricsClient>> idle;
  for (int i = 0; i < 10; ++i) {
    idle.push_back(std::make_unique<MetricsClient>(*server_));
  }
  EXPECT_THAT(ask_for("/metrics"), StartsWith("HTTP/1.1 200 "));
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(idle[i]->receive_all(), "");
  }
  idle.back()->send_text("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(idle.back()->receive_all(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(metrics_server, a_callback_that_throws_costs_one_scrape) {
  const auto bad =
      std::make_unique<MetricsRegistry::Collection>(metrics_.collect([](MetricsRegistry&) { throw std::runtime_error("SECRET-REASON"); }));
  start();
  EXPECT_THAT(ask_for("/metrics"), AllOf(StartsWith("HTTP/1.1 500 "), Not(HasSubstr("SECRET"))));
  EXPECT_THAT(ask_for("/other"), StartsWith("HTTP/1.1 404 "));
}

TEST_F(metrics_server, says_that_its_port_is_taken) {
  const SocketAddress taken = start().address();
  const Status failure = MetricsServer::start(metrics_, {.address = taken}).status();
  EXPECT_EQ(failure.to_string(),
            "failed_precondition: cannot serve metrics: the port is taken; choose another one with --metrics-port (address): " +
                taken.to_string());
  server_.reset();
  EXPECT_TRUE(MetricsServer::start(metrics_, {.address = taken}).is_ok());  // At once: nothing lingers.
}

TEST_F(metrics_server, listens_again_at_once_after_it_has_served) {
  const SocketAddress place = start().address();
  EXPECT_THAT(ask_for("/metrics"), StartsWith("HTTP/1.1 200 "));
  server_.reset();
  start({.address = place});
  EXPECT_THAT(ask_for("/metrics"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(metrics_server, refuses_an_address_that_is_not_here) {
  const SocketAddress elsewhere = parse_metrics_address("192.0.2.1:9100").value();
  EXPECT_THAT(MetricsServer::start(metrics_, {.address = elsewhere}).status().to_string(),
              AllOf(StartsWith("failed_precondition: "), HasSubstr("this machine has no such address"), EndsWith("192.0.2.1:9100")));
}

TEST_F(metrics_server, survives_a_lack_of_descriptors) {
  start();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const MetricsClient waiting(*server_);  // Its own descriptor is there; the server finds none for it.
  {
    const MetricsClient first(*server_);
    first.send_text("GET /metrics HTTP/1.1\r\n\r\n");
    EXPECT_THAT(first.receive_all(), StartsWith("HTTP/1.1 200 "));
  }
  const int lowest = fcntl(0, F_DUPFD_CLOEXEC, 0);
  ASSERT_GE(lowest, 0);
  ::close(lowest);
  const MetricsClient second(*server_);
  const rlimit none{static_cast<rlim_t>(lowest), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  second.send_text("GET /metrics HTTP/1.1\r\n\r\n");
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(second.receive_all(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(metrics_server, says_that_no_thread_can_be_started) {
  const NoNewThreads limit;
  EXPECT_EQ(MetricsServer::start(metrics_, {.address = free_port()}).status().code(), StatusCode::kResourceExhausted);
}

TEST_F(metrics_server, ends_while_clients_are_connected) {
  start({.request_timeout = std::chrono::minutes(10)});
  const MetricsClient idle(*server_);
  const MetricsClient half(*server_);
  half.send_text("GET /metr");
  server_.reset();
  EXPECT_EQ(idle.receive_all(), "");
  EXPECT_EQ(half.receive_all(), "");
}

TEST_F(metrics_server, options_are_checked) {
  EXPECT_THAT(MetricsServer::start(metrics_, {.address = free_port(), .request_timeout = milliseconds(0)}).status().to_string(),
              StartsWith("invalid_argument: time-outs of the metrics server"));
  EXPECT_THAT(MetricsServer::start(metrics_, {.address = free_port(), .max_connections = 0}).status().to_string(),
              StartsWith("invalid_argument: max_connections of the metrics server"));
}

TEST(metrics_address, is_a_port_of_loopback_or_an_address_with_a_port) {
  for (const auto& [text, want] : std::vector<std::pair<std::string, std::string>>{{"9100", "127.0.0.1:9100"},
                                                                                   {"0", "127.0.0.1:0"},
                                                                                   {"65535", "127.0.0.1:65535"},
                                                                                   {"localhost:1", "127.0.0.1:1"},
                                                                                   {"0.0.0.0:9100", "0.0.0.0:9100"},
                                                                                   {"[::1]:9100", "[::1]:9100"}}) {
    EXPECT_EQ(parse_metrics_address(text).value().to_string(), want) << text;
  }
  for (const std::string text : {"", ":", "9100:", ":9100", "65536", "-1", "+1", " 1", "1 ", "0x10", "::1:9100", "[127.0.0.1]:9100", "[]:1",
                                 "host:9100", "1.2.3:9100", "127.0.0.1", "127.0.0.1:x"}) {
    const Status failure = parse_metrics_address(text).status();
    EXPECT_EQ(failure.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(failure.message(), HasSubstr("--metrics-port is PORT or ADDRESS:PORT")) << text;
  }
}

}  // namespace
}  // namespace darkroom
