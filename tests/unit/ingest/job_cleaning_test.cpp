#include "darkroom/ingest/job_cleaning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/claim.h"
#include "darkroom/ingest/claims.h"
#include "planned_jobs.h"

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
  ASSERT_EQ(*take_claim(output() / "_claims" / "000001", "lost", clock_.wall()), ClaimHolder::kOurs);
  clock_.advance(kClaimLifetime + std::chrono::seconds(1));
  ASSERT_EQ(*take_claim(output() / "_claims" / "000002", "living", clock_.wall()), ClaimHolder::kOurs);
  const CleanReport report = clean();
  EXPECT_EQ(report.num_claims, 1);
  EXPECT_EQ(report.num_live_claims, 1);
  EXPECT_THAT(report.to_text(), HasSubstr("other processes work on 1 items"));
  EXPECT_FALSE(*files_.exists("out/_claims/000001"));
  EXPECT_EQ((*read_claim(output() / "_claims" / "000002"))->owner, "living");
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
