#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "support/temporary_folder.h"
#include "troubled_web/troubled_web.h"

namespace darkroom {
namespace {

class TroubledWebTest : public testing::Test {
 protected:
  Status start(const std::string& json) {
    std::ofstream(folder_.path("web.json")) << json;
    std::ofstream(folder_.path("a.txt")) << "hello";
    auto web = TroubledWeb::start(folder_.path());
    if (!web.is_ok()) {
      return web.status();
    }
    web_ = *std::move(web);
    return Status::ok();
  }

  int connect_to_web() {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(web_->port());
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return client;
  }

  // Sends `request` and reads until `wanted` has come `times` times or the connection ends.
  static std::string talk(int client, const std::string& request, const std::string& wanted, int times = 1) {
    send(client, request.data(), request.size(), MSG_NOSIGNAL);  // May fail: some requests are cut off by the web.
    std::string received;
    char buffer[4096];
    size_t from = 0;
    while (times > 0) {
      const size_t found = received.find(wanted, from);
      if (found != std::string::npos) {
        from = found + wanted.size();
        --times;
        continue;
      }
      const ssize_t num_bytes = recv(client, buffer, sizeof buffer, 0);
      if (num_bytes <= 0) {
        break;
      }
      received.append(buffer, static_cast<size_t>(num_bytes));
    }
    return received;
  }

  static bool is_closed(int client) {
    char byte;
    return recv(client, &byte, 1, 0) <= 0;
  }

  TemporaryFolder folder_;
  std::unique_ptr<TroubledWeb> web_;
};

constexpr const char* kGood = R"({"routes": {"/a.txt": {"file": "a.txt"}}})";

TEST_F(TroubledWebTest, refuses_a_web_json_that_it_cannot_serve) {
  EXPECT_EQ(TroubledWeb::start("/no/such/folder").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(start("{").code(), StatusCode::kCorruptData);
  EXPECT_EQ(start("{}").code(), StatusCode::kCorruptData);
  EXPECT_EQ(start(R"({"routes": {"/a": {"file": 7}}})").code(), StatusCode::kCorruptData);
  EXPECT_EQ(start(R"({"routes": {"/a": {}}})").code(), StatusCode::kCorruptData);
  EXPECT_EQ(start(R"({"routes": {"/a": {"file": "none.txt"}}})").code(), StatusCode::kNotFound);
  EXPECT_EQ(start(R"({"routes": {"/a": {"file": "../a.txt"}}})").code(), StatusCode::kCorruptData);
  EXPECT_EQ(start(R"({"routes": {"/a": {"file": "/etc/passwd"}}})").code(), StatusCode::kCorruptData);
  EXPECT_EQ(start(R"({"routes": {"/a": {"file": "a.txt", "trouble": "weather"}}})").code(), StatusCode::kCorruptData);
  EXPECT_EQ(start(R"({"routes": {"/a": {"trouble": "redirect"}}})").code(), StatusCode::kCorruptData);
  EXPECT_EQ(start(R"({"routes": {"/a": {"trouble": "status", "status": 7}}})").code(), StatusCode::kCorruptData);
  EXPECT_EQ(start(R"({"routes": {"/a": {"trouble": "status", "status": 503, "times": 1}}})").code(), StatusCode::kCorruptData);
  EXPECT_EQ(start(R"({"routes": {"/a": {"trouble": "redirect", "location": "/b\r\nX: y"}}})").code(), StatusCode::kCorruptData);
}

TEST_F(TroubledWebTest, serves_its_routes_and_nothing_else) {
  ASSERT_TRUE(start(kGood).is_ok());
  const int client = connect_to_web();
  EXPECT_NE(talk(client, "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n", "hello").find("HTTP/1.1 200"), std::string::npos);
  for (const char* path :
       {"/", "/web.json", "/./a.txt", "//a.txt", "/../../../../etc/passwd", "/%2e%2e/etc/passwd", "/a.txt?x", "/A.TXT"}) {
    EXPECT_NE(talk(client, std::string("GET ") + path + " HTTP/1.1\r\n\r\n", "no such route").find("HTTP/1.1 404"), std::string::npos)
        << path;
  }
  EXPECT_EQ(web_->num_requests("/a.txt"), 1);
  EXPECT_EQ(web_->num_requests("/other"), 0);
  EXPECT_EQ(web_->num_requests(), 9);
  EXPECT_EQ(web_->num_connections(), 1);
  ::close(client);
}

TEST_F(TroubledWebTest, closes_on_requests_that_it_does_not_understand) {
  ASSERT_TRUE(start(kGood).is_ok());
  for (const char* request :
       {"POST /a.txt HTTP/1.1\r\n\r\n", "GET /a.txt HTTP/1.0\r\n\r\n", "GET http://a/ HTTP/1.1\r\n\r\n", "GET\r\n\r\n", "\r\n\r\n",
        "\x16\x03\x01 tls", "GET /a.txt HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", "GET /a.txt HTTP/1.1\r\nConnection: close\r\n\r\n"}) {
    const int client = connect_to_web();
    talk(client, request, "\r\n\r\n");
    while (!is_closed(client)) {
    }
    ::close(client);
  }
  const int client = connect_to_web();
  talk(client, "GET /" + std::string(100'000, 'a'), "never");
  EXPECT_TRUE(is_closed(client));
  ::close(client);
}

TEST_F(TroubledWebTest, keeps_256_connections_and_answers_pipelined_requests) {
  ASSERT_TRUE(start(kGood).is_ok());
  const std::string request = "GET /a.txt HTTP/1.1\r\nHost: a\r\n\r\n";
  std::vector<int> clients;
  for (int i = 0; i < 256; ++i) {
    clients.push_back(connect_to_web());
  }
  for (int round = 0; round < 2; ++round) {
    for (const int client : clients) {
      EXPECT_NE(talk(client, request, "hello").find("hello"), std::string::npos);
    }
  }
  EXPECT_EQ(web_->num_connections(), 256);
  const std::string twice = talk(clients[0], request + request, "hello", 2);
  EXPECT_TRUE(twice.starts_with("HTTP/1.1 200") && twice.ends_with("hello"));
  web_->stop();
  for (const int client : clients) {
    ::close(client);
  }
  web_->stop();  // Again: nothing to do.
}

TEST_F(TroubledWebTest, serves_two_webs_on_two_ports_but_not_on_one) {
  ASSERT_TRUE(start(kGood).is_ok());
  const auto other = TroubledWeb::start(folder_.path());
  ASSERT_TRUE(other.is_ok());
  EXPECT_NE((*other)->port(), web_->port());
  EXPECT_EQ(TroubledWeb::start(folder_.path(), web_->port()).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace darkroom
