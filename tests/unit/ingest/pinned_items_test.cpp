// Runs of single items of a pinned job: they look at no other input than their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <set>

#include "darkroom/files/paths.h"
#include "support/forwarding_files.h"
#include "support/planned_jobs.h"
#include "support/synthetic_files.h"

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Notes every path below in/ that is asked for.
class NotedFiles final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    note(path);
    return ForwardingFiles::open_input(path);
  }
  Result<FileInfo> stat(const std::string& path) override {
    note(path);
    return ForwardingFiles::stat(path);
  }
  Result<std::vector<FileInfo>> list(const std::string& folder) override {
    note(folder + "/");
    return ForwardingFiles::list(folder);
  }
  std::set<std::string> noted() {
    const std::lock_guard hold(mutex_);
    return std::exchange(paths_, {});
  }

 private:
  void note(const std::string& path) {
    if (path.starts_with("in/") && path.find("_superseded") == std::string::npos) {
      const std::lock_guard hold(mutex_);
      paths_.insert(path);
    }
  }
  std::mutex mutex_;
  std::set<std::string> paths_;  // Guarded by mutex_.
};

class PinnedItems : public ::testing::Test {
 protected:
  /// A plan over what these addresses name, which lists only when it must.
  Result<std::unique_ptr<JobPlan>> plan(Store& store, Selection selection, const std::vector<std::string>& uris = {"memory://in"},
                                        const CheckColumns& check_columns = {}) {
    MetricsRegistry metrics;
    StoreSet stores(with_other_stores({&store}), system_clock(), metrics);
    JobRequest request{.output = {.store = &store, .path = "out"}, .identity = small_job(), .check_columns = check_columns};
    request.selection = std::move(selection);
    request.list = [&] {
      ++num_lists_;
      return list_job_inputs(stores, uris);
    };
    request.roots = input_roots(stores, uris);
    return JobPlan::make(std::move(request), {});
  }
  /// Pins the job.
  void pin(const std::vector<std::string>& uris = {"memory://in"}) {
    const auto first = plan(*store_, {}, uris);
    ASSERT_TRUE(first.is_ok()) << first.status().to_string();
    const Status pinned = (*first)->prepare();
    ASSERT_TRUE(pinned.is_ok()) << pinned.to_string();
    num_lists_ = 0;
  }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
  int num_lists_ = 0;
};

TEST_F(PinnedItems, of_many_inputs_their_own_alone_are_looked_at) {
  add_input(files_, "one.parquet", 1);
  const std::string bytes = *read_file(files_, "in/one.parquet");
  ASSERT_TRUE(files_.remove_tree("in").is_ok());
  SyntheticFiles synthetic(files_, "in", 2'000, bytes);
  NotedFiles files(synthetic);
  const auto store = make_posix_store(files, "memory");
  {
    const auto first = plan(*store, {});
    ASSERT_TRUE(first.is_ok()) << first.status().to_string();
    ASSERT_TRUE((*first)->prepare().is_ok());
    EXPECT_GE(files.noted().size(), 2'000u);
  }
  num_lists_ = 0;
  const auto job = plan(*store, {.items = {17, 1234}});
  ASSERT_TRUE(job.is_ok()) << job.status().to_string();
  EXPECT_EQ(num_lists_, 0);
  EXPECT_EQ((*job)->num_items(), 2'000);
  EXPECT_EQ((*job)->num_pending(), 2);
  ASSERT_TRUE((*job)->prepare().is_ok());
  ASSERT_TRUE(do_pending(**job).is_ok());
  EXPECT_TRUE((*job)->open_input((*job)->item(1234)).is_ok());
  EXPECT_EQ((*job)->pending_work().num_rows, 0);
  ASSERT_TRUE((*job)->write_summary({}).is_ok());
  EXPECT_THAT(files.noted(), ElementsAre("in/00000017.parquet", "in/00001234.parquet"));
  // What they made is what a run of all items makes.
  const auto all = plan(*store, {});
  ASSERT_TRUE(all.is_ok()) << all.status().to_string();
  EXPECT_EQ((*all)->num_pending(), 1'998);
}

TEST_F(PinnedItems, an_input_that_was_replaced_or_is_gone_is_told_as_ever) {
  add_input(files_, "a.parquet", 7);
  add_input(files_, "b.parquet", 5);
  pin();
  ASSERT_TRUE(files_.remove_file("in/b.parquet").is_ok());
  EXPECT_TRUE(plan(*store_, {.items = {0, 1}}).is_ok()) << "items of another input";
  EXPECT_EQ(num_lists_, 0);
  EXPECT_THAT(plan(*store_, {.items = {2}}).status().message(), HasSubstr("input b.parquet (missing now)"));
  EXPECT_EQ(num_lists_, 1);
  add_input(files_, "b.parquet", 5, "y");  // As many bytes, other ones.
  EXPECT_THAT(plan(*store_, {.items = {2}}).status().message(), HasSubstr("input b.parquet (changed)"));
  add_input(files_, "b.parquet", 50, "another size");
  EXPECT_THAT(plan(*store_, {.items = {2}}).status().message(), HasSubstr("input b.parquet (changed)"));
}

TEST_F(PinnedItems, a_pinned_generation_is_found_where_it_moved) {
  add_input(files_, "part-000000.parquet", 5);
  add_input(files_, "part-000001.parquet", 5);
  pin();
  add_input(files_, "part-000001-g1.parquet", 5, "better");
  ASSERT_TRUE(store_->move_object("in/part-000001.parquet", "in/_superseded/part-000001.parquet").is_ok());
  const auto job = plan(*store_, {.items = {1}});
  ASSERT_TRUE(job.is_ok()) << job.status().to_string();
  EXPECT_EQ(num_lists_, 0);
  EXPECT_EQ((*job)->input_place((*job)->item(1)).path, "in/_superseded/part-000001.parquet");
  EXPECT_TRUE((*job)->open_input((*job)->item(1)).is_ok());
}

TEST_F(PinnedItems, inputs_of_several_places_are_told_apart_by_what_they_hold) {
  for (const auto& [folder, num_rows] : {std::pair("a", 4), {"b", 5}}) {
    ASSERT_TRUE(put_shard(files_, folder, "x.parquet", *value_rows(num_rows, folder)).is_ok());
  }
  add_input(files_, "single.parquet", 3);
  ASSERT_TRUE(put_shard(files_, "deep/er", "y.parquet", *value_rows(2, "y")).is_ok());
  const std::vector<std::string> uris = {"memory://a", "memory://b/", "memory://deep/*/y.parquet", "memory://in/single.parquet"};
  pin(uris);
  const auto job = plan(*store_, {.items = {0, 1, 2, 3}}, uris);
  ASSERT_TRUE(job.is_ok()) << job.status().to_string();
  EXPECT_EQ(num_lists_, 0);
  std::vector<std::string> paths;
  for (int64_t item = 0; item < 4; ++item) {
    paths.push_back((*job)->input_place((*job)->item(item)).path);
    EXPECT_TRUE((*job)->open_input((*job)->item(item)).is_ok()) << paths.back();
  }
  EXPECT_THAT(paths, ElementsAre("a/x.parquet", "b/x.parquet", "deep/er/y.parquet", "in/single.parquet"));
}

TEST_F(PinnedItems, only_twins_of_their_own_inputs_need_the_list) {
  for (const char* folder : {"a", "b"}) {
    ASSERT_TRUE(put_shard(files_, folder, "x.parquet", *value_rows(4, "same")).is_ok());
  }
  add_input(files_, "single.parquet", 3);
  const std::vector<std::string> uris = {"memory://a", "memory://b", "memory://in"};
  pin(uris);
  const auto single = plan(*store_, {.items = {2}}, uris);
  ASSERT_TRUE(single.is_ok()) << single.status().to_string();
  EXPECT_EQ((*single)->input_place((*single)->item(2)).path, "in/single.parquet");
  EXPECT_EQ(num_lists_, 0);
  const auto twin = plan(*store_, {.items = {1}}, uris);
  ASSERT_TRUE(twin.is_ok()) << twin.status().to_string();
  EXPECT_EQ((*twin)->input_place((*twin)->item(1)).path, "b/x.parquet");
  EXPECT_EQ(num_lists_, 1);
  EXPECT_TRUE(plan(*store_, {.items = {0, 1}}, uris).is_ok());
  EXPECT_EQ(num_lists_, 2) << "both are their own";
}

TEST_F(PinnedItems, columns_of_their_own_inputs_are_checked) {
  add_input(files_, "a.parquet", 5);
  add_input(files_, "b.parquet", 5);
  pin();
  std::vector<std::string> checked;
  const auto check = [&](const arrow::Schema&, const std::string& path) {
    checked.push_back(path);
    return Status::not_found("no such column (table):", path);
  };
  EXPECT_EQ(plan(*store_, {.items = {1}}, {"memory://in"}, check).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(checked, ::testing::Contains("in/b.parquet"));
}

TEST_F(PinnedItems, what_needs_the_list_lists) {
  add_input(files_, "a.parquet", 5);
  EXPECT_TRUE(plan(*store_, {.items = {0}}).is_ok()) << "nothing is pinned yet";
  EXPECT_EQ(num_lists_, 1);
  pin();
  add_input(files_, "b.parquet", 5);
  const auto extended = plan(*store_, {.items = {1}, .extend = true});
  ASSERT_TRUE(extended.is_ok()) << extended.status().to_string();
  EXPECT_EQ((*extended)->num_pending(), 1);
  EXPECT_EQ(num_lists_, 1);
  const Status none = plan(*store_, {.items = {1}}).status();
  EXPECT_EQ(none.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(none.message(), HasSubstr("--items names an item that the job does not have"));
  EXPECT_THAT(input_roots(*std::make_unique<StoreSet>(StoreSetOptions(), system_clock(), *std::make_unique<MetricsRegistry>()),
                          {"no-such-scheme://x"}),
              IsEmpty());
}

}  // namespace
}  // namespace darkroom
