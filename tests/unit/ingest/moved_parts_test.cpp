// Parts that a retry moves aside while others read, plan or run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <utility>

#include "darkroom/files/claim.h"
#include "darkroom/ingest/input_rows.h"
#include "darkroom/ingest/job_cleaning.h"
#include "darkroom/ingest/job_run.h"
#include "darkroom/tables/part_name.h"
#include "ingest/base_rows.h"
#include "support/forwarding_files.h"
#include "support/planned_jobs.h"

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A job of two items, rows of which failed with dns and timeout.
class MovedParts : public ::testing::Test {
 protected:
  void SetUp() override { add_input(files_, "a.parquet", 10); }

  std::unique_ptr<JobPlan> plan(const std::string& codes = "", Selection selection = {}) {
    JobRequest request{.output = output_, .identity = small_job(), .input_store = store_.get()};
    request.listed = list_folder(*store_, "in").value();
    request.selection = std::move(selection);
    if (!codes.empty()) {
      request.retry = RetryCodes::parse(codes).value();
    }
    auto plan = JobPlan::make(std::move(request), {});
    EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
    return plan.is_ok() ? *std::move(plan) : nullptr;
  }
  /// Makes the part of an item with these failures.
  static void make(JobPlan& plan, const WorkItem& item, const std::map<std::string, std::vector<int64_t>>& failed) {
    ItemTally tally{.rows_in = 5, .rows_out = 5, .failed_rows = failed};
    for (const auto& [code, rows] : failed) {
      tally.rows_out -= static_cast<int64_t>(rows.size());
      tally.rows_by_error[code] = static_cast<int64_t>(rows.size());
    }
    auto object = plan.output().store->begin_object(plan.output().path, item.part_name()).value();
    auto shard = PagedShardWriter::open(std::move(object), value_schema()).value();
    ASSERT_TRUE(shard->write(*value_rows(tally.rows_out, "x")).is_ok());
    const Status published = plan.publish(item, tally, shard->finish(plan.footer_of(item, tally)).value()).status();
    ASSERT_TRUE(published.is_ok()) << published.to_string();
  }
  void make_first_parts() {
    const auto first = plan();
    ASSERT_TRUE(first->prepare().is_ok());
    for (const int64_t number : {0, 1}) {
      make(*first, first->item(number), {{"dns", {1}}, {"timeout", {3}}});
    }
  }
  /// As a run with --retry-failed dns does it, which ends and moves the first part aside.
  void redo_first_item() {
    const auto retry = plan("dns");
    make(*retry, *retry->next_pending(0), {{"timeout", {3}}});
    ASSERT_TRUE(retry->write_summary({}).is_ok());
    ASSERT_TRUE(*files_.exists("out/_superseded/part-000000.parquet"));
  }
  std::string copy_of(const std::string& path) { return *read_file(files_, path); }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
  const Location output_{.store = store_.get(), .path = "out"};
};

TEST_F(MovedParts, an_input_that_moves_aside_while_a_job_runs_is_read_there) {
  ASSERT_TRUE(files_.remove_tree("in").is_ok());
  add_input(files_, "part-000000.parquet", 5);
  add_input(files_, "part-000001.parquet", 5);
  const auto job = plan();
  add_input(files_, "part-000001-g1.parquet", 5, "better");
  ASSERT_TRUE(store_->move_object("in/part-000001.parquet", "in/_superseded/part-000001.parquet").is_ok());
  InputRows rows(nullptr, {}, {});
  EXPECT_TRUE(rows.seek(*job, job->item(0)).is_ok());
  const Status moved = rows.seek(*job, job->item(1));
  EXPECT_TRUE(moved.is_ok()) << moved.to_string();
  // Another file under that name is none of the job's.
  ASSERT_TRUE(files_.remove_tree("in/_superseded").is_ok());
  EXPECT_EQ(job->open_input(job->item(1)).status().code(), StatusCode::kNotFound);
  const auto other = put_shard(files_, "in/_superseded", "part-000001.parquet", *value_rows(5, "other"));
  ASSERT_TRUE(other.is_ok());
  EXPECT_EQ(job->open_input(job->item(1)).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(MovedParts, a_plain_run_beside_a_retry_makes_no_part_again_that_was_redone) {
  const auto plain = plan();  // When there was no part yet.
  make_first_parts();
  redo_first_item();
  const auto is_there = plain->is_committed_now(plain->item(0));
  ASSERT_TRUE(is_there.is_ok()) << is_there.status().to_string();
  EXPECT_TRUE(*is_there);
  EXPECT_EQ(plain->parts().at(0).name.text(), "part-000000-g1.parquet");
  EXPECT_EQ(plain->next_pending(0)->number, 1);
  // What an emptied folder left aside makes no item done.
  ASSERT_TRUE(files_.remove_file("out/part-000000-g1.parquet").is_ok());
  EXPECT_FALSE(*plan()->is_committed_now(plain->item(0)));
}

/// Moves the first part aside when its footer is first read, as the end of a retry does it.
class MovedWhenRead final : public ForwardingFiles {
 public:
  explicit MovedWhenRead(FileSystem& base) : ForwardingFiles(base), base_(base) {}
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    if (path == "out/part-000000.parquet" && !std::exchange(has_moved_, true)) {
      EXPECT_TRUE(base_.create_folders("out/_superseded").is_ok());
      EXPECT_TRUE(base_.rename_replace(path, "out/_superseded/part-000000.parquet").is_ok());
      EXPECT_TRUE(base_.rename_replace("made/part-000000-g1.parquet", "out/part-000000-g1.parquet").is_ok());
    }
    return ForwardingFiles::open_input(path);
  }

 private:
  FileSystem& base_;
  bool has_moved_ = false;
};

TEST_F(MovedParts, a_part_that_moves_between_list_and_look_fails_no_start) {
  make_first_parts();
  redo_first_item();
  ASSERT_TRUE(files_.create_folders("made").is_ok());
  ASSERT_TRUE(files_.rename_replace("out/part-000000-g1.parquet", "made/part-000000-g1.parquet").is_ok());
  ASSERT_TRUE(files_.rename_replace("out/_superseded/part-000000.parquet", "out/part-000000.parquet").is_ok());
  ASSERT_TRUE(files_.remove_file("out/_summary.json").is_ok());
  MovedWhenRead files(files_);
  const auto store = make_posix_store(files, "memory");
  const auto job = plan_job(*store);
  ASSERT_TRUE(job.is_ok()) << job.status().to_string();
  EXPECT_EQ((*job)->parts().at(0).name.text(), "part-000000-g1.parquet");
}

TEST_F(MovedParts, a_retry_redoes_its_own_rows_of_an_item_that_another_retry_has_just_redone) {
  make_first_parts();
  auto timeouts = plan("timeout");
  ASSERT_EQ(timeouts->num_pending(), 2);
  redo_first_item();  // Of other codes.
  FakeClock clock;
  JobRun run(std::move(timeouts), {.clock = &clock, .owner = "two"});
  const auto item = run.take_item({});
  ASSERT_TRUE(item.is_ok()) << item.status().to_string();
  ASSERT_TRUE(item->has_value());
  EXPECT_EQ((*item)->number, 0);
  EXPECT_EQ((*item)->generation, 2);
  EXPECT_EQ(run.progress().rows_before, 0);
  make(run.plan(), **item, {});
  EXPECT_EQ(run.take_item({}).value()->number, 1);
}

/// Counts the moves to _superseded/.
class CountedMoves final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    num_moves += to.find("_superseded") != std::string::npos ? 1 : 0;
    return ForwardingFiles::rename_no_replace(from, to);
  }
  std::atomic<int> num_moves = 0;
};

TEST_F(MovedParts, each_process_moves_what_its_own_parts_replaced) {
  make_first_parts();
  const auto one = plan("dns");
  const auto two = plan("dns");
  make(*one, *one->next_pending(0), {{"timeout", {3}}});
  make(*two, *two->next_pending(1), {{"timeout", {3}}});
  ASSERT_TRUE(two->write_summary({}).is_ok());
  EXPECT_TRUE(*files_.exists("out/part-000000.parquet")) << "another's";
  EXPECT_TRUE(*files_.exists("out/_superseded/part-000001.parquet"));
  EXPECT_EQ(two->parts().at(0).name.generation, 1) << "known all the same";
  ASSERT_TRUE(one->write_summary({}).is_ok());
  EXPECT_TRUE(*files_.exists("out/_superseded/part-000000.parquet"));
}

TEST_F(MovedParts, what_the_dead_left_is_moved_by_one_of_those_that_begin_together) {
  make_first_parts();
  {
    const auto died = plan("dns");
    make(*died, *died->next_pending(0), {{"timeout", {3}}});
    make(*died, *died->next_pending(1), {{"timeout", {3}}});
  }
  CountedMoves files(files_);
  const auto store = make_posix_store(files, "memory");
  const Location claim = output_ / "_claims" / "000000";
  ASSERT_EQ(*take_claim(claim, "another", system_clock()), ClaimHolder::kOurs);  // It moves the part just now.
  const auto job = plan_job(*store);
  const auto late = plan_job(*store);
  ASSERT_TRUE((*job)->prepare().is_ok());
  EXPECT_EQ(files.num_moves, 1);
  EXPECT_TRUE(*files_.exists("out/part-000000.parquet"));
  EXPECT_FALSE(*files_.exists("out/part-000001.parquet"));
  EXPECT_FALSE(*files_.exists("out/_claims/000001")) << "given back";
  ASSERT_TRUE(release_claim(claim, "another").is_ok());
  ASSERT_TRUE((*late)->prepare().is_ok()) << "the other part has moved since it was listed";
  EXPECT_TRUE(*files_.exists("out/_superseded/part-000000.parquet"));
  EXPECT_EQ(store->list("out/_superseded")->size(), 2u);
}

TEST_F(MovedParts, a_run_of_single_items_moves_theirs_alone) {
  make_first_parts();
  {
    const auto died = plan("dns");
    make(*died, *died->next_pending(0), {{"timeout", {3}}});
    make(*died, *died->next_pending(1), {{"timeout", {3}}});
  }
  ASSERT_TRUE(plan("", {.items = {1}})->prepare().is_ok());
  EXPECT_TRUE(*files_.exists("out/part-000000.parquet"));
  EXPECT_FALSE(*files_.exists("out/part-000001.parquet"));
}

/// Lists a folder once as it looks to who meets the next generation before it is there and the older one when it is gone.
class TornListing final : public ForwardingFiles {
 public:
  TornListing(FileSystem& files, std::string folder, std::string hidden)
      : ForwardingFiles(files), folder_(std::move(folder)), hidden_(std::move(hidden)) {}
  Result<std::vector<FileInfo>> list(const std::string& folder) override {
    auto entries = ForwardingFiles::list(folder);
    if (entries.is_ok() && folder == folder_ && num_lists++ == 0) {
      std::erase_if(*entries, [&](const FileInfo& entry) { return entry.path == hidden_; });
    }
    return entries;
  }
  std::atomic<int> num_lists = 0;

 private:
  const std::string folder_;
  const std::string hidden_;
};

TEST_F(MovedParts, a_listing_that_misses_an_item_on_its_way_to_the_next_generation_is_made_again) {
  make_first_parts();
  redo_first_item();
  ASSERT_TRUE(plan()->write_summary({}).is_ok());
  TornListing files(files_, "out", "out/part-000000-g1.parquet");
  const auto store = make_posix_store(files, "memory");
  const auto job = plan_job(*store);
  ASSERT_TRUE(job.is_ok()) << job.status().to_string();
  EXPECT_EQ((*job)->num_parts(), 2);
  EXPECT_EQ(files.num_lists, 2);
  files.num_lists = 0;
  ASSERT_TRUE((*job)->refresh({}).is_ok());
  EXPECT_EQ((*job)->num_parts(), 2) << "known ones are not dropped either";
}

/// Refuses moves to _superseded/, as a store does that copies no more than 5 GB at once.
class NoMoves final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    return to.find("_superseded") != std::string::npos ? Status::resource_exhausted("too large to copy:", from)
                                                       : ForwardingFiles::rename_no_replace(from, to);
  }
};

TEST_F(MovedParts, what_cannot_be_moved_stays_and_stops_no_run) {
  make_first_parts();
  NoMoves files(files_);
  const auto store = make_posix_store(files, "memory");
  {
    const auto retry = plan("dns");
    make(*retry, *retry->next_pending(0), {{"timeout", {3}}});
  }
  const auto job = plan_job(*store);
  ASSERT_TRUE(job.is_ok()) << job.status().to_string();
  EXPECT_TRUE((*job)->prepare().is_ok());
  const Status written = (*job)->write_summary({});
  EXPECT_TRUE(written.is_ok()) << written.to_string();
  EXPECT_TRUE(*files_.exists("out/part-000000.parquet"));
  EXPECT_EQ((*job)->parts().at(0).name.generation, 1);
  const auto cleaned = clean_job({.store = store.get(), .path = "out"}, system_clock());
  ASSERT_TRUE(cleaned.is_ok()) << cleaned.status().to_string();
  EXPECT_EQ(cleaned->num_moved_parts, 0);
}

TEST_F(MovedParts, moves_end_at_a_stop) {
  make_first_parts();
  {
    const auto retry = plan("dns");
    make(*retry, *retry->next_pending(0), {{"timeout", {3}}});
  }
  std::stop_source stop;
  stop.request_stop();
  const auto job = plan();
  EXPECT_EQ(job->prepare(stop.get_token()).code(), StatusCode::kCancelled);
  EXPECT_TRUE(*files_.exists("out/part-000000.parquet"));
}

TEST_F(MovedParts, what_another_job_left_aside_gives_way) {
  make_first_parts();
  const std::string part = copy_of("out/part-000000.parquet");
  {
    const auto retry = plan("dns");
    make(*retry, *retry->next_pending(0), {{"timeout", {3}}});
  }
  PartRecord other = *read_part_record({.store = store_.get(), .path = "out/part-000000.parquet"});
  other.job = "another";
  const KeyValues footer = {{kShardKey, print_part_record(other)}};
  ASSERT_TRUE(put_shard(files_, "out/_superseded", "part-000000.parquet", *value_rows(3, "other"), footer).is_ok());
  ASSERT_TRUE(retire_part(output_, {.item = 0}).is_ok());
  EXPECT_EQ(copy_of("out/_superseded/part-000000.parquet"), part);
  // Also what cannot be read.
  ASSERT_TRUE(files_.rename_replace("out/_superseded/part-000000.parquet", "out/part-000000.parquet").is_ok());
  ASSERT_TRUE(write_file_atomic(files_, "out/_superseded/part-000000.parquet", "garbage").is_ok());
  ASSERT_TRUE(retire_part(output_, {.item = 0}).is_ok());
  EXPECT_EQ(copy_of("out/_superseded/part-000000.parquet"), part);
  // Of this job the first one that lies there stays: who began with it reads it.
  ASSERT_TRUE(write_file_atomic(files_, "out/part-000000.parquet", copy_of("out/part-000001.parquet")).is_ok());
  ASSERT_TRUE(retire_part(output_, {.item = 0}).is_ok());
  EXPECT_FALSE(*files_.exists("out/part-000000.parquet"));
  EXPECT_EQ(copy_of("out/_superseded/part-000000.parquet"), part);
}

/// Calls back just before something aside is replaced or removed.
class SlowMover final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  Status remove_file(const std::string& path) override {
    meet(path);
    return ForwardingFiles::remove_file(path);
  }
  Status rename_replace(const std::string& from, const std::string& to) override {
    meet(to);
    return ForwardingFiles::rename_replace(from, to);
  }
  std::function<void()> before = [] {};
  int num_met = 0;

 private:
  void meet(const std::string& path) {
    if (path == "out/_superseded/part-000000.parquet" && num_met++ == 0) {
      before();
    }
  }
};

TEST_F(MovedParts, of_two_movers_beside_what_another_job_left_aside_none_removes_what_the_other_has_moved) {
  make_first_parts();
  const std::string part = copy_of("out/part-000000.parquet");
  PartRecord other = *read_part_record({.store = store_.get(), .path = "out/part-000000.parquet"});
  other.job = "another";
  const KeyValues footer = {{kShardKey, print_part_record(other)}};
  ASSERT_TRUE(put_shard(files_, "out/_superseded", "part-000000.parquet", *value_rows(3, "other"), footer).is_ok());
  SlowMover files(files_);
  files.before = [&] { EXPECT_TRUE(retire_part(output_, {.item = 0}).is_ok()); };
  const auto store = make_posix_store(files, "memory");
  const Status retired = retire_part({.store = store.get(), .path = "out"}, {.item = 0});
  EXPECT_TRUE(retired.is_ok()) << retired.to_string();
  EXPECT_EQ(files.num_met, 1);
  ASSERT_TRUE(*files_.exists("out/_superseded/part-000000.parquet"));
  EXPECT_EQ(copy_of("out/_superseded/part-000000.parquet"), part);
  EXPECT_FALSE(*files_.exists("out/part-000000.parquet"));
}

/// Moves the part when its namesake aside has been opened, as another process does it.
class MovedWhenCompared final : public ForwardingFiles {
 public:
  MovedWhenCompared(FileSystem& base, Store& store) : ForwardingFiles(base), store_(store) {}
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    auto file = ForwardingFiles::open_input(path);
    if (path == "out/_superseded/part-000000.parquet" && ++num_opened == 2) {  // After the look whether both hold the same bytes.
      EXPECT_TRUE(store_.move_over("out/part-000000.parquet", path).is_ok());
    }
    return file;
  }
  int num_opened = 0;

 private:
  Store& store_;
};

TEST_F(MovedParts, a_part_that_another_moves_while_it_is_compared_is_moved) {
  make_first_parts();
  const std::string part = copy_of("out/part-000000.parquet");
  ASSERT_TRUE(write_file_atomic(files_, "out/_superseded/part-000000.parquet", copy_of("out/part-000001.parquet")).is_ok());
  MovedWhenCompared files(files_, *store_);
  const auto store = make_posix_store(files, "memory");
  const Status retired = retire_part({.store = store.get(), .path = "out"}, {.item = 0});
  EXPECT_TRUE(retired.is_ok()) << retired.to_string();
  EXPECT_GE(files.num_opened, 2);
  EXPECT_EQ(copy_of("out/_superseded/part-000000.parquet"), part);
}

TEST_F(MovedParts, a_lost_list_of_inputs_is_rebuilt_with_the_generations_that_it_had) {
  ASSERT_TRUE(files_.remove_tree("in").is_ok());
  for (const char* name : {"part-000000.parquet", "part-000001.parquet", "part-000002.parquet"}) {
    add_input(files_, name, 7);
  }
  ASSERT_TRUE(run_small_job(*store_, {.items = {0, 1, 2, 3}}).is_ok());
  add_input(files_, "part-000001-g1.parquet", 9, "better");
  ASSERT_TRUE(store_->move_object("in/part-000001.parquet", "in/_superseded/part-000001.parquet").is_ok());
  ASSERT_TRUE(files_.remove_file("out/_inputs.parquet").is_ok());
  const auto job = plan_job(*store_);
  ASSERT_TRUE(job.is_ok()) << job.status().to_string();
  std::vector<std::string> names;
  for (const JobInput& input : (*job)->inputs()) {
    names.push_back(input.name);
  }
  EXPECT_THAT(names, ElementsAre("part-000000.parquet", "part-000001.parquet", "part-000002.parquet"));
  EXPECT_EQ((*job)->num_rows(), 21);
  EXPECT_TRUE(run_small_job(*store_).is_ok());
}

TEST_F(MovedParts, pending_work_of_a_retry_names_the_bytes_that_are_written_anew) {
  make_first_parts();
  EXPECT_EQ(plan()->pending_work().rewritten_bytes, 0);
  const int64_t first = files_.stat("out/part-000000.parquet")->size_bytes;
  EXPECT_EQ(plan("dns")->pending_work().rewritten_bytes, first + files_.stat("out/part-000001.parquet")->size_bytes);
  EXPECT_EQ(plan("dns", {.items = {0}})->pending_work().rewritten_bytes, first);
}

TEST_F(MovedParts, a_base_that_moves_before_it_is_opened_is_read_aside) {
  make_first_parts();
  const auto retry = plan("dns");
  const WorkItem item = *retry->next_pending(0);
  const BasePart base = retry->find_base(item).value();
  ASSERT_TRUE(store_->move_object("out/part-000000.parquet", "out/_superseded/part-000000.parquet").is_ok());
  const Status opened = BaseRows::open(base, {"no such column"}, item).status();
  EXPECT_THAT(opened.message(), HasSubstr("no such column")) << "it was found";
  ASSERT_TRUE(files_.remove_tree("out/_superseded").is_ok());
  EXPECT_EQ(BaseRows::open(base, {}, item).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace darkroom
