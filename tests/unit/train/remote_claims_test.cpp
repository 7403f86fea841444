#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "darkroom/files/claim.h"
#include "remote_run_fixture.h"
#include "train/remote_run.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(RemoteRunTest, of_two_processes_the_second_is_refused) {
  const Location claim = s3_.place("run/_claims/000000");
  ASSERT_TRUE(take_claim(claim, "another-one", system_clock()).is_ok());
  const Status refused = train(options());
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("another process is training in this run folder"));
  ASSERT_TRUE(release_claim(claim, "another-one").is_ok());
  expect_trained(options());
}

// A machine that is lost takes the start's claim with it; whoever starts the ranks anew does so at once.
TEST_F(RemoteRunTest, a_restart_waits_for_the_claim_of_the_start_that_was_lost) {
  ASSERT_TRUE(take_claim(s3_.place("run/_claims/000000"), "another-one", system_clock()).is_ok());
  constexpr int kLooks = 5;
  std::atomic<int> num_looks = 0;
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.key == "run/_claims/000000" && call.operation == "get" && ++num_looks == kLooks) {
      s3_.fake.with_state([](FakeS3Objects& state) { state.objects.erase("run/_claims/000000"); });
    }
  };
  TrainOptions restart = options();
  restart.is_restart = true;
  expect_trained(restart);
  s3_.fake.before = [](const FakeS3::Call&) {};
  EXPECT_GE(num_looks.load(), kLooks);
  expect_undisturbed_result();
}

TEST_F(RemoteRunTest, a_restart_is_refused_where_the_other_process_lives_and_ends_at_a_stop) {
  ASSERT_TRUE(take_claim(s3_.place("run/_claims/000000"), "another-one", system_clock()).is_ok());
  TrainOptions restart = options();
  restart.is_restart = true;
  const Clock::Instant before = s3_.clock.now();
  EXPECT_EQ(train(restart).code(), StatusCode::kFailedPrecondition);
  EXPECT_GE(s3_.clock.now() - before, kClaimLifetime);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(RemoteRun::open(s3_.place("run"), s3_.clock, stop.get_token(), std::chrono::minutes(1)).status().code(),
            StatusCode::kCancelled);
}

TEST_F(RemoteRunTest, a_run_that_was_taken_over_stores_no_checkpoint) {
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.key == "run/metrics-0000000004.jsonl") {
      s3_.fake.with_state([](FakeS3Objects& state) {
        auto& claim = state.objects.at("run/_claims/000000").bytes;
        auto fields = nlohmann::json::parse(claim);
        fields["owner"] = "another-one";
        claim = fields.dump();
      });
    }
  };
  const Status failed = train(options());
  EXPECT_EQ(failed.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failed.message(), HasSubstr("taken over"));
  EXPECT_THAT(steps(), ElementsAre(4)) << "which it was about to store";
  EXPECT_FALSE(s3_.fake.bytes_of("run/metrics-0000000008.jsonl").has_value());
}

TEST_F(RemoteRunTest, a_claim_that_is_gone_is_taken_again) {
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.key == "run/metrics-0000000004.jsonl") {
      let_claim_expire();
    }
  };
  expect_trained(options());
  expect_undisturbed_result();
}

// The answer to a checkpoint was lost, the next one takes its place, and the claim ended meanwhile.
TEST_F(RemoteRunTest, a_checkpoint_that_was_stored_without_an_answer_is_no_other_process_s) {
  Clock::Instant back = {};
  std::atomic<bool> has_begun = false;
  std::atomic<bool> has_expired = false;
  s3_.fake.fault = [&](const FakeS3::Call& call) {
    const bool begins = !has_begun && call.operation == "put" && call.key == "run/checkpoints/step-00000004/state.json";
    if (begins) {
      back = s3_.clock.now() + std::chrono::minutes(20);
      has_begun = true;
    }
    return begins ? FakeS3::Fault::kLostReply : has_begun && s3_.clock.now() < back ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
  };
  s3_.fake.before = [&](const FakeS3::Call&) {
    if (has_begun && s3_.clock.now() >= back && !has_expired.exchange(true)) {
      let_claim_expire();
    }
  };
  TrainOptions last = options();
  last.recipe.checkpoint.keep_last = 1;
  expect_trained(last);
  ASSERT_TRUE(has_expired);
  EXPECT_EQ(losses(), undisturbed_losses());
  EXPECT_THAT(steps(), ElementsAre(12));
  expect_same_checkpoint(12);
}

TEST_F(RemoteRunTest, a_run_that_was_taken_over_by_one_that_has_ended_stores_nothing_more) {
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.key == "run/run.json" && s3_.fake.bytes_of("run/checkpoints/step-00000004/state.json")) {  // Just stored.
      let_claim_expire();
      s3_.fake.with_state([](FakeS3Objects& state) {
        state.objects["run/checkpoints/step-00000006/state.json"] = state.objects.at("run/checkpoints/step-00000004/state.json");
      });
    }
  };
  const Status failed = train(options());
  EXPECT_EQ(failed.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("taken over"), HasSubstr("step-00000006")));
  EXPECT_THAT(steps(), ElementsAre(4, 6));
  EXPECT_FALSE(s3_.fake.bytes_of("run/metrics-0000000008.jsonl").has_value());
  EXPECT_FALSE(s3_.fake.bytes_of("run/_claims/000000").has_value());
}

}  // namespace
}  // namespace darkroom
