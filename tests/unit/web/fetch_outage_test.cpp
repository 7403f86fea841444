// Our own network fails while a fetcher works: no row is lost to it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>

#include "fetch_web.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;

/// A resolver that works, refuses to, or says nothing, as the test likes.
class Weather {
 public:
  enum class State { kFine, kServerFails, kSilent };

  Weather() : names_([this](const StubDns::Question& question) { return answer(question); }) {}
  void set(State state) { state_ = state; }

  FetchOptions options(const FetchWeb& web) const {
    FetchOptions options = web.options();
    options.resolver.servers = {names_.server()};
    options.resolver.try_time = milliseconds(1000);
    options.resolver.num_tries = 1;
    return options;
  }

 private:
  StubDns::Answer answer(const StubDns::Question& question) const {
    switch (state_) {
      case State::kServerFails:
        return {.rcode = 2};
      case State::kSilent:
        return {.is_silent = true};
      case State::kFine:
        break;
    }
    if (!question.name.ends_with(".test") || question.type != StubDns::kA) {
      return {.rcode = question.name.ends_with(".test") ? 0 : 3};
    }
    return {.records = {StubDns::a(question.name, "127.0.0.1")}};
  }

  std::atomic<State> state_ = State::kFine;
  StubDns names_;
};

class fetch_outage : public testing::TestWithParam<Weather::State> {};

TEST_P(fetch_outage, of_the_resolver_in_the_middle_of_a_run_loses_no_row) {
  constexpr uint64_t kNumRows = 300;
  FetchWeb web;
  web.add_route("/a.jpg", {{"file", "tiny.jpg"}});
  web.start();
  Weather weather;
  const auto fetcher = make_fetcher(weather.options(web));
  const auto submit = [&](uint64_t first, uint64_t last) {
    for (uint64_t id = first; id < last; ++id) {
      ASSERT_TRUE(fetcher->submit({id, web.url_of(fmt::format("host{}.test", id), "/a.jpg")}));
    }
  };
  submit(0, kNumRows / 3);
  std::map<std::string, int> outcomes;
  for (uint64_t i = 0; i < kNumRows / 3; ++i) {
    ++outcomes[outcome(*fetcher->next())];
  }
  weather.set(GetParam());
  submit(kNumRows / 3, kNumRows);
  fetcher->close();
  const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!fetcher->stats().is_network_out) {
    ASSERT_LT(std::chrono::steady_clock::now(), patience) << "the outage is not noticed";
    std::this_thread::yield();
  }
  const int64_t num_requests = web.web().num_requests();
  weather.set(Weather::State::kFine);
  while (const auto reply = fetcher->next()) {
    ++outcomes[outcome(*reply)];
  }
  EXPECT_EQ(outcomes, (std::map<std::string, int>{{"ok", static_cast<int>(kNumRows)}}));
  EXPECT_EQ(num_requests, static_cast<int64_t>(kNumRows / 3));
  EXPECT_FALSE(fetcher->stats().is_network_out);
}

INSTANTIATE_TEST_SUITE_P(resolver, fetch_outage, testing::Values(Weather::State::kServerFails, Weather::State::kSilent));

TEST(fetch_no_outage, names_whose_servers_fail_end_while_others_are_answered) {
  FetchWeb web;
  web.add_route("/a.jpg", {{"file", "tiny.jpg"}});
  web.start();
  const StubDns names([](const StubDns::Question& question) -> StubDns::Answer {
    if (question.name.starts_with("broken")) {
      return {.rcode = 2};
    }
    return question.name.ends_with(".test") && question.type == StubDns::kA
               ? StubDns::Answer{.records = {StubDns::a(question.name, "127.0.0.1")}}
               : StubDns::Answer{.rcode = question.name.ends_with(".test") ? 0 : 3};
  });
  FetchOptions options = web.options();
  options.resolver.servers = {names.server()};
  options.resolver.num_tries = 1;
  const auto fetcher = make_fetcher(options);
  for (uint64_t id = 0; id < 100; ++id) {
    ASSERT_TRUE(fetcher->submit({id, web.url_of(fmt::format("{}{}.test", id % 10 == 0 ? "broken" : "host", id), "/a.jpg")}));
  }
  std::map<std::string, int> outcomes;
  for (int i = 0; i < 100; ++i) {
    const auto reply = fetcher->next();
    ++outcomes[outcome(*reply)];
    EXPECT_EQ(reply->num_retries, reply->id % 10 == 0 ? 2 : 0);
  }
  EXPECT_EQ(outcomes, (std::map<std::string, int>{{"dns", 10}, {"ok", 90}}));
}

TEST(fetch_no_outage, a_list_of_silent_hosts_ends_although_nobody_ever_answers) {
  FetchWeb web;
  web.add_route("/hang", {{"trouble", "hang"}});
  web.start();
  FetchOptions options = web.options();
  options.timeout = milliseconds(200);
  const auto fetcher = make_fetcher(options);
  for (uint64_t id = 0; id < 5; ++id) {
    ASSERT_TRUE(fetcher->submit({id, web.url("/hang")}));
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(outcome(*fetcher->next()), "timeout");
  }
}

}  // namespace
}  // namespace darkroom
