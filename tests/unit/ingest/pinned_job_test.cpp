#include "darkroom/ingest/pinned_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/planned_jobs.h"

namespace darkroom {
namespace {

using ::testing::HasSubstr;

class PinnedJobs : public ::testing::Test {
 protected:
  Location output() { return {.store = store_.get(), .path = "out"}; }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
};

TEST_F(PinnedJobs, read_the_items_that_the_plan_has) {
  add_input(files_, "a.parquet", 12);
  add_input(files_, "b.parquet", 3);
  ASSERT_TRUE(run_small_job(*store_).is_ok());
  const auto plan = plan_job(*store_);
  ASSERT_TRUE(plan.is_ok());
  const auto job = read_pinned_job(output());
  ASSERT_TRUE(job.is_ok()) << job.status().to_string();
  EXPECT_EQ(job->identity.verb, "download");
  ASSERT_EQ(job->num_items(), 4);
  for (int64_t number = 0; number < 4; ++number) {
    EXPECT_EQ(job->item(number), (*plan)->item(number));
  }
  EXPECT_EQ(job->item(2).part_name(), "part-000002.parquet");
  EXPECT_EQ(job->inputs[1].name, "b.parquet");
}

TEST_F(PinnedJobs, know_the_ending_of_their_parts) {
  for (const auto& [dialect, ending] : {std::pair("img2dataset", ".tar"), {"mosaicml", ".mds"}, {"huggingface", ".parquet"}}) {
    MemoryFileSystem files;
    const auto store = make_posix_store(files, "memory");
    add_input(files, "a.parquet", 2);
    JobIdentity identity = small_job();
    identity.fields["output_dialect"] = dialect;
    const auto plan = plan_job(*store, {}, identity);
    ASSERT_TRUE(plan.is_ok() && (*plan)->prepare().is_ok());
    const auto job = read_pinned_job({.store = store.get(), .path = "out"});
    ASSERT_TRUE(job.is_ok()) << job.status().to_string();
    EXPECT_EQ(job->item(0).part_name(), fmt::format("part-000000{}", ending));
  }
}

TEST_F(PinnedJobs, are_not_found_where_none_was_begun) { EXPECT_EQ(read_pinned_job(output()).status().code(), StatusCode::kNotFound); }

TEST_F(PinnedJobs, without_their_list_say_what_makes_it_anew) {
  add_input(files_, "a.parquet", 2);
  ASSERT_TRUE(run_small_job(*store_).is_ok());
  ASSERT_TRUE(files_.remove_file("out/_inputs.parquet").is_ok());
  const Status status = read_pinned_job(output()).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("makes it anew"));
}

TEST_F(PinnedJobs, of_another_version_or_damaged_are_refused) {
  add_input(files_, "a.parquet", 2);
  ASSERT_TRUE(run_small_job(*store_).is_ok());
  const auto replaced = [&](nlohmann::json identity) {
    EXPECT_TRUE(
        write_file_atomic(files_, "out/_job.json", nlohmann::json{{"version", 2}, {"identity", std::move(identity)}}.dump()).is_ok());
    return read_pinned_job(output()).status();
  };
  nlohmann::json older = small_job().to_json();
  older["version"] = 1;
  EXPECT_EQ(replaced(older).code(), StatusCode::kFailedPrecondition);
  for (const nlohmann::json& rows : {nlohmann::json(0), nlohmann::json(-5), nlohmann::json("5"), nlohmann::json(0.5), nlohmann::json()}) {
    nlohmann::json wrong = small_job().to_json();
    wrong["rows_per_file"] = rows;
    EXPECT_EQ(replaced(wrong).code(), StatusCode::kFailedPrecondition) << rows;
  }
  EXPECT_EQ(replaced(nlohmann::json::array()).code(), StatusCode::kCorruptData);
  // Another job's list.
  EXPECT_EQ(replaced(small_job(6).to_json()).code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace darkroom
