#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/files/claim.h"
#include "s3_server.h"
#include "stores/s3_object_store.h"

// What becomes of requests while nothing of a store can be reached. Every wait is a leap of the clock.

namespace darkroom {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using S3Fault = FakeS3::Fault;

constexpr int kForEver = 1'000'000'000;

class S3Outage : public testing::Test {
 protected:
  S3Outage() {
    server_.outage_patience = hours(12);
    server_.fake.fault = [this](const FakeS3::Call& call) {
      num_probes_ += call.operation == "head" && call.key.empty() ? 1 : 0;
      return num_lost_-- > 0 ? fault_.load() : S3Fault::kNone;
    };
  }

  /// So many requests get no answer.
  void lose(int num_requests, S3Fault fault = S3Fault::kReset) {
    fault_ = fault;
    num_lost_ = num_requests;
  }
  std::unique_ptr<S3Client> known_store() {
    auto client = server_.make_client();
    EXPECT_TRUE(put_text(*client, "first", "x", "w").is_ok());
    return client;
  }
  int64_t num_outages() {
    return server_.metrics
        .counter("darkroom_store_outages_total", "How often a store that had answered before could not be reached.", {{"scheme", "s3"}})
        .value();
  }
  double num_out() {
    return server_.metrics
        .gauge("darkroom_stores_out_of_reach", "Stores that had answered before and cannot be reached now.", {{"scheme", "s3"}})
        .value();
  }

  std::atomic<int> num_lost_ = 0;
  std::atomic<int> num_probes_ = 0;
  std::atomic<S3Fault> fault_ = S3Fault::kReset;
  S3Server server_;
};

TEST_F(S3Outage, is_waited_for_though_the_tries_of_a_request_are_over) {
  const auto client = known_store();
  const auto began = server_.clock.now();
  lose(100);
  testing::internal::CaptureStderr();
  EXPECT_EQ(put_text(*client, "k", "bytes", "w").value(), S3Outcome::kStored);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, AllOf(HasSubstr("s3://pictures: the store cannot be reached; waiting"), HasSubstr("the store answers again")));
  EXPECT_EQ(server_.fake.bytes_of("k"), "bytes");
  EXPECT_GT(server_.clock.now() - began, std::chrono::minutes(5));
  EXPECT_EQ(num_outages(), 1);
  EXPECT_EQ(num_out(), 0);
}

TEST_F(S3Outage, of_silence_is_waited_for_too) {
  S3Options options = server_.options();
  options.timeout = seconds(6);  // Three silent tries of 2 s; less, and a busy machine is silent, too.
  const auto client = server_.make_client(options);
  ASSERT_TRUE(put_text(*client, "first", "x", "w").is_ok());
  lose(4, S3Fault::kHang);
  EXPECT_EQ(put_text(*client, "k", "bytes", "w").value(), S3Outcome::kStored);
  EXPECT_GE(num_probes_, 1);
}

TEST_F(S3Outage, a_store_that_never_answered_fails_as_soon_as_without_patience) {
  lose(kForEver);
  S3Options options = server_.options();
  options.max_tries = 100;
  const auto began = server_.clock.now();
  EXPECT_EQ(server_.make_client(options)->head(in_bucket("k")).status().code(), StatusCode::kUnavailable);
  EXPECT_LE(server_.clock.now() - began, seconds(12));
  EXPECT_EQ(num_probes_, 0);
  EXPECT_EQ(num_outages(), 0);
}

TEST_F(S3Outage, a_bucket_that_never_answered_may_be_another_host_and_is_not_waited_for) {
  const auto client = known_store();
  lose(kForEver);
  const Status status = client->head({.bucket = "elsewhere", .key = "k"}).status();
  EXPECT_THAT(status.message(), HasSubstr("gave up after 8 tries"));
  EXPECT_EQ(num_probes_, 0);
}

TEST_F(S3Outage, is_none_where_one_request_alone_gets_no_answer) {
  const auto client = known_store();
  server_.fake.fault = [](const FakeS3::Call& call) { return call.operation == "put" ? S3Fault::kReset : S3Fault::kNone; };
  const auto began = server_.clock.now();
  const Status status = put_text(*client, "k", "bytes", "w").status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("gave up after 8 tries"));
  EXPECT_LE(server_.clock.now() - began, seconds(120));
  EXPECT_EQ(num_outages(), 0);
}

TEST_F(S3Outage, is_none_where_the_store_answers_that_it_failed) {
  const auto client = known_store();
  lose(kForEver, S3Fault::kInternal);
  EXPECT_THAT(client->head(in_bucket("first")).status().message(), HasSubstr("gave up after 8 tries"));
  EXPECT_EQ(num_probes_, 0);
}

TEST_F(S3Outage, that_does_not_end_is_given_up) {
  server_.outage_patience = seconds(600);
  const auto client = known_store();
  lose(kForEver);
  const auto began = server_.clock.now();
  const Status status = client->head(in_bucket("first")).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("nobody answered for 600 s"), HasSubstr("gave up after 8 tries")));
  EXPECT_GE(server_.clock.now() - began, seconds(600));
  EXPECT_LE(server_.clock.now() - began, seconds(720));
  lose(0);
  EXPECT_TRUE(client->head(in_bucket("first")).is_ok());
  EXPECT_EQ(num_out(), 0);
}

TEST_F(S3Outage, is_said_once_however_many_wait) {
  const auto client = known_store();
  lose(400);
  testing::internal::CaptureStderr();
  {
    std::vector<std::jthread> writers;
    for (int i = 0; i < 4; ++i) {
      writers.emplace_back([&, i] { EXPECT_TRUE(put_text(*client, fmt::format("k{}", i), "bytes", "w").is_ok()); });
    }
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 2) << said;
  EXPECT_EQ(num_outages(), 1);
}

TEST_F(S3Outage, a_stop_ends_the_wait_at_once) {
  FakeClock clock;
  S3Client client(server_.options(), server_.keys(), {*server_.http, clock, &server_.metrics, server_.stop.get_token(), hours(12)});
  ASSERT_TRUE(put_text(client, "first", "x", "w").is_ok());
  lose(kForEver);
  std::jthread caller([&] { EXPECT_EQ(client.head(in_bucket("first")).status().code(), StatusCode::kCancelled); });
  while (num_out() == 0) {
    ASSERT_TRUE(clock.await_waiting(1));
    clock.advance(seconds(20));
  }
  server_.stop.request_stop();
}

TEST_F(S3Outage, what_takes_back_an_upload_waits_for_nothing) {
  const auto client = known_store();
  lose(kForEver);
  const auto began = server_.clock.now();
  EXPECT_EQ(client->abort(in_bucket("first"), "id", S3Patience::kLeast).code(), StatusCode::kUnavailable);
  EXPECT_LE(server_.clock.now() - began, server_.options().least_patience);
  EXPECT_EQ(num_probes_, 0);
}

TEST_F(S3Outage, an_upload_in_parts_survives_it) {
  S3Store store(known_store());
  std::atomic<bool> has_begun = false;
  server_.fake.after = [&](const FakeS3::Call& call) {
    if (call.operation == "upload_part" && !has_begun.exchange(true)) {
      lose(100);  // From the first part on.
    }
  };
  std::string text;
  for (int i = 0; i < 95; ++i) {
    text += fmt::format("{:010}", i);  // Ten parts of 100 bytes, the last one shorter.
  }
  const auto object = store.begin_object(std::string(FakeS3::kBucket) + "/folder", "name").value();
  ASSERT_TRUE(object->write_text(text).is_ok());
  EXPECT_EQ(object->publish().value(), PublishOutcome::kPublished);
  EXPECT_EQ(server_.fake.bytes_of("folder/name"), text);
  EXPECT_EQ(server_.fake.num_uploads(), 0u);
  EXPECT_GE(num_outages(), 1);
}

/// Claims in a bucket that goes out of reach at a call that a test names, until more than a claim's life has passed; meanwhile another
/// machine, to which it is not, takes the claim.
class ClaimsInAnOutage : public S3Outage {
 protected:
  ClaimsInAnOutage() {
    server_.fake.fault = [this](const FakeS3::Call& call) {
      const std::lock_guard hold(mutex_);
      if (call.operation == last_ && call.key == kKey && num_before_last_-- == 0) {
        is_out_ = true;
        began_ = server_.clock.wall();
      }
      if (is_out_ && server_.clock.wall() - began_ > kOutage) {
        is_out_ = false;
        server_.fake.with_state([this](FakeS3Objects& state) { state.put(kKey, claim_of("another", kClaimLifetime), "", false); });
      }
      return is_out_ ? S3Fault::kReset : S3Fault::kNone;
    };
  }
  std::string claim_of(const std::string& owner, std::chrono::minutes ends_in) {
    const auto expires = std::chrono::floor<std::chrono::milliseconds>(server_.clock.wall() + ends_in).time_since_epoch();
    return fmt::format(R"({{"owner":"{}","expires":{}}})", owner, expires.count());
  }
  void set_claim(const std::string& owner, std::chrono::minutes ends_in) {
    ASSERT_TRUE(store_.replace_small(place_.path, claim_of(owner, ends_in)).is_ok());
  }
  /// From the call `operation` on, of which so many come before it.
  void goes_out_at(const std::string& operation, int num_before = 0) {
    const std::lock_guard hold(mutex_);
    last_ = operation;
    num_before_last_ = num_before;
  }
  /// As the thread that renews claims does, which tries again later.
  Result<ClaimHolder> renew() {
    Result<ClaimHolder> holder = renew_claim(place_, "one", server_.clock);
    return holder.status().code() == StatusCode::kUnavailable ? renew_claim(place_, "one", server_.clock) : std::move(holder);
  }
  std::string owner() { return read_claim(place_).value()->owner; }

  static constexpr const char* kKey = "job/_claims/000000";
  static constexpr std::chrono::minutes kOutage{60};
  std::mutex mutex_;  // Guards what follows.
  std::string last_;
  int num_before_last_ = 0;
  bool is_out_ = false;
  WallTime began_ = {};
  S3Store store_{known_store()};
  const Location place_{&store_, std::string(FakeS3::kBucket) + "/" + kKey};
};

TEST_F(ClaimsInAnOutage, what_another_took_is_not_renewed) {
  for (const char* last : {"get", "put"}) {
    set_claim("one", kClaimLifetime);
    goes_out_at(last);
    EXPECT_EQ(renew().value(), ClaimHolder::kOthers) << last;
    EXPECT_EQ(owner(), "another") << last;
  }
}

TEST_F(ClaimsInAnOutage, what_another_took_is_not_taken) {
  // The try to make it, the look at whose it is, and what replaces the one that has expired.
  for (const auto& [last, num_before] : {std::pair("put", 0), {"get", 0}, {"put", 1}}) {
    set_claim("lost", std::chrono::minutes(-1));
    goes_out_at(last, num_before);
    EXPECT_EQ(take_claim(place_, "one", server_.clock).value(), ClaimHolder::kOthers) << last << num_before;
    EXPECT_EQ(owner(), "another") << last << num_before;
  }
}

TEST_F(ClaimsInAnOutage, one_that_is_made_after_it_is_live) {
  std::atomic<bool> has_begun = false;
  server_.fake.fault = [&](const FakeS3::Call& call) {
    if (call.key == kKey && call.operation == "put" && !has_begun.exchange(true)) {
      lose(400);
    }
    return num_lost_-- > 0 ? S3Fault::kReset : S3Fault::kNone;
  };
  EXPECT_EQ(take_claim(place_, "one", server_.clock).value(), ClaimHolder::kOurs);
  EXPECT_TRUE(read_claim(place_).value()->is_live(server_.clock.wall()));
}

TEST_F(S3Outage, keys_that_nobody_gives_out_meanwhile_are_waited_for) {
  const S3KeySource keys = [&](bool) -> Result<std::optional<S3Keys>> {
    return num_lost_ > 0 ? Result<std::optional<S3Keys>>(Status::unavailable("nobody gives out keys")) : std::optional(server_.used_keys);
  };
  S3Client client(server_.options(), keys, {*server_.http, server_.clock, &server_.metrics, server_.stop.get_token(), hours(12)});
  ASSERT_TRUE(put_text(client, "first", "x", "w").is_ok());
  lose(30);
  EXPECT_TRUE(client.head(in_bucket("first")).is_ok());
  EXPECT_GE(num_probes_, 10);
}

TEST_F(S3Outage, keys_that_nobody_gives_out_though_the_store_answers_are_a_failure) {
  std::atomic<bool> is_away = false;
  const S3KeySource keys = [&](bool) -> Result<std::optional<S3Keys>> {
    return is_away ? Result<std::optional<S3Keys>>(Status::unavailable("nobody gives out keys")) : std::optional(server_.used_keys);
  };
  S3Client client(server_.options(), keys, {*server_.http, server_.clock, &server_.metrics, server_.stop.get_token(), hours(12)});
  ASSERT_TRUE(put_text(client, "first", "x", "w").is_ok());
  is_away = true;
  const Status status = client.head(in_bucket("first")).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("nobody gives out keys"));
}

}  // namespace
}  // namespace darkroom
