#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/claim.h"
#include "remote_run_fixture.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(RemoteRunTest, of_two_processes_the_second_is_refused) {
  const Location claim = s3_.place("run/_claims/000000");
  ASSERT_TRUE(take_claim(claim, "another-one", system_clock().wall()).is_ok());
  const Status refused = train(options());
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("another process is training in this run folder"));
  ASSERT_TRUE(release_claim(claim, "another-one").is_ok());
  expect_trained(options());
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
