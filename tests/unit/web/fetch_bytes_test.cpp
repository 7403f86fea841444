// Hosts that are given bytes of the limit and do not fill them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "fetch_web.h"
#include "web/fetch_body.h"

namespace darkroom {
namespace {

/// All names are at 127.0.0.1. The limit of bytes is ten bodies of the web's "/a.jpg".
class FewBytes : public testing::Test {
 protected:
  static constexpr int64_t kBodyBytes = 400'000;
  static constexpr uint64_t kNumGood = 100;

  void SetUp() override {
    web_.add_file("a.jpg", std::string(kBodyBytes, 'x'));
    web_.add_file("large.jpg", std::string(3'000'000, 'x'));
    web_.add_route("/a.jpg", {{"file", "a.jpg"}});
    web_.add_route("/hang", {{"trouble", "hang"}});
    web_.add_route("/drip", {{"file", "large.jpg"}, {"trouble", "slow_drip"}, {"bytes_per_second", 100}});
    web_.start();
    FetchOptions options = web_.options();
    options.resolver.servers = {names_.server()};
    options.num_concurrent = 256;
    options.timeout = std::chrono::minutes(10);
    options.max_bytes_in_flight = 10 * kBodyBytes;
    fetcher_ = make_fetcher(options);
  }

  void submit(uint64_t first, uint64_t count, const std::string& path) {
    for (uint64_t id = first; id < first + count; ++id) {
      ASSERT_TRUE(fetcher_->submit({id, web_.url_of(fmt::format("host{}{}.test", id % 40, path.substr(1)), path)}));
    }
  }
  /// Rows of these ids, and no others, end well.
  void expect_good(uint64_t first, uint64_t count) {
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < count; ++i) {
      const auto reply = fetcher_->next();
      ASSERT_TRUE(reply);
      ASSERT_EQ(outcome(*reply), "ok");
      ASSERT_TRUE(reply->id >= first && reply->id < first + count) << reply->id;
      seen.insert(reply->id);
    }
    EXPECT_EQ(seen.size(), count);
  }
  /// From now on a body of this size is expected.
  void let_it_learn_the_size() {
    submit(0, kNumGood, "/a.jpg");
    expect_good(0, kNumGood);
  }

  FetchWeb web_;
  StubDns names_{[](const StubDns::Question& question) {
    return question.type == StubDns::kA ? StubDns::Answer{.records = {StubDns::a(question.name, "127.0.0.1")}} : StubDns::Answer{};
  }};
  std::unique_ptr<Fetcher> fetcher_;
};

TEST_F(FewBytes, of_silent_hosts_are_given_to_others) {
  let_it_learn_the_size();
  submit(1'000, 40, "/hang");
  submit(2'000, kNumGood, "/a.jpg");
  expect_good(2'000, kNumGood);
}

TEST_F(FewBytes, of_large_bodies_that_drip_are_given_to_others) {
  submit(1'000, 20, "/drip");
  submit(2'000, kNumGood, "/a.jpg");
  expect_good(2'000, kNumGood);
}

/// A body of this Content-Length of which as much has come as the test says.
class LargeBody : public testing::Test {
 protected:
  void SetUp() override {
    memory_.enter(1);
    rules_.inbox = *FetchInbox::create();
    body_.emplace(rules_, 1, 1);
  }
  void begin(std::optional<int64_t> content_length) {
    HttpHead head;
    head.status = 200;
    head.content_length = content_length;
    EXPECT_EQ(body_->headers(head), HttpSink::Want::kBody);
  }
  void take(size_t num_bytes) {
    const std::vector<std::byte> piece(num_bytes);
    EXPECT_EQ(body_->bytes(piece), HttpSink::Take::kTaken);
  }
  size_t held() const { return memory_.held_bytes(1); }

  BodyMemory memory_{1 << 30};
  FetchBodyRules rules_{.max_body_bytes = 50 << 20, .respect = {}, .agent = {}, .memory = memory_, .inbox = nullptr};
  std::optional<FetchBody> body_;
};

TEST_F(LargeBody, is_granted_its_length_up_to_a_mebibyte_at_once_and_then_four_times_what_has_come) {
  body_->expect(16 << 10);
  begin(50 << 20);
  take(1000);
  EXPECT_EQ(held(), 16u << 10);
  take(16 << 10);
  EXPECT_EQ(held(), 1u << 20);
  for (int i = 0; i < 64; ++i) {
    take(16 << 10);
  }
  EXPECT_EQ(held(), 4 * (1000u + (64 << 14)));
  for (int i = 0; i < 5; ++i) {
    take(4 << 20);
  }
  EXPECT_EQ(held(), 50u << 20);
}

TEST_F(LargeBody, that_does_not_come_gives_back_what_it_has_not_filled_and_asks_again) {
  body_->expect(1 << 20);
  body_->return_unused();
  EXPECT_EQ(held(), 0u);
  begin(3'000'000);
  take(1000);
  EXPECT_EQ(held(), 1u << 20);
  body_->return_unused();
  body_->return_unused();
  EXPECT_EQ(held(), 1000u);
  take(1000);
  EXPECT_EQ(held(), 1u << 20);
}

TEST_F(LargeBody, that_waits_for_its_first_bytes_asks_no_more_when_it_is_slow) {
  BodyMemory few(1000);
  few.enter(1);
  few.set_held(1, 1000);
  few.enter(2);
  FetchBodyRules rules{.max_body_bytes = 1 << 20, .respect = {}, .agent = {}, .memory = few, .inbox = rules_.inbox};
  FetchBody body(rules, 2, 2);
  body.expect(500);
  EXPECT_EQ(few.num_waiting(), 1u);
  body.return_unused();
  EXPECT_EQ(few.num_waiting(), 0u);
  few.leave(1);
  EXPECT_EQ(few.held_bytes(2), 0u);
}

}  // namespace
}  // namespace darkroom
