#include "darkroom/ingest/job_cleaning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "darkroom/files/claim.h"
#include "darkroom/ingest/claims.h"
#include "support/fake_s3_stores.h"
#include "support/planned_jobs.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

class JobCleaning : public ::testing::Test {
 protected:
  Location output() { return {.store = store_.get(), .path = "out"}; }
  CleanReport clean() {
    const auto report = clean_job(output(), clock_);
    EXPECT_TRUE(report.is_ok()) << report.status().to_string();
    return report.is_ok() ? *report : CleanReport();
  }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
  FakeClock clock_;
};

TEST_F(JobCleaning, of_no_folder_is_nothing) {
  const CleanReport report = clean();
  EXPECT_EQ(report.swept.num_temporaries + report.num_claims + report.num_live_claims + report.num_cut_parts, 0);
  EXPECT_FALSE(*files_.exists("out"));
}

TEST_F(JobCleaning, removes_claims_of_the_dead_and_leaves_those_of_the_living) {
  ASSERT_EQ(*take_claim(output() / "_claims" / "000001", "lost", clock_), ClaimHolder::kOurs);
  clock_.advance(2 * kClaimLifetime + std::chrono::seconds(1));
  ASSERT_EQ(*take_claim(output() / "_claims" / "000002", "living", clock_), ClaimHolder::kOurs);
  const CleanReport report = clean();
  EXPECT_EQ(report.num_claims, 1);
  EXPECT_EQ(report.num_live_claims, 1);
  EXPECT_THAT(report.to_text(), HasSubstr("other processes work on 1 items"));
  EXPECT_FALSE(*files_.exists("out/_claims/000001"));
  EXPECT_EQ((*read_claim(output() / "_claims" / "000002"))->owner, "living");
}

TEST_F(JobCleaning, a_claim_that_ended_just_now_may_be_of_a_living_process) {
  ASSERT_EQ(*take_claim(output() / "_claims" / "000001", "late", clock_), ClaimHolder::kOurs);
  clock_.advance(2 * kClaimLifetime - std::chrono::seconds(1));
  const CleanReport report = clean();
  EXPECT_EQ(report.num_claims, 0);
  EXPECT_EQ(report.num_live_claims, 1);
  EXPECT_TRUE(*files_.exists("out/_claims/000001"));
}

TEST_F(JobCleaning, a_dead_process_of_this_machine_is_known_by_its_claim_at_once) {
  std::string owner = make_claim_owner();  // MACHINE-PID-...
  ASSERT_EQ(*take_claim(output() / "_claims" / "000001", owner, clock_), ClaimHolder::kOurs);
  EXPECT_EQ(clean().num_live_claims, 1) << "this one lives";
  const pid_t child = fork();
  if (child == 0) {
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const size_t begin = owner.find('-') + 1;
  owner.replace(begin, owner.find('-', begin) - begin, fmt::format("{:x}", child));
  ASSERT_EQ(*take_claim(output() / "_claims" / "000002", owner, clock_), ClaimHolder::kOurs);
  const CleanReport report = clean();
  EXPECT_EQ(report.num_claims, 1);
  EXPECT_EQ(report.num_live_claims, 1);
}

/// Uploads on a server, which does not tell whose they are.
TEST(JobCleaningOnS3, spares_uploads_that_may_be_of_the_living) {
  FakeS3Stores s3;
  const Location output = s3.place("out");
  s3.fake.with_state([](FakeS3Objects& state) {
    state.create_upload("out/part-000000.parquet", "writer");
    state.create_upload("out/_superseded/part-000000.parquet", "writer");  // A part above 5 GB on its way there.
  });
  FakeClock clock(s3.fake.state.now + std::chrono::minutes(9));
  auto report = clean_job(output, clock);
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->swept.num_uploads, 0) << "of a writer without a claim, perhaps";
  EXPECT_THAT(report->to_text(), HasSubstr("less than ten minutes ago"));
  // A claim that ended a minute ago.
  ASSERT_EQ(*take_claim(output / "_claims" / "000000", "late", clock), ClaimHolder::kOurs);
  clock.advance(kClaimLifetime + std::chrono::minutes(1));
  report = clean_job(output, clock);
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->swept.num_uploads, 0);
  EXPECT_EQ(report->num_live_claims, 1);
  clock.advance(kClaimLifetime);
  report = clean_job(output, clock);
  ASSERT_TRUE(report.is_ok()) << report.status().to_string();
  EXPECT_EQ(report->num_claims, 1);
  EXPECT_EQ(report->swept.num_uploads, 2);
  EXPECT_EQ(s3.fake.num_uploads(), 0u);
}

TEST_F(JobCleaning, removes_what_a_crash_left_and_no_part) {
  add_input(files_, "a.parquet", 12);
  ASSERT_TRUE(run_small_job(*store_, {.limit = 8}).is_ok());
  const std::string cut = *read_file(files_, "out/part-000001-r00003.parquet");
  ASSERT_TRUE(run_small_job(*store_).is_ok());
  ASSERT_TRUE(write_file_atomic(files_, "out/part-000001-r00003.parquet", cut).is_ok());  // As a crash before its removal leaves it.
  ASSERT_TRUE(write_file_atomic(files_, "out/_tmp/part-000002.parquet.dead", "half").is_ok());
  const CleanReport report = clean();
  EXPECT_EQ(report.num_cut_parts, 1);
  EXPECT_EQ(report.swept.num_temporaries, 1);
  EXPECT_FALSE(*files_.exists("out/part-000001-r00003.parquet"));
  EXPECT_FALSE(*files_.exists("out/_tmp/part-000002.parquet.dead"));
  const auto plan = plan_job(*store_);
  ASSERT_TRUE(plan.is_ok());
  EXPECT_EQ((*plan)->num_pending(), 0);
}

}  // namespace
}  // namespace darkroom
