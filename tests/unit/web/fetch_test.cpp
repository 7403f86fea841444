#include "darkroom/web/fetch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "fetch_web.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using Json = nlohmann::json;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(fetch, gives_the_bytes_as_served) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  const FetchReply reply = fetch_one(web.options(), web.url("/a.jpg"));
  ASSERT_EQ(outcome(reply), "ok");
  EXPECT_EQ(*reply.body, web.picture());
  EXPECT_EQ(reply.http_status, 200);
  EXPECT_EQ(reply.num_retries, 0);
  EXPECT_EQ(reply.num_bytes, static_cast<int64_t>(FetchWeb::kPictureBytes));
}

TEST(fetch, gives_empty_bodies_and_chunked_bodies) {
  FetchWeb web;
  web.add_file("empty.jpg", "");
  web.add_route("/empty.jpg", {{"file", "empty.jpg"}});
  web.add_route("/chunked.jpg", {{"trouble", "chunked"}});
  web.start();
  const FetchReply empty = fetch_one(web.options(), web.url("/empty.jpg"));
  ASSERT_EQ(outcome(empty), "ok");
  EXPECT_EQ(*empty.body, "");
  const FetchReply chunked = fetch_one(web.options(), web.url("/chunked.jpg"));
  ASSERT_EQ(outcome(chunked), "ok");
  EXPECT_EQ(*chunked.body, web.picture());
}

TEST(fetch, does_not_decode_content_encodings) {
  FetchWeb web;
  web.add_route("/a.jpg", {{"trouble", "gzip_label"}});
  web.start();
  const FetchReply reply = fetch_one(web.options(), web.url("/a.jpg"));
  ASSERT_EQ(outcome(reply), "ok");
  EXPECT_EQ(*reply.body, web.picture());
}

TEST(fetch, hands_on_a_page_that_is_no_picture) {
  FetchWeb web;
  web.add_route("/a.jpg", {{"trouble", "html"}});
  web.start();
  const FetchReply reply = fetch_one(web.options(), web.url("/a.jpg"));
  ASSERT_EQ(outcome(reply), "ok");
  EXPECT_NE(*reply.body, web.picture());
}

TEST(fetch, encodes_spaces_and_other_letters_of_a_url) {
  FetchWeb web;
  web.add_route("/a%20b%C3%A9.jpg", {});
  web.add_route("/a%20b%c3%a9.jpg", {});
  web.start();
  EXPECT_EQ(outcome(fetch_one(web.options(), "  " + web.url("/a b\xC3\xA9.jpg") + "\n")), "ok");
}

TEST(fetch, follows_redirects) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.add_route("/moved", {{"trouble", "redirect"}, {"location", "/a.jpg"}, {"status", 301}});
  web.start();
  const FetchReply reply = fetch_one(web.options(), web.url("/moved"));
  ASSERT_EQ(outcome(reply), "ok");
  EXPECT_EQ(*reply.body, web.picture());
  EXPECT_EQ(reply.num_retries, 0);
}

TEST(fetch, counts_redirects) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.add_route("/1", {{"trouble", "redirect"}, {"location", "/a.jpg"}});
  web.add_route("/2", {{"trouble", "redirect"}, {"location", "/1"}});
  web.add_route("/3", {{"trouble", "redirect"}, {"location", "/2"}});
  web.add_route("/loop", {{"trouble", "redirect_loop"}});
  web.start();
  FetchOptions options = web.options();
  options.max_redirects = 2;
  EXPECT_EQ(outcome(fetch_one(options, web.url("/2"))), "ok");
  EXPECT_EQ(outcome(fetch_one(options, web.url("/3"))), "too_many_redirects");
  EXPECT_EQ(outcome(fetch_one(options, web.url("/loop"))), "too_many_redirects");
  EXPECT_EQ(web.web().num_requests("/loop"), 3);  // Not retried.
}

TEST(fetch, gives_lasting_statuses_without_a_retry) {
  FetchWeb web;
  for (const int status : {204, 206, 304, 400, 401, 403, 404, 410, 451}) {
    web.add_route(fmt::format("/{}", status), {{"trouble", "status"}, {"status", status}});
  }
  web.start();
  for (const int status : {204, 206, 304, 400, 401, 403, 404, 410, 451}) {
    const std::string path = fmt::format("/{}", status);
    const FetchReply reply = fetch_one(web.options(), web.url(path));
    EXPECT_EQ(outcome(reply), fmt::format("http_{}", status));
    EXPECT_EQ(reply.http_status, status);
    EXPECT_EQ(reply.num_retries, 0);
    EXPECT_EQ(web.web().num_requests(path), 1);
  }
  EXPECT_EQ(outcome(fetch_one(web.options(), web.url("/no-such-route"))), "http_404");
}

TEST(fetch, retries_passing_troubles_and_says_how_often) {
  FetchWeb web;
  web.add_route("/503", {{"trouble", "status"}, {"status", 503}, {"times", 2}});
  web.add_route("/500", {{"trouble", "status"}, {"status", 500}, {"times", 1}});
  web.add_route("/429", {{"trouble", "status"}, {"status", 429}, {"times", 1}});
  web.add_route("/short", {{"trouble", "truncated"}, {"times", 1}});
  web.add_route("/chunks", {{"trouble", "cut_chunks"}, {"times", 1}});
  web.add_route("/reset", {{"trouble", "reset"}, {"times", 2}});
  web.start();
  const auto fetcher = make_fetcher(web.options());  // Connections are reused: a reset must be counted on those, too.
  const std::map<std::string, int> wanted = {{"/503", 2}, {"/500", 1}, {"/429", 1}, {"/short", 1}, {"/chunks", 1}, {"/reset", 2}};
  for (const auto& [path, num_retries] : wanted) {
    const FetchReply reply = fetch_with(*fetcher, web.url(path));
    ASSERT_EQ(outcome(reply), "ok") << path;
    EXPECT_EQ(*reply.body, web.picture()) << path;
    EXPECT_EQ(reply.num_retries, num_retries) << path;
    EXPECT_EQ(web.web().num_requests(path), num_retries + 1) << path;
  }
  EXPECT_EQ(fetcher->stats().num_retries, 8);
}

TEST(fetch, gives_up_after_the_last_retry) {
  FetchWeb web;
  web.add_route("/503", {{"trouble", "status"}, {"status", 503}});
  web.add_route("/short", {{"trouble", "truncated"}});
  web.add_route("/chunks", {{"trouble", "cut_chunks"}});
  web.add_route("/reset", {{"trouble", "reset"}});
  web.add_route("/garbage", {{"trouble", "garbage"}});
  web.start();
  const std::map<std::string, std::string> wanted = {
      {"/503", "http_503"}, {"/short", "truncated"}, {"/chunks", "truncated"}, {"/reset", "connect"}, {"/garbage", "connect"}};
  for (const auto& [path, code] : wanted) {
    const FetchReply reply = fetch_one(web.options(), web.url(path));
    EXPECT_EQ(outcome(reply), code);
    EXPECT_EQ(reply.num_retries, 2) << path;
    EXPECT_EQ(web.web().num_requests(path), 3) << path;
  }
  FetchOptions once = web.options();
  once.num_retries = 0;
  EXPECT_EQ(fetch_one(once, web.url("/503")).num_retries, 0);
}

TEST(fetch, counts_the_bytes_of_all_attempts) {
  FetchWeb web;
  web.add_route("/short", {{"trouble", "truncated"}, {"times", 1}});
  web.start();
  const FetchReply reply = fetch_one(web.options(), web.url("/short"));
  ASSERT_EQ(outcome(reply), "ok");
  EXPECT_EQ(reply.num_bytes, static_cast<int64_t>(FetchWeb::kPictureBytes / 2 + FetchWeb::kPictureBytes));
}

TEST(fetch, waits_as_long_as_retry_after_says) {
  FetchWeb web;
  web.add_route("/seconds", {{"trouble", "retry_after"}, {"seconds", 1}, {"times", 1}});
  web.add_route("/date", {{"trouble", "retry_after"}, {"seconds", 2}, {"as_date", true}, {"status", 503}, {"times", 1}});
  web.start();
  const auto start = std::chrono::steady_clock::now();
  const FetchReply reply = fetch_one(web.options(), web.url("/seconds"));
  EXPECT_EQ(outcome(reply), "ok");
  EXPECT_EQ(reply.num_retries, 1);
  EXPECT_GE(seconds_since(start), 1.0);
  const auto start_of_date = std::chrono::steady_clock::now();
  EXPECT_EQ(outcome(fetch_one(web.options(), web.url("/date"))), "ok");
  EXPECT_GE(seconds_since(start_of_date), 0.9);  // A date has whole seconds.
}

TEST(fetch, waits_for_no_host_where_it_must_not) {
  FetchWeb web;
  web.add_route("/a.jpg", {{"trouble", "retry_after"}, {"seconds", 3600}, {"times", 1}});
  web.start();
  const auto start = std::chrono::steady_clock::now();
  FetchOptions options = web.options();
  options.max_park = std::chrono::seconds(0);
  const FetchReply reply = fetch_one(options, web.url("/a.jpg"));
  EXPECT_EQ(outcome(reply), "http_429");
  EXPECT_EQ(reply.num_retries, 0);
  EXPECT_LT(seconds_since(start), 60.0);
}

TEST(fetch, a_reply_has_nothing_of_the_one_before) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.add_route("/429", {{"trouble", "retry_after"}, {"seconds", 3600}});
  web.add_route("/503", {{"trouble", "status"}, {"status", 503}, {"times", 1}});
  web.start();
  FetchOptions options = web.options();
  options.max_park = std::chrono::seconds(0);
  const auto fetcher = make_fetcher(options);
  EXPECT_EQ(outcome(fetch_with(*fetcher, web.url("/429"))), "http_429");
  const FetchReply retried = fetch_with(*fetcher, web.url_of("localhost", "/503"));  // Its back-off knows nothing of the hour.
  EXPECT_EQ(outcome(retried), "ok");
  EXPECT_EQ(retried.num_retries, 1);
  const FetchReply refused = fetch_with(*fetcher, "http://10.0.0.1/");
  EXPECT_EQ(outcome(refused), "blocked_host");
  EXPECT_EQ(refused.http_status, 0);
  const FetchReply unsent = fetch_with(*fetcher, "ftp://10.0.0.1/");
  EXPECT_EQ(unsent.num_bytes, 0);
}

TEST(fetch, ends_slow_and_silent_servers_at_the_total_deadline) {
  FetchWeb web;
  web.add_route("/drip", {{"trouble", "slow_drip"}, {"bytes_per_second", 200}});
  web.add_route("/hang", {{"trouble", "hang"}});
  web.start();
  FetchOptions options = web.options();
  options.timeout = milliseconds(300);
  for (const char* path : {"/drip", "/hang"}) {
    const auto start = std::chrono::steady_clock::now();
    const FetchReply reply = fetch_one(options, web.url(path));
    EXPECT_EQ(outcome(reply), "timeout") << path;
    EXPECT_EQ(reply.num_retries, 0);
    EXPECT_GE(seconds_since(start), 0.29) << path;
    EXPECT_LT(seconds_since(start), 60.0) << path;
  }
}

TEST(fetch, the_deadline_covers_redirects_and_retries) {
  FetchWeb web;
  web.add_route("/moved", {{"trouble", "redirect"}, {"location", "/drip"}});
  web.add_route("/drip", {{"trouble", "slow_drip"}, {"bytes_per_second", 200}});
  web.add_route("/503", {{"trouble", "status"}, {"status", 503}});
  web.start();
  FetchOptions options = web.options();
  options.timeout = milliseconds(300);
  EXPECT_EQ(outcome(fetch_one(options, web.url("/moved"))), "timeout");
  // The first retry waits 1.5 to 3 s, so it comes in time; the second would wait 3 to 6 s more, so it never does.
  options.timeout = milliseconds(4000);
  options.num_retries = 100;
  options.first_backoff = milliseconds(3000);
  const FetchReply reply = fetch_one(options, web.url("/503"));
  EXPECT_LE(reply.num_retries, 1);
  EXPECT_TRUE((outcome(reply) == "http_503" && reply.num_retries == 1) ||
              outcome(reply) == "timeout")  // Where too little of its second was left.
      << outcome(reply) << " " << reply.num_retries;
}

TEST(fetch, a_url_that_waits_leaves_its_place_to_other_hosts) {
  FetchWeb web;
  web.add_route("/429", {{"trouble", "retry_after"}, {"seconds", 1}, {"times", 1}});
  web.add_route("/a.jpg", {});
  web.start();
  FetchOptions options = web.options();
  options.num_concurrent = 1;
  const auto fetcher = make_fetcher(options);
  ASSERT_TRUE(fetcher->submit({1, web.url("/429")}));
  ASSERT_TRUE(fetcher->submit({2, web.url_of("localhost", "/a.jpg")}));
  EXPECT_EQ(fetcher->next()->id, 2u);
  const auto last = fetcher->next();
  EXPECT_EQ(last->id, 1u);
  EXPECT_EQ(outcome(*last), "ok");
}

TEST(fetch, a_url_that_has_waited_waits_for_a_place) {
  FetchWeb web;
  web.add_route("/429", {{"trouble", "retry_after"}, {"seconds", 1}, {"times", 1}});
  web.add_route("/slow", {{"trouble", "slow_drip"}, {"bytes_per_second", 40'000}});  // Holds the only place for 2.5 s.
  web.start();
  FetchOptions options = web.options();
  options.num_concurrent = 1;
  const auto fetcher = make_fetcher(options);
  ASSERT_TRUE(fetcher->submit({1, web.url("/429")}));
  ASSERT_TRUE(fetcher->submit({2, web.url_of("localhost", "/slow")}));
  const auto first = fetcher->next();
  EXPECT_EQ(first->id, 2u);
  EXPECT_EQ(outcome(*first), "ok");
  const auto second = fetcher->next();
  EXPECT_EQ(second->id, 1u);
  EXPECT_EQ(outcome(*second), "ok");
}

TEST(fetch, reuses_connections) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.add_route("/404", {{"trouble", "status"}, {"status", 404}});
  web.start();
  const auto fetcher = make_fetcher(web.options_without_probes());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(outcome(fetch_with(*fetcher, web.url("/a.jpg"))), "ok");
    EXPECT_EQ(outcome(fetch_with(*fetcher, web.url("/404"))), "http_404");
  }
  EXPECT_EQ(web.web().num_connections(), 1);
  EXPECT_EQ(fetcher->stats().num_connections, 1);
  EXPECT_EQ(fetcher->stats().num_attempts, 40);
  EXPECT_GE(fetcher->stats().num_bytes, 20 * static_cast<int64_t>(FetchWeb::kPictureBytes));
}

TEST(fetch, fetches_many_urls_by_several_threads_each_once) {
  constexpr int kNumThreads = 3;
  constexpr int kUrlsPerThread = 700;
  FetchWeb web;
  web.add_route("/a.jpg", {{"file", "tiny.jpg"}});
  web.add_route("/404", {{"trouble", "status"}, {"status", 404}});
  web.start();
  FetchOptions options = web.options();
  options.num_concurrent = 256;
  const auto fetcher = make_fetcher(options);
  std::multiset<uint64_t> seen;
  {
    std::vector<std::jthread> submitters;
    for (int thread = 0; thread < kNumThreads; ++thread) {
      submitters.emplace_back([&, thread] {
        for (int i = 0; i < kUrlsPerThread; ++i) {
          const uint64_t id = static_cast<uint64_t>(thread) * kUrlsPerThread + i;
          ASSERT_TRUE(fetcher->submit({id, web.url(id % 7 == 0 ? "/404" : "/a.jpg")}));
        }
      });
    }
    for (int i = 0; i < kNumThreads * kUrlsPerThread; ++i) {
      const FetchReply reply = *fetcher->next();
      EXPECT_EQ(outcome(reply), reply.id % 7 == 0 ? "http_404" : "ok");
      seen.insert(reply.id);
    }
  }
  fetcher->close();
  EXPECT_FALSE(fetcher->next());
  EXPECT_EQ(seen.size(), size_t{kNumThreads * kUrlsPerThread});
  EXPECT_EQ(std::set<uint64_t>(seen.begin(), seen.end()).size(), seen.size());
  EXPECT_LE(web.web().num_connections(), 256);
  EXPECT_EQ(fetcher->stats().bytes_in_flight, 0);
}

TEST(fetch, close_finishes_what_is_inside_and_refuses_more) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  const auto fetcher = make_fetcher(web.options());
  for (uint64_t id = 0; id < 40; ++id) {
    ASSERT_TRUE(fetcher->submit({id, web.url("/a.jpg")}));
  }
  fetcher->close();
  EXPECT_FALSE(fetcher->submit({99, web.url("/a.jpg")}));
  int num_replies = 0;
  while (const auto reply = fetcher->next()) {
    EXPECT_EQ(outcome(*reply), "ok");
    ++num_replies;
  }
  EXPECT_EQ(num_replies, 40);
}

TEST(fetch, next_ends_when_closed_without_any_request) {
  FetchWeb web;
  web.start();
  const auto fetcher = make_fetcher(web.options());
  const std::jthread closer([&] { fetcher->close(); });
  EXPECT_FALSE(fetcher->next());
}

TEST(fetch, cancel_frees_blocked_callers_at_once) {
  FetchWeb web;
  web.add_route("/hang", {{"trouble", "hang"}});
  web.start();
  FetchOptions options = web.options();
  options.num_concurrent = 2;
  options.timeout = std::chrono::hours(1);
  const auto fetcher = make_fetcher(options);
  const auto start = std::chrono::steady_clock::now();
  {
    std::jthread submitter([&] {
      while (fetcher->submit({0, web.url("/hang")})) {
      }
    });
    std::jthread taker([&] { EXPECT_FALSE(fetcher->next()); });
    while (web.web().num_requests("/hang") < 2) {
      std::this_thread::yield();
    }
    fetcher->cancel();
  }
  EXPECT_FALSE(fetcher->submit({0, web.url("/hang")}));
  EXPECT_LT(seconds_since(start), 60.0);
}

TEST(fetch, refuses_options_that_make_no_sense) {
  const auto code_of = [](auto change) {
    FetchOptions options;
    change(options);
    return Fetcher::create(options).status().code();
  };
  EXPECT_EQ(code_of([](FetchOptions& o) { o.num_concurrent = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.timeout = milliseconds(0); }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.num_retries = -1; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.first_backoff = milliseconds(-1); }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.max_body_bytes = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.max_bytes_in_flight = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.max_redirects = -1; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.user_agent = "a\r\nCookie: b"; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.per_host = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.per_host_rps = -1; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.max_park = std::chrono::seconds(-1); }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.num_loops = -1; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.resolver.num_tries = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.resolver.servers = {"no address"}; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.network.first_interval = milliseconds(0); }), StatusCode::kInvalidArgument);
  EXPECT_EQ(code_of([](FetchOptions& o) { o.certificate_authorities = "/no/such/file.pem"; }), StatusCode::kNotFound);
}

}  // namespace
}  // namespace darkroom
