// Inputs and parts of a job in stores of any kind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "darkroom/core/metrics.h"
#include "darkroom/stores/stores.h"
#include "support/fake_s3_stores.h"
#include "support/other_stores.h"
#include "support/planned_jobs.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

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

/// A job whose inputs lie in a bucket, of 5 rows each; its output is at hand.
class InputsInABucket : public ::testing::Test {
 protected:
  void put_input(const std::string& name, const std::string& value) {
    ASSERT_TRUE(put_shard(files_, "made", "rows.parquet", *value_rows(5, value)).is_ok());
    const Location place = s3_.place(name);
    ASSERT_TRUE(place.store->replace_small(place.path, *read_file(files_, "made/rows.parquet")).is_ok());
    ASSERT_TRUE(files_.remove_tree("made").is_ok());
  }
  void put_inputs(int num_inputs, const std::string& folder = "in") {
    for (int i = 0; i < num_inputs; ++i) {
      put_input(fmt::format("{}/{:04}.parquet", folder, i), fmt::format("{:04}", i));
    }
  }
  Result<std::unique_ptr<JobPlan>> plan(const std::vector<std::string>& folders = {"in"}, Selection selection = {}) {
    std::vector<std::string> uris;
    for (const std::string& folder : folders) {
      uris.push_back(s3_.uri(folder));
    }
    JobRequest request{.output = {.store = store_.get(), .path = "out"}, .identity = small_job(), .check_columns = check_columns_};
    request.selection = std::move(selection);
    DARKROOM_ASSIGN_OR_RETURN(request.listed, list_job_inputs(s3_.set, uris));
    return JobPlan::make(std::move(request), {});
  }
  void pin(const std::vector<std::string>& folders = {"in"}) {
    const auto first = plan(folders);
    ASSERT_TRUE(first.is_ok()) << first.status().to_string();
    ASSERT_TRUE((*first)->prepare().is_ok());
  }
  int num_looks() { return s3_.fake.num_calls("get") + s3_.fake.num_calls("head"); }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
  FakeS3Stores s3_;
  CheckColumns check_columns_;
};

TEST_F(InputsInABucket, that_are_pinned_cost_a_start_no_look_but_one) {
  std::map<int, int> looks;
  for (const int num_inputs : {20, 60}) {
    ASSERT_TRUE(files_.remove_tree("out").is_ok());
    put_inputs(num_inputs);
    const int before_pinning = num_looks();
    pin();
    EXPECT_GE(num_looks() - before_pinning, num_inputs);
    int num_checked = 0;
    check_columns_ = [&](const arrow::Schema&, const std::string&) { return ++num_checked, Status::ok(); };
    const int before = num_looks();
    const auto again = plan();
    ASSERT_TRUE(again.is_ok()) << again.status().to_string();
    looks[num_inputs] = num_looks() - before;
    EXPECT_EQ(num_checked, 1) << "the job sees its columns";
    check_columns_ = {};
    EXPECT_EQ((*again)->num_rows(), 5 * num_inputs);
    EXPECT_EQ((*again)->num_pending(), num_inputs);
    EXPECT_TRUE((*again)->open_input((*again)->item(num_inputs - 1)).is_ok());
  }
  EXPECT_EQ(looks[60], looks[20]);
  EXPECT_LT(looks[20], 10) << "those of the one";
}

TEST_F(InputsInABucket, without_rows_do_not_tell_the_columns) {
  const Location empty = s3_.place("in/0000.tar");
  ASSERT_TRUE(empty.store->replace_small(empty.path, std::string(1024, '\0')).is_ok());
  put_input("in/0001.parquet", "a");
  put_input("in/0002.parquet", "b");
  pin();
  std::vector<std::string> checked;
  check_columns_ = [&](const arrow::Schema&, const std::string& path) { return checked.push_back(path), Status::ok(); };
  const auto again = plan();
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_THAT(checked, ElementsAre(HasSubstr("0001.parquet")));
}

TEST_F(InputsInABucket, that_changed_are_refused_when_they_are_opened_if_they_kept_their_size) {
  put_inputs(4);
  pin();
  put_input("in/0002.parquet", "0007");  // As many bytes and rows, other ones.
  const auto again = plan();
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  const Status refused = (*again)->open_input((*again)->item(2)).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("an input was replaced"), HasSubstr("in/0002.parquet")));
  for (const int64_t other : {0, 1, 3}) {
    EXPECT_TRUE((*again)->open_input((*again)->item(other)).is_ok()) << other;
  }
  put_input("in/0002.parquet", "another size");
  EXPECT_THAT(plan().status().message(), HasSubstr("input 0002.parquet (changed)"));
}

TEST_F(InputsInABucket, that_came_late_are_looked_at_and_left_out) {
  put_inputs(3);
  pin();
  put_inputs(5);
  const auto again = plan();
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_EQ((*again)->num_rows(), 15);
  const auto extended = plan({"in"}, {.extend = true});
  ASSERT_TRUE(extended.is_ok()) << extended.status().to_string();
  EXPECT_EQ((*extended)->num_rows(), 25);
}

TEST_F(InputsInABucket, that_have_one_name_and_size_are_told_apart_by_a_look) {
  put_input("one/a.parquet", "1111");
  put_input("two/a.parquet", "2222");
  pin({"one", "two"});
  put_input("one/a.parquet", "2222");
  put_input("two/a.parquet", "1111");
  const auto swapped = plan({"one", "two"});
  ASSERT_TRUE(swapped.is_ok()) << swapped.status().to_string();
  EXPECT_EQ((*swapped)->input_place((*swapped)->item(0)).path, "pictures/two/a.parquet") << "the first input lies there now";
  put_input("two/a.parquet", "3333");
  EXPECT_THAT(plan({"one", "two"}).status().message(), HasSubstr("input a.parquet (changed)"));
}

}  // namespace
}  // namespace darkroom
