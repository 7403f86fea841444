#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "fetch_web.h"
#include "web/robots_files.h"

namespace darkroom {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using RobotsKind = RobotsFiles::Verdict::Kind;

const HopPolicy& any_port() {
  static const HopPolicy policy({*AllowedNetwork::parse("127.0.0.0/8")});
  return policy;
}
UrlHop hop_to(const std::string& url) { return *UrlHop::parse(url, any_port()); }
RobotsAnswer rules(const std::string& text) { return RobotsRules::parse(text, "darkroom"); }
RowResult<std::string> failed(RowErrorCode code, int status = 0) { return RowError{code, status, {}}; }

const RobotsFiles::Instant kNow{hours(1'000)};

TEST(RobotsFiles, asks_once_for_all_rows_of_an_origin) {
  RobotsFiles files({.robots = true});
  EXPECT_EQ(files.ask(hop_to("http://a.org/1"), 1, kNow).kind, RobotsKind::kAsk);
  EXPECT_EQ(files.ask(hop_to("http://a.org/2"), 2, kNow).kind, RobotsKind::kWait);
  EXPECT_EQ(files.ask(hop_to("https://a.org/1"), 3, kNow).kind, RobotsKind::kAsk);
  EXPECT_EQ(files.ask(hop_to("http://a.org:8080/1"), 4, kNow).kind, RobotsKind::kAsk);
  EXPECT_EQ(files.tell("http://a.org", rules("User-agent: *\nDisallow: /private\n"), kNow), (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(files.ask(hop_to("http://a.org/1?x"), 5, kNow).kind, RobotsKind::kAllowed);
  const auto refused = files.ask(hop_to("http://a.org/private/1"), 6, kNow);
  EXPECT_EQ(refused.kind, RobotsKind::kRefused);
  EXPECT_EQ(refused.error->name(), "opted_out");
  EXPECT_EQ(files.ask(hop_to("https://a.org/private/1"), 7, kNow).kind, RobotsKind::kWait);
}

TEST(RobotsFiles, says_where_the_file_is) {
  EXPECT_EQ(RobotsFiles::robots_url(hop_to("https://a.org/x/y?z")), "https://a.org/robots.txt");
  EXPECT_EQ(RobotsFiles::robots_url(hop_to("http://[2001:db8::1]:8080?z")), "http://[2001:db8::1]:8080/robots.txt");
}

TEST(RobotsFiles, obeys_what_it_is_told_to) {
  const std::string text = "User-agent: *\nDisallow: /robots\nContent-Usage: /prefs train-ai=n\n";
  for (const bool robots : {false, true}) {
    for (const bool aipref : {false, true}) {
      RobotsFiles files({.robots = robots, .aipref = aipref});
      files.tell("http://a.org", rules(text), kNow);
      EXPECT_EQ(files.ask(hop_to("http://a.org/robots/1"), 1, kNow).kind, robots ? RobotsKind::kRefused : RobotsKind::kAllowed);
      EXPECT_EQ(files.ask(hop_to("http://a.org/prefs/1"), 1, kNow).kind, aipref ? RobotsKind::kRefused : RobotsKind::kAllowed);
      EXPECT_EQ(files.ask(hop_to("http://a.org/1"), 1, kNow).kind, RobotsKind::kAllowed);
    }
  }
}

TEST(RobotsFiles, are_forgotten_after_a_day_and_unknown_ones_after_ten_minutes) {
  RobotsFiles files({.robots = true});
  files.tell("http://a.org", NoRobotsFile(), kNow);
  files.tell("http://b.org", RowError{RowErrorCode::kDns}, kNow);
  EXPECT_EQ(files.ask(hop_to("http://a.org/1"), 1, kNow + hours(24) - minutes(1)).kind, RobotsKind::kAllowed);
  EXPECT_EQ(files.ask(hop_to("http://a.org/1"), 1, kNow + hours(24)).kind, RobotsKind::kAsk);
  EXPECT_EQ(files.ask(hop_to("http://b.org/1"), 2, kNow + minutes(9)).error->name(), "dns");
  EXPECT_EQ(files.ask(hop_to("http://b.org/1"), 2, kNow + minutes(10)).kind, RobotsKind::kAsk);
}

TEST(RobotsFiles, are_bounded_by_number_and_bytes) {
  RobotsFiles few({.robots = true}, 2);
  few.tell("http://a.org", NoRobotsFile(), kNow);
  few.tell("http://b.org", NoRobotsFile(), kNow);
  EXPECT_EQ(few.ask(hop_to("http://a.org/"), 1, kNow).kind, RobotsKind::kAllowed);  // Used later than b.
  few.tell("http://c.org", NoRobotsFile(), kNow);
  EXPECT_EQ(few.num_kept(), 2u);
  EXPECT_EQ(few.ask(hop_to("http://b.org/"), 1, kNow).kind, RobotsKind::kAsk);
  EXPECT_EQ(few.ask(hop_to("http://a.org/"), 1, kNow).kind, RobotsKind::kAllowed);
  std::string large = "User-agent: *\n";
  for (int i = 0; i < 2'000; ++i) {
    large += fmt::format("Disallow: /{:040}\n", i);
  }
  RobotsFiles small({.robots = true}, 1'000, 300'000);
  for (int i = 0; i < 10; ++i) {
    small.tell(fmt::format("http://host{}.org", i), rules(large), kNow);
  }
  EXPECT_GE(small.num_kept(), 1u);
  EXPECT_LE(small.num_kept(), 3u);
  for (int i = 0; i < 100; ++i) {
    small.tell(fmt::format("http://{}{}", std::string(16'000, 'a'), i), RowError{RowErrorCode::kDns}, kNow);
  }
  EXPECT_LE(small.num_kept(), 10u) << "names of hosts that do not exist are bytes, too";
}

TEST(RobotsFiles, a_missing_file_allows_and_an_unreadable_one_does_not) {
  const auto is_none = [](const RobotsAnswer& answer) { return std::holds_alternative<NoRobotsFile>(answer); };
  for (const int status : {400, 401, 403, 404, 410, 204, 300}) {
    EXPECT_TRUE(is_none(read_robots_reply(failed(RowErrorCode::kHttpStatus, status), "darkroom"))) << status;
  }
  for (const auto code : {RowErrorCode::kTooManyRedirects, RowErrorCode::kBadUrl, RowErrorCode::kBlockedHost}) {
    EXPECT_TRUE(is_none(read_robots_reply(failed(code), "darkroom")));
  }
  for (const int status : {429, 500, 503, 599}) {
    const RobotsAnswer answer = read_robots_reply(failed(RowErrorCode::kHttpStatus, status), "darkroom");
    ASSERT_TRUE(std::holds_alternative<RowError>(answer)) << status;
    EXPECT_EQ(std::get<RowError>(answer).name(), "opted_out") << status;
  }
  for (const auto code : {RowErrorCode::kDns, RowErrorCode::kConnect, RowErrorCode::kTls, RowErrorCode::kTimeout}) {
    EXPECT_EQ(std::get<RowError>(read_robots_reply(failed(code), "darkroom")).code, code);  // So would the row itself have ended.
  }
  EXPECT_EQ(std::get<RowError>(read_robots_reply(failed(RowErrorCode::kTruncated), "darkroom")).name(), "opted_out");
  EXPECT_TRUE(std::holds_alternative<RobotsRules>(read_robots_reply(std::string("User-agent: *"), "darkroom")));
}

class FetchRobots : public testing::Test {
 protected:
  void start(const std::string& robots, nlohmann::json trouble = {}) {
    web_.add_file("robots.txt", robots);
    trouble["file"] = "robots.txt";
    web_.add_route("/robots.txt", trouble);
    for (const char* path : {"/a.jpg", "/private/a.jpg"}) {
      web_.add_route(path, {{"file", "tiny.jpg"}});
    }
    web_.add_route("/moved", {{"trouble", "redirect"}, {"location", "/private/a.jpg"}});
    web_.start();
  }
  FetchOptions options() const {
    FetchOptions options = web_.options();
    options.respect.robots = true;
    return options;
  }

  FetchWeb web_;
};

TEST_F(FetchRobots, are_obeyed_at_every_hop_and_asked_for_once) {
  start("User-agent: darkroom\nDisallow: /private\n");
  const auto fetcher = make_fetcher(options());
  for (uint64_t id = 0; id < 9; ++id) {
    ASSERT_TRUE(fetcher->submit({id, web_.url(id % 3 == 0 ? "/a.jpg" : id % 3 == 1 ? "/private/a.jpg" : "/moved")}));
  }
  std::map<std::string, int> outcomes;
  for (int i = 0; i < 9; ++i) {
    ++outcomes[outcome(*fetcher->next())];
  }
  EXPECT_EQ(outcomes, (std::map<std::string, int>{{"ok", 3}, {"opted_out", 6}}));
  EXPECT_EQ(web_.web().num_requests("/robots.txt"), 1);
  EXPECT_EQ(web_.web().num_requests("/private/a.jpg"), 0);
  EXPECT_EQ(fetcher->stats().bytes_in_flight, 0);
}

TEST_F(FetchRobots, are_not_asked_for_unless_we_are_told_to) {
  start("User-agent: *\nDisallow: /\n");
  EXPECT_EQ(outcome(fetch_one(web_.options(), web_.url("/a.jpg"))), "ok");
  EXPECT_EQ(web_.web().num_requests("/robots.txt"), 0);
}

TEST_F(FetchRobots, that_are_missing_allow_everything) {
  start("", {{"trouble", "status"}, {"status", 404}});
  EXPECT_EQ(outcome(fetch_one(options(), web_.url("/a.jpg"))), "ok");
}

TEST_F(FetchRobots, that_fail_are_tried_again_and_then_mean_no) {
  start("User-agent: *\nAllow: /\n", {{"trouble", "status"}, {"status", 500}});
  const auto fetcher = make_fetcher(options());
  EXPECT_EQ(outcome(fetch_with(*fetcher, web_.url("/a.jpg"))), "opted_out");
  EXPECT_EQ(web_.web().num_requests("/robots.txt"), 3);
  EXPECT_EQ(fetcher->stats().num_retries, 0) << "of listed URLs";
  EXPECT_EQ(web_.web().num_requests("/a.jpg"), 0);
}

TEST_F(FetchRobots, of_any_length_are_read_to_their_limit) {
  std::string text = "User-agent: *\nDisallow: /private\n";
  while (text.size() < 2 * RobotsRules::kMaxBytes) {
    text += "# " + std::string(1'000, 'x') + "\n";
  }
  start(text + "Disallow: /a.jpg\n");
  FetchOptions small = options();
  small.max_body_bytes = 1'000;
  const auto fetcher = make_fetcher(small);
  EXPECT_EQ(outcome(fetch_with(*fetcher, web_.url("/private/a.jpg"))), "opted_out");
  EXPECT_EQ(outcome(fetch_with(*fetcher, web_.url("/a.jpg"))), "ok");
}

TEST_F(FetchRobots, for_which_the_name_of_the_host_leaves_no_room_end_its_rows_as_the_host_would) {
  const std::string url = "http://" + std::string(16'384 - 8, 'a') + "/";
  web_.add_route("/far", {{"trouble", "redirect"}, {"location", url}});
  start("");
  EXPECT_EQ(outcome(fetch_one(web_.options(), url)), "dns");
  const auto fetcher = make_fetcher(options());
  for (const std::string& row : {url, web_.url("/far"), url}) {
    ASSERT_TRUE(fetcher->submit({1, row}));
    const auto reply = fetcher->next();
    ASSERT_TRUE(reply.has_value()) << fetcher->failure().to_string();
    EXPECT_EQ(outcome(*reply), "dns");
  }
  EXPECT_EQ(outcome(fetch_with(*fetcher, web_.url("/a.jpg"))), "ok");
  EXPECT_TRUE(fetcher->failure().is_ok());
}

TEST_F(FetchRobots, of_a_host_that_cannot_be_reached_end_its_rows_as_the_host_would) {
  start("");
  const std::string url = web_.url("/a.jpg");
  const FetchOptions asked = options();
  web_.web().stop();
  EXPECT_EQ(outcome(fetch_one(asked, url)), "connect");
}

}  // namespace
}  // namespace darkroom
