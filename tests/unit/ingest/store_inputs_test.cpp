// Inputs and parts of a job in stores of any kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "darkroom/core/metrics.h"
#include "darkroom/stores/stores.h"
#include "planned_jobs.h"
#include "support/fake_s3_stores.h"
#include "support/other_stores.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::ElementsAre;

class StoreInputs : public ::testing::Test {
 protected:
  std::vector<std::string> names(const std::vector<std::string>& uris) {
    const auto inputs = list_job_inputs(stores_, uris);
    EXPECT_TRUE(inputs.is_ok()) << inputs.status().to_string();
    std::vector<std::string> names;
    for (const JobInput& input : inputs.is_ok() ? *inputs : std::vector<JobInput>()) {
      EXPECT_NE(input.store, nullptr);
      names.push_back(input.name);
    }
    return names;
  }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
  MetricsRegistry metrics_;
  StoreSet stores_{with_other_stores({store_.get()}), system_clock(), metrics_};
};

TEST_F(StoreInputs, are_named_from_what_was_asked_for) {
  add_input(files_, "a.parquet", 1);
  ASSERT_TRUE(files_.create_folders("in/deep").is_ok());
  ASSERT_TRUE(write_file_atomic(files_, "in/deep/b.csv", "value\nx\n").is_ok());
  EXPECT_THAT(names({"memory://in"}), ElementsAre("a.parquet", "deep/b.csv"));
  EXPECT_THAT(names({"memory://in/a.parquet"}), ElementsAre("a.parquet"));
  EXPECT_THAT(names({"memory://in/**/*.csv"}), ElementsAre("deep/b.csv"));
  EXPECT_THAT(names({"memory://in/*"}), ElementsAre("a.parquet"));
  EXPECT_THAT(names({"memory://in/deep", "memory://in"}), ElementsAre("a.parquet", "b.csv")) << "the first naming of a file counts";
  EXPECT_EQ(list_job_inputs(stores_, {"memory://nowhere"}).status().code(), StatusCode::kNotFound);
}

TEST_F(StoreInputs, leave_parts_out_that_another_part_of_their_item_replaces) {
  for (const char* name : {"part-000000.parquet", "part-000000-g1.parquet", "part-000001-r00003.parquet"}) {
    add_input(files_, name, 1);
  }
  EXPECT_THAT(names({"memory://in"}), ElementsAre("part-000000-g1.parquet", "part-000001-r00003.parquet"));
  EXPECT_THAT(names({"memory://in/part-000000.parquet"}), ElementsAre("part-000000.parquet"));
}

TEST_F(StoreInputs, of_one_job_may_lie_in_several_stores) {
  add_input(files_, "b.parquet", 3);
  const TemporaryFolder folder;
  ASSERT_TRUE(write_file_atomic(local_files(), folder.path("a.csv"), "value\nx\ny\n").is_ok());
  auto listed = list_job_inputs(stores_, {folder.path("a.csv"), "memory://in"});
  ASSERT_TRUE(listed.is_ok()) << listed.status().to_string();
  JobRequest request{.output = {.store = store_.get(), .path = "out"}, .identity = small_job(), .listed = *std::move(listed)};
  const auto plan = JobPlan::make(request, {});
  ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
  EXPECT_EQ((*plan)->num_rows(), 5);
  EXPECT_EQ((*plan)->input_place((*plan)->item(0)).store->scheme(), "file");
  EXPECT_EQ((*plan)->input_place((*plan)->item(1)).store->scheme(), "memory");
  ASSERT_TRUE((*plan)->prepare().is_ok());
  const auto again = JobPlan::make(request, {});
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_EQ((*again)->input_place((*again)->item(1)).store->scheme(), "memory") << "pins are joined with their stores";
}

/// What a run over a finished job in a bucket asks for.
struct RequestsOfResume {
  int lists = 0;
  int looks = 0;
};

class PartsInABucket : public ::testing::Test {
 protected:
  PartsInABucket() { s3_.fake.max_page = 10; }

  void run(int64_t num_parts) {
    const std::string name = fmt::format("in-{}", num_parts);
    ASSERT_TRUE(put_shard(files_, name, "rows.parquet", *value_rows(num_parts, "x")).is_ok());
    auto listed = list_folder(*store_, name);
    ASSERT_TRUE(listed.is_ok()) << listed.status().to_string();
    JobRequest request{.output = s3_.place(fmt::format("out-{}", num_parts)), .identity = small_job(1), .listed = *std::move(listed)};
    const auto plan = JobPlan::make(std::move(request), {});
    ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
    ASSERT_TRUE((*plan)->prepare().is_ok());
    ASSERT_TRUE(do_pending(**plan).is_ok());
    ASSERT_TRUE((*plan)->write_summary({}).is_ok());
    ASSERT_EQ((*plan)->num_parts(), num_parts);
  }
  RequestsOfResume resume(int64_t num_parts) {
    FakeS3& fake = s3_.fake;
    const auto looks = [&] { return fake.num_calls("get") + fake.num_calls("head"); };
    const RequestsOfResume before{.lists = fake.num_calls("list"), .looks = looks()};
    run(num_parts);
    return {.lists = fake.num_calls("list") - before.lists, .looks = looks() - before.looks};
  }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
  FakeS3Stores s3_;
};

TEST_F(PartsInABucket, cost_a_resume_their_pages_of_the_listing_and_no_look_at_any) {
  std::map<int64_t, RequestsOfResume> requests;
  for (const int64_t num_parts : {20, 60, 100}) {
    run(num_parts);
    requests[num_parts] = resume(num_parts);
  }
  EXPECT_EQ(requests[60].looks, requests[20].looks) << "the summary vouches for all of them";
  EXPECT_EQ(requests[100].looks, requests[20].looks);
  EXPECT_EQ(requests[100].lists - requests[60].lists, requests[60].lists - requests[20].lists);
  EXPECT_LE(requests[60].lists - requests[20].lists, 4 * 4) << "four pages more, each of a few listings";
}

TEST_F(PartsInABucket, are_looked_at_once_each_where_no_summary_vouches_for_them) {
  std::map<int64_t, RequestsOfResume> requests;
  for (const int64_t num_parts : {20, 60}) {
    run(num_parts);
    const Location summary = s3_.place(fmt::format("out-{}", num_parts)) / "_summary.json";
    ASSERT_TRUE(summary.store->remove(summary.path).is_ok());
    requests[num_parts] = resume(num_parts);
  }
  EXPECT_EQ(requests[60].looks - requests[20].looks, 40) << "one request each: the end of a part says all of it";
}

}  // namespace
}  // namespace darkroom
