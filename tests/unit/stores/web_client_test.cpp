#include "darkroom/stores/web_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "hub_caller.h"
#include "support/leap_clock.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Answer = ScriptedServer::Answer;
using Request = ScriptedServer::Request;

class web_client : public WebTest {};

TEST_F(web_client, follows_redirects_and_leaves_credentials_behind) {
  const ScriptedServer second([](const Request&) { return Answer{http_answer(200, "bytes")}; });
  const ScriptedServer first([&](const Request& request) {
    return Answer{request_target_of(request) == "/a" ? http_answer(307, "", "Location: /b\r\nX-Mark: one\r\n")
                                                     : http_answer(302, "", "Location: " + server_url(second, "/c") + "\r\n")};
  });
  const WebAnswer answer =
      web_.ask({.url = server_url(first, "/a"), .headers = {{"Authorization", "Bearer s3cret"}, {"Range", "bytes=0-4"}}}, {}).value();
  EXPECT_EQ(answer.head.status, 200);
  EXPECT_EQ(answer.body, "bytes");
  EXPECT_EQ(answer.url, server_url(second, "/c"));
  ASSERT_EQ(answer.passed.size(), 2u);
  EXPECT_EQ(answer.passed[0].find("x-mark"), "one");
  for (const Request& request : first.requests()) {
    EXPECT_EQ(request_header(request, "Authorization"), "Bearer s3cret");
  }
  ASSERT_EQ(second.requests().size(), 1u);
  EXPECT_THAT(second.requests()[0].head, Not(HasSubstr("s3cret")));
  EXPECT_EQ(request_header(second.requests()[0], "Range"), "bytes=0-4");
}

TEST_F(web_client, credentials_do_not_come_back_with_the_first_host) {
  std::string home;
  const ScriptedServer second([&](const Request&) { return Answer{http_answer(302, "", "Location: " + home + "/end\r\n")}; });
  const ScriptedServer first([&](const Request& request) {
    return Answer{request_target_of(request) == "/end" ? http_answer(200, "x")
                                                       : http_answer(302, "", "Location: " + server_url(second, "/") + "\r\n")};
  });
  home = server_url(first);
  ASSERT_TRUE(web_.ask({.url = server_url(first, "/a"), .headers = {{"Authorization", "Bearer s3cret"}}}, {}).is_ok());
  ASSERT_EQ(first.requests().size(), 2u);
  EXPECT_EQ(request_header(first.requests()[1], "Authorization"), "");
}

TEST_F(web_client, stops_before_another_origin_when_it_should) {
  const ScriptedServer server([](const Request& request) {
    return Answer{request_target_of(request) == "/a" ? http_answer(302, "", "Location: /b\r\n")
                                                     : http_answer(302, "", "Location: http://127.0.0.1:1/x\r\n")};
  });
  const WebAnswer answer = web_.ask({.url = server_url(server, "/a"), .may_leave_origin = false}, {}).value();
  EXPECT_EQ(answer.head.status, 302);
  EXPECT_EQ(answer.head.find("location"), "http://127.0.0.1:1/x");
  EXPECT_EQ(answer.url, server_url(server, "/b"));
}

TEST_F(web_client, refuses_circles_and_redirects_to_what_is_no_place) {
  const ScriptedServer server([](const Request& request) {
    const std::string target = request_target_of(request);
    return Answer{http_answer(302, "", target == "/circle" ? "Location: /circle\r\n" : "Location: file:///etc/passwd\r\n")};
  });
  const Status circle = web_.ask({.url = server_url(server, "/circle")}, {}).status();
  EXPECT_EQ(circle.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(circle.message(), HasSubstr("more than 10"));
  EXPECT_EQ(server.requests().size(), 11u);
  EXPECT_EQ(web_.ask({.url = server_url(server, "/file?key=s3cret")}, {}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(web_.ask({.url = "ftp://h/a?key=s3cret"}, {}).status().code(), StatusCode::kInvalidArgument);
}

TEST(next_web_hop, leads_from_https_to_https_alone) {
  const auto next = [](const std::string& from, int status, const std::string& location) {
    HttpHead head;
    head.status = status;
    head.add_line("Location: " + location);
    return next_web_hop(UrlHop::parse(from, any_place()).value(), head);
  };
  EXPECT_EQ((*next("https://a/x", 302, "https://b:8443/y"))->url(), "https://b:8443/y");
  EXPECT_EQ((*next("http://a/x", 307, "https://b/y"))->url(), "https://b/y");
  EXPECT_EQ((*next("https://a/x/z", 301, "../y?q"))->url(), "https://a/y?q");
  EXPECT_FALSE(next("https://a/x", 200, "https://b/y").value().has_value());
  const Status lowered = next("https://a/x?key=s3cret", 302, "http://b/y").status();
  EXPECT_EQ(lowered.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(lowered.message(), AllOf(HasSubstr("https://a/x"), Not(HasSubstr("s3cret"))));
  EXPECT_EQ(next("https://a/x", 302, "http://a/x").status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(web_client, asks_again_what_may_pass_and_nothing_else) {
  for (const auto& [status, num_asked] : {std::pair(503, 3), {429, 3}, {500, 3}, {404, 1}, {501, 1}, {416, 1}}) {
    const ScriptedServer server([status = status](const Request&) { return Answer{http_answer(status, "no")}; });
    const WebAnswer answer = web_.ask({.url = server_url(server, "/")}, {}).value();
    EXPECT_EQ(answer.head.status, status);
    EXPECT_EQ(server.requests().size(), static_cast<size_t>(num_asked)) << status;
  }
  std::atomic<int> num_asked = 0;
  const ScriptedServer shaky([&](const Request&) {
    const int number = num_asked++;
    return number == 0   ? Answer{"", Answer::Then::kReset}
           : number == 1 ? Answer{"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", Answer::Then::kClose}
                         : Answer{http_answer(200, "all there")};
  });
  EXPECT_EQ(web_.ask({.url = server_url(shaky, "/")}, {}).value().body, "all there");
}

TEST_F(web_client, a_dead_server_is_told_by_its_address_without_the_query) {
  const uint16_t port = closed_port();
  const Status status = web_.ask({.url = fmt::format("http://127.0.0.1:{}/a?sig=s3cret", port)}, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr(fmt::format("127.0.0.1:{}/a", port)));
  EXPECT_THAT(status.message(), Not(HasSubstr("s3cret")));
}

TEST_F(web_client, a_server_that_never_answered_is_given_up_soon_and_a_known_one_is_waited_for) {
  WebOptions options = quick_options();
  options.max_tries = 4;
  options.first_contact = std::chrono::seconds(0);
  options.backoff = {.first = std::chrono::milliseconds(2), .longest = std::chrono::milliseconds(2)};
  WebClient patient(*http_, system_clock(), options);
  std::atomic<bool> is_down = true;
  const ScriptedServer server([&](const Request&) { return is_down ? Answer{"", Answer::Then::kClose} : Answer{http_answer(200, "x")}; });
  EXPECT_EQ(patient.ask({.url = server_url(server, "/")}, {}).status().code(), StatusCode::kUnavailable);
  const size_t num_first = server.requests().size();
  is_down = false;
  ASSERT_TRUE(patient.ask({.url = server_url(server, "/")}, {}).is_ok());
  is_down = true;
  EXPECT_EQ(patient.ask({.url = server_url(server, "/")}, {}).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(num_first, 1u);
  EXPECT_GE(server.requests().size(), num_first + 1 + 4);  // A kept connection that is closed is tried once more, unseen.
}

class web_outage : public WebTest {
 protected:
  /// So many connections are reset; the rest is answered.
  Answer answer() { return num_lost_-- > 0 ? Answer{"", Answer::Then::kReset} : Answer{http_answer(200, "x")}; }
  WebClient patient() { return WebClient(*http_, clock_, quick_options(), &metrics_, std::chrono::hours(12)); }
  int64_t num_outages() {
    return metrics_
        .counter("darkroom_store_outages_total", "How often a store that had answered before could not be reached.", {{"scheme", "http"}})
        .value();
  }

  LeapClock clock_;
  std::atomic<int> num_lost_ = 0;
};

TEST_F(web_outage, of_a_server_that_answered_before_is_waited_for) {
  const ScriptedServer server([&](const Request&) { return answer(); });
  WebClient client = patient();
  ASSERT_TRUE(client.ask({.url = server_url(server, "/")}, {}).is_ok());
  num_lost_ = 50;
  testing::internal::CaptureStderr();
  EXPECT_EQ(client.ask({.url = server_url(server, "/a?sig=s3cret")}, {}).value().body, "x");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, AllOf(HasSubstr("the store cannot be reached; waiting"), HasSubstr("answers again"), Not(HasSubstr("s3cret"))));
  EXPECT_GT(clock_.now().time_since_epoch(), std::chrono::minutes(4));
  EXPECT_EQ(num_outages(), 1);
}

TEST_F(web_outage, behind_a_redirect_is_waited_for_where_that_server_is_known) {
  const ScriptedServer files([&](const Request&) { return answer(); });
  const ScriptedServer hub([&](const Request&) { return Answer{http_answer(302, "", "Location: " + server_url(files, "/f") + "\r\n")}; });
  WebClient client = patient();
  num_lost_ = 50;
  EXPECT_EQ(client.ask({.url = server_url(hub, "/")}, {}).status().code(), StatusCode::kUnavailable) << "it has never answered";
  EXPECT_EQ(num_outages(), 0);
  num_lost_ = 0;
  ASSERT_TRUE(client.ask({.url = server_url(hub, "/")}, {}).is_ok());
  num_lost_ = 50;
  EXPECT_EQ(client.ask({.url = server_url(hub, "/")}, {}).value().body, "x");
  EXPECT_EQ(num_outages(), 1);
}

TEST_F(web_outage, is_none_where_one_request_alone_gets_no_answer) {
  const ScriptedServer server([&](const Request& request) {
    return request_target_of(request) == "/lost" ? Answer{"", Answer::Then::kReset} : Answer{http_answer(200, "x")};
  });
  WebClient client = patient();
  ASSERT_TRUE(client.ask({.url = server_url(server, "/a")}, {}).is_ok());
  EXPECT_EQ(client.ask({.url = server_url(server, "/lost")}, {}).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(num_outages(), 0);
}

TEST_F(web_outage, ends_for_whoever_is_stopped) {
  FakeClock clock;
  WebClient client(*http_, clock, quick_options(), /*metrics=*/nullptr, std::chrono::hours(12));
  const ScriptedServer server([&](const Request&) { return answer(); });
  ASSERT_TRUE(client.ask({.url = server_url(server, "/")}, {}).is_ok());
  num_lost_ = 1'000'000;
  std::stop_source stop;
  std::jthread caller(
      [&] { EXPECT_EQ(client.ask({.url = server_url(server, "/")}, stop.get_token()).status().code(), StatusCode::kCancelled); });
  ASSERT_TRUE(clock.await_waiting(1));  // The first wait that takes time: between two probes.
  stop.request_stop();
}

TEST_F(web_client, waits_as_long_as_it_is_asked_to_unless_that_is_too_long) {
  FakeClock clock;
  WebClient waiting(*http_, clock, quick_options());
  std::atomic<int> num_asked = 0;
  const ScriptedServer server(
      [&](const Request&) { return Answer{num_asked++ == 0 ? http_answer(429, "", "Retry-After: 7\r\n") : http_answer(200, "x")}; });
  std::jthread caller([&] { EXPECT_EQ(waiting.ask({.url = server_url(server, "/")}, {}).value().body, "x"); });
  ASSERT_TRUE(clock.await_waiting(1));
  clock.advance(std::chrono::milliseconds(6999));
  EXPECT_EQ(num_asked, 1);
  clock.advance(std::chrono::milliseconds(1));
  caller.join();
  const ScriptedServer closed([&](const Request&) { return Answer{http_answer(503, "", "Retry-After: 3600\r\n")}; });
  EXPECT_EQ(waiting.ask({.url = server_url(closed, "/")}, {}).value().head.status, 503);
  EXPECT_EQ(closed.requests().size(), 1u);
}

TEST_F(web_client, a_stop_ends_a_wait) {
  FakeClock clock;
  WebClient waiting(*http_, clock, quick_options());
  const ScriptedServer server([&](const Request&) { return Answer{http_answer(429, "", "Retry-After: 7\r\n")}; });
  std::stop_source stop;
  std::jthread caller(
      [&] { EXPECT_EQ(waiting.ask({.url = server_url(server, "/")}, stop.get_token()).status().code(), StatusCode::kCancelled); });
  ASSERT_TRUE(clock.await_waiting(1));
  stop.request_stop();
}

TEST_F(web_client, a_body_that_is_too_large_is_an_answer_without_it) {
  const ScriptedServer server([](const Request&) { return Answer{http_answer(200, std::string(1001, 'x'))}; });
  EXPECT_TRUE(web_.ask({.url = server_url(server, "/"), .max_body_bytes = 1001}, {})->is_whole);
  const WebAnswer answer = web_.ask({.url = server_url(server, "/"), .max_body_bytes = 1000}, {}).value();
  EXPECT_FALSE(answer.is_whole);
  EXPECT_EQ(answer.head.status, 200);
  EXPECT_EQ(answer.head.content_length, 1001);
}

TEST_F(web_client, options_are_checked) {
  EXPECT_EQ(WebOptions{.max_tries = 0}.validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WebOptions{.max_redirects = -1}.validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WebOptions{.user_agent = "a\r\nb"}.validate().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(WebOptions{}.validate().is_ok());
}

}  // namespace
}  // namespace darkroom
