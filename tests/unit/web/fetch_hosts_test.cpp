// Many hosts, by names that a stub resolver knows: places, bytes, hops and loops.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "fetch_web.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Every name but those that begin with "inside" is at 127.0.0.1; "both.test" has an address besides at which nobody listens.
class NamedHosts {
 public:
  NamedHosts() : names_([](const StubDns::Question& question) { return answer(question); }) {}

  FetchOptions options(const FetchWeb& web) const {
    FetchOptions options = web.options();
    options.resolver.servers = {names_.server()};
    return options;
  }
  const StubDns& names() const { return names_; }

 private:
  static StubDns::Answer answer(const StubDns::Question& question) {
    if (question.type != StubDns::kA) {
      return {};
    }
    if (question.name.starts_with("inside")) {
      return {.records = {StubDns::a(question.name, "10.0.0.1"), StubDns::a(question.name, "169.254.169.254")}};
    }
    if (question.name == "both.test") {
      return {.records = {StubDns::a(question.name, "127.0.0.9"), StubDns::a(question.name, "127.0.0.1")}};
    }
    return {.records = {StubDns::a(question.name, "127.0.0.1")}};
  }

  StubDns names_;
};

TEST(fetch_hosts, silent_hosts_take_no_place_from_others) {
  constexpr uint64_t kNumSilent = 600;
  constexpr uint64_t kNumGood = 3'000;
  FetchWeb web;
  web.add_route("/hang", {{"trouble", "hang"}});
  web.add_route("/a.jpg", {{"file", "tiny.jpg"}});
  web.start();
  const NamedHosts hosts;
  FetchOptions options = hosts.options(web);
  options.num_concurrent = 256;
  options.timeout = std::chrono::minutes(10);
  const auto fetcher = make_fetcher(options);
  for (uint64_t id = 0; id < kNumSilent; ++id) {  // The oldest rows, more than twice as many as there are places.
    ASSERT_TRUE(fetcher->submit({id, web.url_of(fmt::format("silent{}.test", id % 60), "/hang")}));
  }
  for (uint64_t id = kNumSilent; id < kNumSilent + kNumGood; ++id) {
    ASSERT_TRUE(fetcher->submit({id, web.url_of(fmt::format("good{}.test", id % 60), "/a.jpg")}));
  }
  std::set<uint64_t> seen;
  for (uint64_t i = 0; i < kNumGood; ++i) {
    const auto reply = fetcher->next();
    ASSERT_TRUE(reply);
    ASSERT_EQ(outcome(*reply), "ok");
    seen.insert(reply->id);
  }
  EXPECT_EQ(seen.size(), kNumGood);
  EXPECT_GE(*seen.begin(), kNumSilent);
  EXPECT_EQ(fetcher->stats().num_active, static_cast<int>(kNumSilent));
  EXPECT_GT(fetcher->stats().num_slow, static_cast<int>(kNumSilent) - options.num_concurrent);
}

TEST(fetch_hosts, silent_and_dripping_hosts_end_by_their_deadline) {
  FetchWeb web;
  web.add_route("/hang", {{"trouble", "hang"}});
  web.add_route("/drip", {{"trouble", "slow_drip"}, {"bytes_per_second", 100}});
  web.add_route("/a.jpg", {{"file", "tiny.jpg"}});
  web.start();
  const NamedHosts hosts;
  FetchOptions options = hosts.options(web);
  options.timeout = seconds(10);
  const auto fetcher = make_fetcher(options);
  for (uint64_t id = 0; id < 200; ++id) {
    const char* path = id % 10 == 0 ? "/hang" : id % 10 == 1 ? "/drip" : "/a.jpg";
    ASSERT_TRUE(fetcher->submit({id, web.url_of(fmt::format("host{}.test", id), path)}));
  }
  std::map<std::string, int> outcomes;
  for (int i = 0; i < 200; ++i) {
    ++outcomes[outcome(*fetcher->next())];
  }
  EXPECT_EQ(outcomes, (std::map<std::string, int>{{"ok", 160}, {"timeout", 40}}));
}

TEST(fetch_hosts, many_large_bodies_share_few_bytes_and_a_dripping_one_holds_up_none) {
  constexpr uint64_t kNumBodies = 150;
  FetchWeb web;
  const std::string large(400'000, 'x');
  web.add_file("large.jpg", large);
  web.add_route("/large.jpg", {{"file", "large.jpg"}});
  web.add_route("/drip", {{"file", "large.jpg"}, {"trouble", "slow_drip"}, {"bytes_per_second", 1'000}});
  web.add_route("/chunked", {{"file", "large.jpg"}, {"trouble", "chunked"}});
  web.start();
  const NamedHosts hosts;
  FetchOptions options = hosts.options(web);
  options.num_concurrent = 256;
  options.timeout = std::chrono::minutes(10);
  options.max_bytes_in_flight = 6'400'000;
  options.max_body_bytes = 400'000;
  const auto fetcher = make_fetcher(options);
  ASSERT_TRUE(fetcher->submit({0, web.url_of("drip.test", "/drip")}));  // The oldest.
  for (uint64_t id = 1; id <= kNumBodies; ++id) {
    ASSERT_TRUE(fetcher->submit({id, web.url_of(fmt::format("host{}.test", id % 30), id % 5 == 0 ? "/chunked" : "/large.jpg")}));
  }
  for (uint64_t i = 0; i < kNumBodies; ++i) {
    const auto reply = fetcher->next();
    ASSERT_TRUE(reply);
    ASSERT_NE(reply->id, 0u);
    ASSERT_EQ(outcome(*reply), "ok");
    ASSERT_EQ(*reply->body, large);
  }
  EXPECT_LE(fetcher->stats().peak_bytes_in_flight, options.max_bytes_in_flight + options.max_body_bytes);
  EXPECT_LE(fetcher->stats().bytes_in_flight, options.max_body_bytes);
}

TEST(fetch_hosts, bodies_of_unknown_length_do_not_wait_for_each_other_for_ever) {
  constexpr uint64_t kNumBodies = 20;
  FetchWeb web;
  web.add_route("/hang", {{"trouble", "hang"}});
  web.add_route("/endless", {{"trouble", "endless"}});
  web.start();
  const NamedHosts hosts;
  FetchOptions options = hosts.options(web);
  options.num_concurrent = 256;
  options.timeout = std::chrono::minutes(10);
  options.max_bytes_in_flight = 9'000'000;  // Of two bodies, or of parts of many.
  options.max_body_bytes = 4'000'000;
  const auto fetcher = make_fetcher(options);
  ASSERT_TRUE(fetcher->submit({0, web.url_of("hang.test", "/hang")}));  // The oldest, which may always go on, asks for nothing.
  for (uint64_t id = 1; id <= kNumBodies; ++id) {
    ASSERT_TRUE(fetcher->submit({id, web.url_of(fmt::format("host{}.test", id % 8), "/endless")}));
  }
  for (uint64_t i = 0; i < kNumBodies; ++i) {
    const auto reply = fetcher->next();
    ASSERT_TRUE(reply);
    ASSERT_NE(reply->id, 0u);
    ASSERT_EQ(outcome(*reply), "too_large");
    EXPECT_EQ(reply->num_retries, 0);
  }
  EXPECT_LE(fetcher->stats().peak_bytes_in_flight, options.max_bytes_in_flight + options.max_body_bytes);
}

TEST(fetch_hosts, every_hop_is_resolved_and_checked) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  const uint16_t port = web.web().port();
  FetchWeb first;
  first.add_route("/good", {{"trouble", "redirect"}, {"location", fmt::format("http://other.test:{}/a.jpg", port)}});
  first.add_route("/inside", {{"trouble", "redirect"}, {"location", "http://inside.test/secret"}});
  first.add_route("/port", {{"trouble", "redirect"}, {"location", "http://other.test:22/"}});
  first.start();
  const NamedHosts hosts;
  FetchOptions options = hosts.options(first);
  options.allow_private.push_back(*AllowedNetwork::parse(fmt::format("127.0.0.1:{}", port)));
  const auto fetcher = make_fetcher(options);
  const FetchReply good = fetch_with(*fetcher, first.url_of("one.test", "/good"));
  EXPECT_EQ(outcome(good), "ok");
  EXPECT_EQ(hosts.names().num_questions("other.test"), 2);  // A and AAAA.
  EXPECT_EQ(outcome(fetch_with(*fetcher, first.url_of("one.test", "/inside"))), "blocked_host");
  EXPECT_EQ(hosts.names().num_questions("inside.test"), 2);
  EXPECT_EQ(outcome(fetch_with(*fetcher, first.url_of("one.test", "/port"))), "blocked_host");
  EXPECT_EQ(hosts.names().num_questions("other.test"), 2);  // The port is looked at before the name.
  EXPECT_EQ(fetcher->stats().num_refused, 2);
  EXPECT_EQ(fetcher->stats().num_connections, 2);
}

TEST(fetch_hosts, tries_the_addresses_of_a_host_in_turn) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  const NamedHosts hosts;
  FetchOptions options = hosts.options(web);
  options.allow_private.push_back(*AllowedNetwork::parse(fmt::format("127.0.0.9:{}", web.web().port())));
  const auto fetcher = make_fetcher(options);
  const FetchReply reply = fetch_with(*fetcher, web.url_of("both.test", "/a.jpg"));
  EXPECT_EQ(outcome(reply), "ok");
  EXPECT_EQ(reply.num_retries, 0);
  EXPECT_EQ(fetcher->stats().num_attempts, 2);
}

TEST(fetch_hosts, a_name_that_does_not_exist_is_asked_for_once) {
  FetchWeb web;
  web.start();
  const StubDns names([](const StubDns::Question&) { return StubDns::Answer{.rcode = 3}; });
  FetchOptions options = web.options();
  options.resolver.servers = {names.server()};
  const FetchReply reply = fetch_one(options, "http://nowhere.test/1.jpg");
  EXPECT_EQ(outcome(reply), "dns");
  EXPECT_EQ(reply.num_retries, 0);
  EXPECT_EQ(names.num_questions("nowhere.test"), 2);
}

TEST(fetch_hosts, one_host_gets_no_more_than_its_places) {
  FetchWeb web;
  web.add_route("/hang", {{"trouble", "hang"}});
  web.add_route("/a.jpg", {{"file", "tiny.jpg"}});
  web.start();
  const NamedHosts hosts;
  FetchOptions options = hosts.options(web);
  options.per_host = 3;
  options.timeout = std::chrono::hours(1);
  const auto fetcher = make_fetcher(options);
  for (uint64_t id = 0; id < 7; ++id) {
    ASSERT_TRUE(fetcher->submit({id, web.url_of("one.test", "/hang")}));
  }
  while (web.web().num_requests("/hang") < 3) {
    std::this_thread::yield();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // A fourth would have come; a slow machine only hides it.
  EXPECT_EQ(web.web().num_requests("/hang"), 3);
  fetcher->cancel();
}

TEST(fetch_hosts, several_loops_fetch_each_url_once) {
  FetchWeb web;
  web.add_route("/a.jpg", {{"file", "tiny.jpg"}});
  web.add_route("/404", {{"trouble", "status"}, {"status", 404}});
  web.start();
  const NamedHosts hosts;
  for (const int num_loops : {1, 4}) {
    FetchOptions options = hosts.options(web);
    options.num_loops = num_loops;
    const auto fetcher = make_fetcher(options);
    for (uint64_t id = 0; id < 400; ++id) {
      ASSERT_TRUE(fetcher->submit({id, web.url_of(fmt::format("host{}.test", id % 20), id % 7 == 0 ? "/404" : "/a.jpg")}));
    }
    fetcher->close();
    std::set<uint64_t> seen;
    while (const auto reply = fetcher->next()) {
      EXPECT_EQ(outcome(*reply), reply->id % 7 == 0 ? "http_404" : "ok");
      EXPECT_TRUE(seen.insert(reply->id).second);
    }
    EXPECT_EQ(seen.size(), 400u);
  }
}

TEST(fetch_hosts, a_host_that_asks_for_time_is_left_alone_with_all_its_rows) {
  FetchWeb web;
  web.add_route("/busy", {{"file", "tiny.jpg"}, {"trouble", "retry_after"}, {"seconds", 1}, {"times", 1}});
  web.add_route("/a.jpg", {{"file", "tiny.jpg"}});
  web.start();
  const NamedHosts hosts;
  FetchOptions options = hosts.options(web);
  options.per_host = 1;
  const auto fetcher = make_fetcher(options);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(fetcher->submit({0, web.url_of("busy.test", "/busy")}));
  for (uint64_t id = 1; id <= 5; ++id) {
    ASSERT_TRUE(fetcher->submit({id, web.url_of("busy.test", "/a.jpg")}));
  }
  for (int i = 0; i < 6; ++i) {
    const auto reply = fetcher->next();
    EXPECT_EQ(outcome(*reply), "ok");
    EXPECT_EQ(reply->num_retries, reply->id == 0 ? 1 : 0);
    EXPECT_GE(std::chrono::steady_clock::now() - start, seconds(1));
  }
}

void set_open_files(rlim_t soft, rlim_t hard) {
  const rlimit limit{.rlim_cur = soft, .rlim_max = hard};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST(fetch_hosts_DeathTest, raises_the_soft_limit_of_open_files_and_refuses_only_by_the_hard_one) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto try_with = [](rlim_t soft, rlim_t hard, int num_concurrent) {
    set_open_files(soft, hard);
    FetchOptions options;
    options.num_concurrent = num_concurrent;
    _exit(static_cast<int>(Fetcher::create(options).status().code()));
  };
  const auto refused = static_cast<int>(StatusCode::kFailedPrecondition);
  EXPECT_EXIT(try_with(100, 1000, 900), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(try_with(100, 1000, 937), testing::ExitedWithCode(refused), "");
  EXPECT_EXIT(try_with(1000, 1000, 936), testing::ExitedWithCode(0), "");
}

TEST(fetch_hosts_DeathTest, says_so_when_no_file_can_be_opened_and_ends_no_row) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "UndefinedBehaviorSanitizer, which comes with this sanitizer, opens a pipe to look at an object: without files it "
                  "takes every one for damaged";
#endif
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto fetch_without = [] {
    FetchWeb web;
    web.add_route("/a.jpg", {});
    web.start();
    const auto fetcher = make_fetcher(web.options());
    set_open_files(200, 200);
    while (dup(0) >= 0) {
    }
    EXPECT_TRUE(fetcher->submit({1, web.url("/a.jpg")}));
    const bool has_reply = fetcher->next().has_value();
    const bool may_submit = fetcher->submit({2, web.url("/a.jpg")});
    _exit(has_reply || may_submit ? 99 : static_cast<int>(fetcher->failure().code()));
  };
  EXPECT_EXIT(fetch_without(), testing::ExitedWithCode(static_cast<int>(StatusCode::kResourceExhausted)), "open no more files");
}

}  // namespace
}  // namespace darkroom
