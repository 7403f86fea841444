#include "darkroom/web/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "http_caller.h"
#include "support/http_answers.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;
using Answer = ScriptedServer::Answer;
using Request = ScriptedServer::Request;

HttpRequest at(const ScriptedServer& server, const std::string& path = "/") { return {.url = server_url(server, path)}; }

class http_client : public testing::Test {
 protected:
  HttpClient& client() { return *client_; }

  MetricsRegistry metrics_;
  std::unique_ptr<HttpClient> client_ = HttpClient::start({}, metrics_).value();
};

TEST_F(http_client, answers_with_any_status_its_headers_and_its_body) {
  const ScriptedServer server([](const Request& request) {
    const bool is_good = request.head.starts_with("GET /good ");
    return Answer{is_good ? http_answer(200, "body", "X-Mark: a\r\n") : http_answer(503, "<Error/>")};
  });
  const HttpResponse good = client().perform(at(server, "/good"), {}).value();
  EXPECT_EQ(good.status(), 200);
  EXPECT_EQ(good.head.find("x-mark"), "a");
  EXPECT_EQ(good.body, "body");
  const HttpResponse bad = client().perform(at(server, "/bad"), {}).value();
  EXPECT_EQ(bad.status(), 503);
  EXPECT_EQ(bad.body, "<Error/>");
  EXPECT_EQ(server.num_connections(), 1);  // Few requests share one connection.
}

TEST_F(http_client, sends_method_headers_and_body_in_pieces) {
  const ScriptedServer server([](const Request&) { return Answer{http_answer(200, "")}; });
  const std::string first = "one ";
  const std::string second(100'000, 'x');
  HttpRequest request = at(server, "/key%20x");
  request.method = "PUT";
  request.headers = {{"If-None-Match", "*"}};
  request.body = {std::as_bytes(std::span(first)), std::as_bytes(std::span(second))};
  ASSERT_TRUE(client().perform(request, {}).is_ok());
  ASSERT_EQ(server.requests().size(), 1u);
  EXPECT_THAT(server.requests()[0].head, testing::StartsWith("PUT /key%20x HTTP/1.1\r\n"));
  EXPECT_THAT(server.requests()[0].head, HasSubstr("If-None-Match: *\r\n"));
  EXPECT_EQ(server.requests()[0].body, first + second);
}

TEST_F(http_client, does_not_follow_a_redirect) {
  const ScriptedServer server([](const Request&) { return Answer{http_answer(307, "", "Location: /elsewhere\r\n")}; });
  const HttpResponse response = client().perform(at(server), {}).value();
  EXPECT_EQ(response.status(), 307);
  EXPECT_EQ(response.head.find("location"), "/elsewhere");
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST_F(http_client, tells_apart_who_was_not_reached_who_was_silent_and_who_broke_off) {
  const ScriptedServer server([](const Request& request) -> Answer {
    if (request.head.starts_with("GET /silent")) {
      return {"", Answer::Then::kHang};
    }
    if (request.head.starts_with("GET /half")) {
      return {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", Answer::Then::kClose};
    }
    return {request.head.starts_with("GET /garbage") ? "garbage\r\n\r\n" : "", Answer::Then::kReset};
  });
  HttpRequest silent = at(server, "/silent");
  silent.limits.total = milliseconds(100);
  HttpRequest idle = at(server, "/silent");
  idle.limits.idle = milliseconds(100);
  HttpRequest too_large = at(server, "/half");
  too_large.limits.max_body_bytes = 9;
  struct Case {
    HttpRequest request;
    HttpEnd end;
    StatusCode code;
    int status;
  };
  const std::vector<Case> cases = {
      {{.url = fmt::format("http://127.0.0.1:{}/", closed_port())}, HttpEnd::kConnectionRefused, StatusCode::kUnavailable, 0},
      {{.url = "http://nobody.invalid/"}, HttpEnd::kUnresolved, StatusCode::kUnavailable, 0},
      {{.url = "ftp://127.0.0.1/"}, HttpEnd::kBadRequest, StatusCode::kInvalidArgument, 0},
      {silent, HttpEnd::kDeadline, StatusCode::kUnavailable, 0},
      {idle, HttpEnd::kIdleTimeout, StatusCode::kUnavailable, 0},
      {at(server, "/broken"), HttpEnd::kBroken, StatusCode::kUnavailable, 0},
      {at(server, "/half"), HttpEnd::kTruncated, StatusCode::kUnavailable, 200},
      {at(server, "/garbage"), HttpEnd::kNotHttp, StatusCode::kCorruptData, 0},
      {too_large, HttpEnd::kBodyTooLarge, StatusCode::kCorruptData, 200},
  };
  for (const Case& c : cases) {
    const HttpResponse response = client().exchange(c.request, {});
    EXPECT_EQ(response.end, c.end) << c.request.url << ": " << http_end_name(response.end) << " " << response.detail;
    EXPECT_EQ(response.status(), c.status) << c.request.url;
    const Status failure = client().perform(c.request, {}).status();
    EXPECT_EQ(failure.code(), c.code) << failure.to_string();
    EXPECT_THAT(failure.message(), HasSubstr("GET " + c.request.url));
  }
}

TEST_F(http_client, is_stopped_while_it_waits_and_before_it_begins) {
  Announcement asked;
  const ScriptedServer server([&](const Request&) {
    asked.make();
    return Answer{"", Answer::Then::kHang};
  });
  std::stop_source stop;
  HttpResponse response;
  std::jthread waiting([&] { response = client().exchange(at(server), stop.get_token()); });
  ASSERT_TRUE(asked.await());
  stop.request_stop();
  waiting.join();
  EXPECT_EQ(response.end, HttpEnd::kCancelled);
  EXPECT_EQ(client().perform(at(server), stop.get_token()).status().code(), StatusCode::kCancelled);
}

TEST_F(http_client, hands_a_long_body_to_its_taker_in_the_callers_thread_and_holds_back_the_rest) {
  std::string body(20'000'003, '\0');
  for (size_t i = 0; i < body.size(); ++i) {
    body[i] = static_cast<char>(i * 31 + i / 256);
  }
  const ScriptedServer server([&](const Request& request) {
    return Answer{request.head.starts_with("GET /long ") ? http_answer(206, body) : http_answer(200, "")};
  });
  client_ = HttpClient::start({.num_loops = 1}, metrics_).value();
  std::string taken;
  size_t longest_piece = 0;
  const auto take = [&, caller = std::this_thread::get_id()](const HttpHead& head, std::span<const std::byte> piece) {
    EXPECT_EQ(head.status, 206);
    EXPECT_EQ(std::this_thread::get_id(), caller);
    for (int i = 0; taken.empty() && i < 300; ++i) {  // Meanwhile the loop could receive many megabytes.
      EXPECT_TRUE(client().perform(at(server), {}).is_ok());
    }
    longest_piece = std::max(longest_piece, piece.size());
    taken.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    return Status::ok();
  };
  const HttpResponse response = client().perform(at(server, "/long"), take, {}).value();
  EXPECT_TRUE(taken == body);
  EXPECT_LE(longest_piece, (1u << 20) + 16'384u);
  EXPECT_EQ(response.body, "");
}

TEST_F(http_client, keeps_the_body_of_a_bad_status_from_the_taker) {
  const ScriptedServer server([](const Request&) { return Answer{http_answer(404, "<Error/>")}; });
  const auto take = [](const HttpHead&, std::span<const std::byte>) { return Status::internal("not for the taker"); };
  const HttpResponse response = client().perform(at(server), take, {}).value();
  EXPECT_EQ(response.status(), 404);
  EXPECT_EQ(response.body, "<Error/>");
}

TEST_F(http_client, ends_with_the_failure_or_the_exception_of_its_taker) {
  const ScriptedServer server([](const Request&) { return Answer{http_answer(200, std::string(3 << 20, 'x'))}; });
  const auto fail = [](const HttpHead&, std::span<const std::byte>) { return Status::resource_exhausted("disk full (path):", "x"); };
  const Result<HttpResponse> failed = client().perform(at(server), fail, {});
  EXPECT_EQ(failed.status().to_string(), "resource_exhausted: disk full (path): x");
  Status taker_status;
  EXPECT_EQ(client().exchange(at(server), fail, &taker_status, {}).end, HttpEnd::kStopped);
  EXPECT_EQ(taker_status.code(), StatusCode::kResourceExhausted);
  const auto raise = [](const HttpHead&, std::span<const std::byte>) -> Status { throw std::runtime_error("thrown"); };
  EXPECT_THROW((void)client().perform(at(server), raise, {}), std::runtime_error);
}

TEST_F(http_client, serves_many_threads_at_once) {
  const ScriptedServer server([](const Request& request) { return Answer{http_answer(200, request.head.substr(4, 3))}; });
  std::atomic<int> num_right = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 8; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < 25; ++i) {
          const std::string path = fmt::format("/{}{}", thread, i % 10);
          num_right += client().perform(at(server, path), {}).value().body == path ? 1 : 0;
        }
      });
    }
  }
  EXPECT_EQ(num_right, 200);
}

TEST_F(http_client, shows_no_query_user_or_header_in_a_failure) {
  HttpRequest request{.url = fmt::format("http://127.0.0.1:{}/key?X-Amz-Signature=secret#secret", closed_port())};
  request.headers = {{"Authorization", "Bearer secret"}};
  const Status failure = client().perform(request, {}).status();
  EXPECT_THAT(failure.message(), Not(HasSubstr("secret")));
  EXPECT_THAT(failure.message(), HasSubstr("/key"));
  EXPECT_EQ(shown_url("https://user:secret@host:1/a@b?c"), "https://host:1/a@b");
  EXPECT_EQ(shown_url("https://user:sec/ret@host:1/a#c"), "https://host:1/a");
  EXPECT_EQ(shown_url("host/a"), "host/a");
}

TEST(http_client_options, are_checked) {
  MetricsRegistry metrics;
  EXPECT_EQ(HttpClient::start({.num_loops = 0}, metrics).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(HttpClient::start({.num_loops = 65}, metrics).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(HttpClient::start({.loop = {.certificate_authorities = "/nowhere"}}, metrics).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace darkroom
