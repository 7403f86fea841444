// Names that nobody answers for, among rows whose names are known well.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "fetch_web.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;

TEST(fetch_lookups, silent_names_spoil_no_row_of_another_name_and_are_no_outage) {
  constexpr uint64_t kNumSilent = 24;
  constexpr uint64_t kNumGood = 50;
  FetchWeb web;
  web.add_route("/a.jpg", {{"file", "tiny.jpg"}});
  web.start();
  const StubDns names([](const StubDns::Question& question) -> StubDns::Answer {
    if (question.name.starts_with("silent")) {
      return {.is_silent = true};
    }
    const bool is_known = question.name.ends_with(".test");
    return is_known && question.type == StubDns::kA ? StubDns::Answer{.records = {StubDns::a(question.name, "127.0.0.1")}}
                                                    : StubDns::Answer{.rcode = is_known ? 0 : 3};
  });
  FetchOptions options = web.options();
  options.timeout = std::chrono::minutes(1);
  options.num_retries = 0;
  options.resolver.servers = {names.server()};
  options.resolver.try_time = milliseconds(1'500);
  options.resolver.num_tries = 1;
  options.resolver.max_queries = 8;
  options.num_concurrent = 256;
  const auto fetcher = make_fetcher(options);
  for (uint64_t id = 0; id < kNumSilent + kNumGood; ++id) {
    const std::string host = fmt::format("{}{}.test", id < kNumSilent ? "silent" : "good", id);
    ASSERT_TRUE(fetcher->submit({id, web.url_of(host, "/a.jpg")}));
  }
  std::map<std::string, int> silent, good;
  for (uint64_t i = 0; i < kNumSilent + kNumGood; ++i) {
    const auto reply = fetcher->next();
    ASSERT_TRUE(reply);
    ++(reply->id < kNumSilent ? silent : good)[outcome(*reply)];
  }
  EXPECT_EQ(good, (std::map<std::string, int>{{"ok", static_cast<int>(kNumGood)}}));
  EXPECT_EQ(silent, (std::map<std::string, int>{{"dns", static_cast<int>(kNumSilent)}}));
  for (uint64_t id = 0; id < kNumSilent; ++id) {  // An outage would have asked for it again.
    EXPECT_EQ(names.num_questions(fmt::format("silent{}.test", id)), 2) << id;
  }
}

}  // namespace
}  // namespace darkroom
