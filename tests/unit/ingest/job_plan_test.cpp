#include "darkroom/ingest/job_plan.h"

#include <arrow/io/memory.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <set>

#include "darkroom/files/fault_files.h"
#include "darkroom/ingest/input_rows.h"
#include "darkroom/stores/input_listing.h"
#include "support/forwarding_files.h"
#include "support/planned_jobs.h"
#include "support/rounds.h"
#include "support/synthetic_files.h"

namespace {

// What this thread asked the allocator for: a measure of work that no other process changes.
thread_local int64_t allocated_bytes = 0;

}  // namespace

#if !defined(__SANITIZE_THREAD__)  // Whose runtime in clang has both already; there nothing is counted.
// Not inlined: the compiler would see a call of free() for what new gave. Both forms, because one delete takes back what either gave.
[[gnu::noinline]] void* operator new(size_t num_bytes, const std::nothrow_t&) noexcept {
  allocated_bytes += static_cast<int64_t>(num_bytes);
  return std::malloc(num_bytes == 0 ? 1 : num_bytes);
}
[[gnu::noinline]] void* operator new(size_t num_bytes) {
  if (void* memory = operator new(num_bytes, std::nothrow)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobPlans : public ::testing::Test {
 protected:
  void SetUp() override {
    add_input(files_, "a.parquet", 12);
    add_input(files_, "c.parquet", 5);
    add_input(files_, "d.parquet", 7);
  }
  std::unique_ptr<JobPlan> plan(Selection selection = {}, JobIdentity identity = small_job()) {
    auto plan = plan_job(*store_, std::move(selection), std::move(identity));
    EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
    return plan.is_ok() ? *std::move(plan) : nullptr;
  }
  Status failure(Selection selection = {}, JobIdentity identity = small_job()) {
    return plan_job(*store_, std::move(selection), std::move(identity)).status();
  }
  void run(Selection selection = {}) {
    const Status status = run_small_job(*store_, std::move(selection));
    ASSERT_TRUE(status.is_ok()) << status.to_string();
  }
  std::vector<std::string> part_names() {
    std::vector<std::string> names;
    const auto entries = files_.list("out");
    for (const FileInfo& entry : *entries) {
      if (entry.path.starts_with("out/part-")) {
        names.push_back(entry.path.substr(4));
      }
    }
    return names;
  }
  std::vector<std::string> input_names(const JobPlan& plan) {
    std::vector<std::string> names;
    for (const JobInput& input : plan.inputs()) {
      names.push_back(input.name);
    }
    return names;
  }
  nlohmann::json summary() { return nlohmann::json::parse(*read_file(files_, "out/_summary.json")); }

  MemoryFileSystem files_;
  const std::unique_ptr<Store> store_ = make_posix_store(files_, "memory");
};

TEST_F(JobPlans, a_run_does_every_item_and_the_next_one_nothing) {
  const auto before = plan();
  EXPECT_EQ(before->num_items(), 6);
  EXPECT_EQ(before->num_rows(), 24);
  EXPECT_EQ(before->num_pending(), 6);
  EXPECT_FALSE(*files_.exists("out")) << "a plan changes nothing";
  run();
  const auto after = plan();
  EXPECT_EQ(after->num_pending(), 0);
  EXPECT_EQ(after->num_rows_before(), 24);
  EXPECT_EQ(after->total().rows_in, 24);
  EXPECT_EQ(summary()["rows_in"], 24);
  EXPECT_EQ(summary()["parts"].size(), 6u);
  EXPECT_EQ(summary()["parts"][5]["name"], "part-000005.parquet");
}

TEST_F(JobPlans, what_is_derived_can_be_deleted) {
  run();
  const auto want = plan();
  for (const char* name : {"out/_job.json", "out/_inputs.parquet", "out/_summary.json"}) {
    const std::string before = *read_file(files_, name);
    ASSERT_TRUE(files_.remove_file(name).is_ok());
    const auto got = plan();
    ASSERT_NE(got, nullptr) << name;
    EXPECT_EQ(got->num_pending(), 0) << name;
    EXPECT_EQ(input_names(*got), input_names(*want)) << name;
    ASSERT_TRUE(got->prepare().is_ok());
    ASSERT_TRUE(got->write_summary({}).is_ok());
    EXPECT_EQ(*read_file(files_, name), before) << name;
  }
}

TEST_F(JobPlans, deleted_pins_come_back_from_the_parts_whatever_files_came_late) {
  run();
  ASSERT_TRUE(files_.remove_file("out/_inputs.parquet").is_ok());
  ASSERT_TRUE(files_.remove_file("out/_job.json").is_ok());
  add_input(files_, "0.parquet", 3);
  add_input(files_, "b.parquet", 5, "late");
  const auto got = plan();
  ASSERT_NE(got, nullptr);
  EXPECT_THAT(input_names(*got), ElementsAre("a.parquet", "c.parquet", "d.parquet"));
  EXPECT_EQ(got->num_pending(), 0);
}

TEST_F(JobPlans, deleted_pins_with_items_to_do_come_back_when_the_files_there_fit) {
  ASSERT_TRUE(plan()->prepare().is_ok());
  {
    const auto first = plan();
    ASSERT_TRUE(commit_item(*first, first->item(0)).is_ok());
    ASSERT_TRUE(commit_item(*first, first->item(5)).is_ok());  // Of d: c has no part.
  }
  ASSERT_TRUE(files_.remove_file("out/_inputs.parquet").is_ok());
  const auto got = plan();
  ASSERT_NE(got, nullptr);
  EXPECT_THAT(input_names(*got), ElementsAre("a.parquet", "c.parquet", "d.parquet"));
  EXPECT_EQ(got->num_pending(), 4);
  add_input(files_, "b.parquet", 4);
  const Status status = failure();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("5 rows are missing before input d.parquet"));
}

TEST_F(JobPlans, a_pinned_file_that_changed_or_vanished_is_named) {
  run();
  for (const char* derived : {"", "out/_inputs.parquet"}) {
    if (*derived != '\0') {
      ASSERT_TRUE(files_.remove_file(derived).is_ok());
    }
    const std::string c = *read_file(files_, "in/c.parquet");
    ASSERT_TRUE(files_.remove_file("in/c.parquet").is_ok());
    EXPECT_THAT(failure().message(), HasSubstr("input c.parquet (missing now)"));
    add_input(files_, "c.parquet", 5, "another size");
    EXPECT_THAT(failure().message(), HasSubstr("input c.parquet (changed)"));
    ASSERT_TRUE(write_file_atomic(files_, "in/c.parquet", c).is_ok());
    EXPECT_TRUE(failure().is_ok());
  }
}

TEST_F(JobPlans, another_job_is_refused_with_the_fields_named) {
  run();
  JobIdentity other = small_job();
  other.fields["a"] = 2;
  for (const char* derived : {"", "out/_job.json", "out/_inputs.parquet", "out/_summary.json"}) {
    if (*derived != '\0') {
      ASSERT_TRUE(files_.remove_file(derived).is_ok());
    }
    const Status status = failure({}, other);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << derived;
    EXPECT_THAT(status.message(), HasSubstr("a (had 1, asked for 2)")) << derived;
  }
}

TEST_F(JobPlans, a_folder_of_version_1_is_another_job) {
  ASSERT_TRUE(files_.create_folders("out").is_ok());
  ASSERT_TRUE(write_file_atomic(files_, "out/_job.json",
                                R"({"version":1,"verb":"download","fields":{"a":1},"rows_per_file":5,"inputs_sha256":"i",)"
                                R"("fingerprint":"f","inputs":[]})")
                  .is_ok());
  EXPECT_THAT(failure().message(), HasSubstr("version (had 1, asked for 2)"));
}

TEST_F(JobPlans, two_jobs_that_start_together_are_not_mixed) {
  JobIdentity other = small_job();
  other.fields["a"] = 2;
  const auto one = plan();
  const auto two = plan({}, other);
  ASSERT_TRUE(one->prepare().is_ok());
  EXPECT_THAT(two->prepare().message(), HasSubstr("a (had 1, asked for 2)"));
  // Even one that never looked at _job.json finds the other's part under its name.
  ASSERT_TRUE(commit_item(*one, one->item(0)).is_ok());
  const std::string published = *read_file(files_, "out/part-000000.parquet");
  EXPECT_EQ(commit_item(*two, two->item(0), "other").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(*read_file(files_, "out/part-000000.parquet"), published);
}

TEST_F(JobPlans, of_two_processes_that_pin_other_lists_one_is_told_to_run_again) {
  const auto one = plan();
  add_input(files_, "b.parquet", 3);
  const auto two = plan();
  ASSERT_TRUE(one->prepare().is_ok());
  EXPECT_EQ(two->prepare().code(), StatusCode::kUnavailable);
  EXPECT_THAT(input_names(*plan()), ElementsAre("a.parquet", "c.parquet", "d.parquet"));
}

TEST_F(JobPlans, two_processes_that_do_the_same_items_agree_on_the_totals) {
  const auto one = plan();
  const auto two = plan();
  ASSERT_TRUE(one->prepare().is_ok() && two->prepare().is_ok());
  for (int64_t item = 0; item < 4; ++item) {
    ASSERT_TRUE(commit_item(*one, one->item(item), "one").is_ok());
  }
  for (int64_t item = 5; item >= 2; --item) {
    ASSERT_TRUE(commit_item(*two, two->item(item), "two").is_ok());
  }
  EXPECT_EQ(two->num_lost_races(), 2);
  ASSERT_TRUE(one->write_summary({}).is_ok());
  EXPECT_EQ(summary()["rows_in"], 24);
  const std::string from_one = *read_file(files_, "out/_summary.json");
  ASSERT_TRUE(two->write_summary({}).is_ok());
  EXPECT_EQ(*read_file(files_, "out/_summary.json"), from_one);
  EXPECT_EQ(one->total().rows_in, 24);
  EXPECT_EQ(two->total().rows_in, 24);
}

TEST_F(JobPlans, a_limit_cuts_the_last_item_and_shifts_none) {
  for (int64_t limit = 0; limit <= 25; ++limit) {
    const auto limited = plan({.limit = limit});
    EXPECT_EQ(limited->num_rows(), std::min<int64_t>(limit, 24));
    int64_t num_rows = 0;
    for (auto item = limited->next_pending(0); item; item = limited->next_pending(item->number + 1)) {
      EXPECT_EQ(item->list_row, limited->item(item->number).list_row);
      num_rows += item->num_rows;
    }
    EXPECT_EQ(num_rows, limited->num_rows());
  }
}

TEST_F(JobPlans, a_part_that_a_limit_cut_goes_when_a_longer_one_is_there) {
  run({.limit = 8});
  EXPECT_THAT(part_names(), ElementsAre("part-000000.parquet", "part-000001-r00003.parquet"));
  EXPECT_EQ(summary()["rows_in"], 8);
  EXPECT_EQ(plan({.limit = 7})->num_pending(), 0);
  EXPECT_EQ(plan({.limit = 9})->num_pending(), 1);
  run({.limit = 9});
  EXPECT_THAT(part_names(), ElementsAre("part-000000.parquet", "part-000001-r00004.parquet"));
  run();
  EXPECT_EQ(part_names().size(), 6u);
  EXPECT_EQ(part_names()[1], "part-000001.parquet");
  EXPECT_EQ(summary()["rows_in"], 24);
  run({.limit = 8});
  EXPECT_EQ(part_names().size(), 6u);
  EXPECT_EQ(summary()["rows_in"], 24);
}

TEST_F(JobPlans, a_limited_run_beside_a_whole_one_costs_it_no_row) {
  for (const bool limited_is_first : {true, false}) {
    SCOPED_TRACE(limited_is_first);
    ASSERT_TRUE(files_.remove_tree("out").is_ok());
    const auto whole = plan();
    const auto limited = plan({.limit = 8});
    ASSERT_TRUE(whole->prepare().is_ok() && limited->prepare().is_ok());
    auto whole_shard = write_item(*whole, whole->item(1), "whole");
    const WorkItem cut = *limited->next_pending(1);
    auto cut_shard = write_item(*limited, cut, "cut");
    ASSERT_TRUE(whole_shard.is_ok() && cut_shard.is_ok());
    const auto commit_cut = [&] { return limited->publish(cut, tally_of(cut), *std::move(cut_shard)); };
    if (limited_is_first) {
      ASSERT_TRUE(commit_cut().is_ok());
    }
    ASSERT_TRUE(whole->publish(whole->item(1), tally_of(whole->item(1)), *std::move(whole_shard)).is_ok());
    const std::string published = *read_file(files_, "out/part-000001.parquet");
    if (!limited_is_first) {
      ASSERT_TRUE(commit_cut().is_ok());
      EXPECT_EQ(limited->total().rows_in, 5) << "the whole part counts";
    }
    ASSERT_TRUE(limited->write_summary({}).is_ok());
    EXPECT_THAT(part_names(), ElementsAre("part-000001.parquet"));
    EXPECT_EQ(*read_file(files_, "out/part-000001.parquet"), published);
    EXPECT_EQ(summary()["rows_in"], 5);
  }
}

TEST_F(JobPlans, readers_and_the_next_run_take_one_part_an_item_after_a_crash) {
  run({.limit = 8});
  const std::string cut = *read_file(files_, "out/part-000001-r00003.parquet");
  run();
  // As a death between the two steps leaves it.
  ASSERT_TRUE(write_file_atomic(files_, "out/part-000001-r00003.parquet", cut).is_ok());
  EXPECT_EQ(plan()->total().rows_in, 24);
  EXPECT_EQ(list_inputs(files_, "out")->size(), 6u);
  run();
  EXPECT_EQ(part_names().size(), 6u);
}

TEST_F(JobPlans, a_generation_that_was_replaced_moves_aside) {
  run();
  const std::string part = *read_file(files_, "out/part-000001.parquet");
  PartRecord record = *read_part_record({.store = store_.get(), .path = "out/part-000001.parquet"});
  record.generation = 1;
  const auto better = value_rows(record.num_rows, "better");
  ASSERT_TRUE(put_shard(files_, "out", "part-000001-g1.parquet", *better, {{kShardKey, print_part_record(record)}}).is_ok());
  run();
  EXPECT_EQ(*read_file(files_, "out/_superseded/part-000001.parquet"), part);
  EXPECT_EQ(part_names()[1], "part-000001-g1.parquet");
  EXPECT_EQ(summary()["rows_in"], 24);
}

// An image dataset whose failed rows were redone while process was on its way.
TEST(PinnedGenerations, a_job_goes_on_with_those_that_it_began_with) {
  for (const bool is_moved : {false, true}) {
    SCOPED_TRACE(is_moved);
    MemoryFileSystem files;
    const auto store = make_posix_store(files, "memory");
    add_input(files, "part-000000.parquet", 7);
    add_input(files, "part-000001.parquet", 5);
    ASSERT_TRUE(run_small_job(*store, {.items = {0}}).is_ok());
    add_input(files, "part-000000-g1.parquet", 9, "better");
    if (is_moved) {
      ASSERT_TRUE(store->move_object("in/part-000000.parquet", "in/_superseded/part-000000.parquet").is_ok());
    }
    for (const bool extend : {false, true}) {  // The rows of a later generation are none that came late.
      const auto plan = plan_job(*store, {.extend = extend});
      ASSERT_TRUE(plan.is_ok()) << plan.status().to_string();
      ASSERT_EQ((*plan)->inputs().size(), 2u);
      EXPECT_EQ((*plan)->inputs()[0].name, "part-000000.parquet");
      EXPECT_EQ((*plan)->num_rows(), 12);
    }
    EXPECT_TRUE(run_small_job(*store).is_ok());
    ASSERT_TRUE(files.remove_tree("in/_superseded").is_ok());
    (void)files.remove_file("in/part-000000.parquet");
    const Status gone = plan_job(*store).status();
    EXPECT_EQ(gone.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(gone.message(), HasSubstr("input part-000000.parquet (missing now)"));
  }
}

TEST(RetriedParts, a_base_that_counts_other_rows_than_it_lists_or_is_gone_is_an_error) {
  MemoryFileSystem files;
  const auto store = make_posix_store(files, "memory");
  add_input(files, "a.parquet", 5);
  const Location output{.store = store.get(), .path = "out"};
  const auto make_plan = [&] {
    JobRequest request{.output = output, .identity = small_job(), .input_store = store.get()};
    request.listed = list_folder(*store, "in").value();
    request.retry = RetryCodes::parse("dns").value();
    return JobPlan::make(std::move(request), {}).value();
  };
  const WorkItem item = make_plan()->item(0);
  const ItemTally tally{.rows_in = 5, .rows_out = 3, .rows_by_error = {{"dns", 2}}, .failed_rows = {{"dns", {4}}}};
  auto object = store->begin_object("out", item.part_name()).value();
  auto shard = PagedShardWriter::open(std::move(object), value_schema()).value();
  ASSERT_TRUE(shard->write(*value_rows(3, "x")).is_ok());
  const KeyValues footer = make_plan()->footer_of(item, tally);
  ASSERT_TRUE(shard->finish(footer)->object->publish().is_ok());
  const auto plan = make_plan();
  const std::optional<WorkItem> retried = plan->next_pending(0);
  ASSERT_TRUE(retried);
  EXPECT_EQ(retried->num_rows, 2);
  const Status differs = plan->find_base(*retried).status();
  EXPECT_EQ(differs.code(), StatusCode::kCorruptData);
  EXPECT_THAT(differs.message(), HasSubstr("out/part-000000.parquet dns 2 1"));
  ASSERT_TRUE(files.remove_file("out/part-000000.parquet").is_ok());
  const Status gone = plan->find_base(*retried).status();
  EXPECT_EQ(gone.code(), StatusCode::kUnavailable);
  EXPECT_THAT(gone.message(), HasSubstr("part-000000.parquet"));
}

TEST_F(JobPlans, no_failure_and_no_power_loss_costs_rows_that_were_committed) {
  for (const Fault fault : {Fault::kNoSpace, Fault::kInputOutput, Fault::kShortWrite, Fault::kDeath}) {
    bool is_done = false;
    for (int64_t call = 0; !is_done; ++call) {
      SCOPED_TRACE(fmt::format("fault {}, call {}", static_cast<int>(fault), call));
      MemoryFileSystem memory;
      const auto clean = make_posix_store(memory, "memory");
      add_input(memory, "a.parquet", 5);
      ASSERT_TRUE(run_small_job(*clean, {.limit = 3}).is_ok());
      FaultInjectingFileSystem files(memory);
      const auto store = make_posix_store(files, "memory");
      files.fail_call(call, fault);
      is_done = run_small_job(*store).is_ok();
      const auto rows_there = [&] {
        const auto plan = plan_job(*clean);
        EXPECT_TRUE(plan.is_ok()) << plan.status().to_string();
        return plan.is_ok() ? (*plan)->total().rows_in : 0;
      };
      EXPECT_GE(rows_there(), 3);
      memory.crash(static_cast<uint64_t>(call));
      EXPECT_GE(rows_there(), is_done ? 5 : 3);
      ASSERT_LT(call, 300) << "the job never succeeds";
    }
  }
}

TEST_F(JobPlans, damaged_records_of_the_job_say_what_to_do) {
  run();
  for (const char* name : {"out/_job.json", "out/_inputs.parquet"}) {
    const std::string whole = *read_file(files_, name);
    for (const std::string& bytes : {std::string("{"), std::string(), whole.substr(0, whole.size() / 2), std::string(300'000, '[')}) {
      ASSERT_TRUE(write_file_atomic(files_, name, bytes).is_ok());
      const Status status = failure();
      EXPECT_EQ(status.code(), StatusCode::kCorruptData) << name;
      EXPECT_THAT(status.message(), HasSubstr("delete it")) << name;
      EXPECT_THAT(status.message(), HasSubstr(name)) << name;
    }
    ASSERT_TRUE(write_file_atomic(files_, name, whole).is_ok());
  }
  const std::string whole = *read_file(files_, "out/_summary.json");
  for (const std::string& bytes : {std::string("{"), std::string(), whole.substr(0, whole.size() / 2), std::string(300'000, '[')}) {
    ASSERT_TRUE(write_file_atomic(files_, "out/_summary.json", bytes).is_ok());
    run();
    EXPECT_EQ(*read_file(files_, "out/_summary.json"), whole);
  }
}

TEST_F(JobPlans, a_damaged_part_is_named) {
  run();
  const std::string whole = *read_file(files_, "out/part-000002.parquet");
  ASSERT_TRUE(write_file_atomic(files_, "out/part-000002.parquet", whole.substr(0, whole.size() / 2)).is_ok());
  const Status status = failure();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("part-000002.parquet"));
  ASSERT_TRUE(write_file_atomic(files_, "out/part-000002.parquet", *read_file(files_, "out/part-000001.parquet")).is_ok());
  ASSERT_TRUE(files_.remove_file("out/_summary.json").is_ok());
  EXPECT_THAT(failure().message(), HasSubstr("its footer names another item"));
}

TEST_F(JobPlans, a_part_under_another_name_than_its_own_does_not_count) {
  run({.limit = 8});
  const std::string whole = *read_file(files_, "out/part-000000.parquet");
  const std::string cut = *read_file(files_, "out/part-000001-r00003.parquet");
  for (const auto& [name, bytes] : {std::pair("out/part-000001.parquet", cut), std::pair("out/part-000001-r00004.parquet", cut),
                                    std::pair("out/part-000000-g1.parquet", whole)}) {
    ASSERT_TRUE(write_file_atomic(files_, name, bytes).is_ok());
    const Status status = failure();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << name;
    EXPECT_THAT(status.message(), HasSubstr("its footer names another item")) << name;
    EXPECT_THAT(status.message(), HasSubstr(name)) << name;
    ASSERT_TRUE(files_.remove_file(name).is_ok());
  }
}

TEST_F(JobPlans, a_footer_that_wrongly_says_no_rows_does_not_drop_its_file) {
  arrow::StringBuilder values;
  ASSERT_TRUE(values.AppendValues({"a", "b", "c", "d", "e"}).ok());
  const auto table = arrow::Table::Make(value_schema(), {*values.Finish()});
  const auto buffer = *arrow::io::BufferOutputStream::Create();
  ASSERT_TRUE(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), buffer).ok());
  std::string bytes = (*buffer->Finish())->ToString();
  ASSERT_TRUE(files_.remove_tree("in").is_ok() && files_.create_folders("in").is_ok());
  ASSERT_TRUE(write_file_atomic(files_, "in/a.parquet", bytes).is_ok());
  ASSERT_TRUE(write_file_atomic(files_, "in/b.parquet", bytes).is_ok());
  EXPECT_EQ(plan()->num_rows(), 10);
  // Thrift: the field num_rows (i64, zigzag of 5) and the list of row groups after it.
  const size_t num_rows = bytes.find("\x16\x0A\x19");
  ASSERT_NE(num_rows, std::string::npos);
  bytes[num_rows + 1] = 0;
  ASSERT_TRUE(write_file_atomic(files_, "in/b.parquet", bytes).is_ok());
  const Status status = failure();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("in/b.parquet"));
}

TEST_F(JobPlans, a_field_that_json_cannot_hold_is_the_same_job_again) {
  JobIdentity odd = small_job();
  odd.fields["a"] = "caf\xE9";
  ASSERT_TRUE(run_small_job(*store_, {}, odd).is_ok());
  EXPECT_TRUE(failure({}, odd).is_ok()) << failure({}, odd).to_string();
}

TEST_F(JobPlans, counts_in_the_summary_that_do_not_add_up_are_not_believed) {
  run();
  const std::string whole = *read_file(files_, "out/_summary.json");
  for (const auto& [from, to] : {std::pair("\"rows_in\":5", "\"rows_in\":4"), std::pair("\"rows_out\":5", "\"rows_out\":-5"),
                                 std::pair("\"rows_by_error\":{}", "\"rows_by_error\":{\"dns\":1}")}) {
    std::string odd = whole;
    const size_t place = odd.find(from, odd.find("\"parts\":["));
    ASSERT_NE(place, std::string::npos) << from;
    odd.replace(place, std::string(from).size(), to);
    ASSERT_TRUE(write_file_atomic(files_, "out/_summary.json", odd).is_ok());
    const ItemTally total = plan()->total();
    EXPECT_EQ(total.rows_in, 24) << to;
    EXPECT_EQ(total.rows_out, 24) << to;
    EXPECT_TRUE(total.rows_by_error.empty()) << to;
  }
}

/// Counts how often files are opened to be read.
class CountingFiles final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    const int64_t number = ++num_opened;
    if (number == stop_at) {
      stop.request_stop();
    }
    if (path.starts_with("out/part-")) {
      ++num_parts_opened;
    }
    return ForwardingFiles::open_input(path);
  }
  std::atomic<int64_t> num_opened = 0;
  std::atomic<int64_t> num_parts_opened = 0;
  int64_t stop_at = -1;
  std::stop_source stop;
};

TEST_F(JobPlans, footers_that_the_summary_vouches_for_are_not_read_again) {
  run();
  CountingFiles files(files_);
  const auto store = make_posix_store(files, "memory");
  ASSERT_TRUE(plan_job(*store).is_ok());
  EXPECT_EQ(files.num_parts_opened, 0);
  ASSERT_TRUE(files_.remove_file("out/_summary.json").is_ok());
  ASSERT_TRUE(plan_job(*store).is_ok());
  EXPECT_EQ(files.num_parts_opened, 6);
}

TEST_F(JobPlans, names_that_are_no_utf8_are_names) {
  add_input(files_, "caf\xE9.parquet", 3);
  add_input(files_, "caf\xE8.parquet", 3);
  run();
  ASSERT_TRUE(files_.remove_file("out/_inputs.parquet").is_ok());
  const auto got = plan();
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->num_pending(), 0);
  EXPECT_EQ(got->inputs()[2].name, "caf\xE8.parquet");
  ASSERT_TRUE(files_.remove_file("in/caf\xE9.parquet").is_ok());
  EXPECT_THAT(failure().message(), HasSubstr("(missing now)"));
}

TEST_F(JobPlans, shards_share_the_items_out) {
  std::multiset<int64_t> taken;
  int64_t num_rows = 0;
  for (int64_t shard = 0; shard < 4; ++shard) {
    const auto part = plan({.shard = shard, .num_shards = 4});
    num_rows += part->num_rows();
    for (auto item = part->next_pending(0); item; item = part->next_pending(item->number + 1)) {
      taken.insert(item->number);
    }
  }
  EXPECT_THAT(taken, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(num_rows, 24);
}

TEST_F(JobPlans, single_items_are_done_alone) {
  run({.items = {1, 4}});
  EXPECT_THAT(part_names(), ElementsAre("part-000001.parquet", "part-000004.parquet"));
  const Status status = failure({.items = {1, 6}});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("6"));
}

TEST_F(JobPlans, odd_selections_are_refused) {
  for (const Selection& selection :
       {Selection{.shard = 1}, Selection{.shard = -1, .num_shards = 2}, Selection{.shard = 2, .num_shards = 2}, Selection{.num_shards = 0},
        Selection{.items = {-1}}, Selection{.items = {2, 1}}, Selection{.items = {1, 1}}}) {
    EXPECT_EQ(failure(selection).code(), StatusCode::kInvalidArgument);
  }
}

TEST_F(JobPlans, late_files_are_appended_when_asked_for_and_stay) {
  run();
  add_input(files_, "b.parquet", 5, "late");
  EXPECT_EQ(plan()->num_items(), 6);
  run({.extend = true});
  add_input(files_, "0.parquet", 2, "later");
  run({.extend = true});
  const auto got = plan();
  EXPECT_THAT(input_names(*got), ElementsAre("a.parquet", "c.parquet", "d.parquet", "b.parquet", "0.parquet"));
  EXPECT_EQ(got->num_pending(), 0);
  EXPECT_EQ(got->item(6).list_row, 24);
  EXPECT_EQ(summary()["rows_in"], 31);
  ASSERT_TRUE(files_.remove_file("out/_inputs.parquet").is_ok());
  run();
  EXPECT_EQ(input_names(*plan()), input_names(*got));
}

TEST_F(JobPlans, a_run_beside_one_that_extends_ends_with_the_parts_of_both) {
  const auto one = plan();
  ASSERT_TRUE(one->prepare().is_ok());
  add_input(files_, "e.parquet", 3);
  run({.extend = true});
  ASSERT_TRUE(do_pending(*one).is_ok());
  const Status status = one->write_summary({});
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(one->num_items(), 6);
  EXPECT_EQ(one->num_parts(), 7);
  EXPECT_EQ(summary()["rows_in"], 27);
}

TEST_F(JobPlans, of_two_that_extend_at_once_one_is_told_to_run_again) {
  run();
  add_input(files_, "e.parquet", 2);
  const auto one = plan({.extend = true});
  add_input(files_, "b.parquet", 3);
  const auto two = plan({.extend = true});
  ASSERT_TRUE(one->prepare().is_ok());
  EXPECT_EQ(two->prepare().code(), StatusCode::kUnavailable);
  const auto again = plan({.extend = true});
  ASSERT_TRUE(again->prepare().is_ok());
  EXPECT_THAT(input_names(*plan()), ElementsAre("a.parquet", "c.parquet", "d.parquet", "e.parquet", "b.parquet"));
}

TEST_F(JobPlans, who_rebuilds_the_list_keeps_what_others_appended_to_it_meanwhile) {
  run();
  ASSERT_TRUE(files_.remove_file("out/_inputs.parquet").is_ok());
  const auto slow = plan();
  run();
  add_input(files_, "e.parquet", 2);
  run({.extend = true});
  ASSERT_TRUE(slow->prepare().is_ok());
  EXPECT_TRUE(*files_.exists("out/_inputs-1.parquet"));
  EXPECT_THAT(input_names(*plan()), ElementsAre("a.parquet", "c.parquet", "d.parquet", "e.parquet"));
}

TEST_F(JobPlans, a_gap_between_extensions_leaves_none_behind_when_the_list_is_rebuilt) {
  run();
  for (const char* name : {"e.parquet", "f.parquet", "g.parquet"}) {
    add_input(files_, name, 2);
    run({.extend = true});
  }
  const auto want = input_names(*plan());
  ASSERT_TRUE(files_.remove_file("out/_inputs.parquet").is_ok() && files_.remove_file("out/_inputs-2.parquet").is_ok());
  run();
  EXPECT_FALSE(*files_.exists("out/_inputs-1.parquet"));
  EXPECT_FALSE(*files_.exists("out/_inputs-3.parquet"));
  EXPECT_EQ(input_names(*plan()), want);
}

TEST_F(JobPlans, a_damaged_extension_says_to_delete_all_lists_and_that_helps) {
  run();
  add_input(files_, "b.parquet", 2);
  run({.extend = true});
  ASSERT_TRUE(write_file_atomic(files_, "out/_inputs-1.parquet", "damaged").is_ok());
  EXPECT_THAT(failure().message(), HasSubstr("delete it and every other _inputs*.parquet"));
  ASSERT_TRUE(files_.remove_file("out/_inputs.parquet").is_ok() && files_.remove_file("out/_inputs-1.parquet").is_ok());
  run();
  EXPECT_THAT(input_names(*plan()), ElementsAre("a.parquet", "c.parquet", "d.parquet", "b.parquet"));
}

TEST_F(JobPlans, a_late_file_that_is_broken_stops_nothing_until_it_is_to_be_appended) {
  run({.limit = 8});
  const std::string whole = *read_file(files_, "in/c.parquet");
  ASSERT_TRUE(write_file_atomic(files_, "in/b.parquet", whole.substr(0, whole.size() / 2)).is_ok());
  run();
  EXPECT_THAT(input_names(*plan()), ElementsAre("a.parquet", "c.parquet", "d.parquet"));
  const Status extended = failure({.extend = true});
  EXPECT_EQ(extended.code(), StatusCode::kCorruptData);
  EXPECT_THAT(extended.message(), HasSubstr("in/b.parquet"));
  ASSERT_TRUE(write_file_atomic(files_, "in/c.parquet", whole.substr(0, whole.size() / 2)).is_ok());
  const Status pinned = failure();
  EXPECT_EQ(pinned.code(), StatusCode::kCorruptData) << pinned.to_string();
  EXPECT_THAT(pinned.message(), HasSubstr("in/c.parquet"));
}

TEST_F(JobPlans, columns_are_checked_once_for_tables_alike_and_before_anything_is_written) {
  std::atomic<int> num_checks = 0;
  JobRequest request{.output = {.store = store_.get(), .path = "out"}, .identity = small_job(), .input_store = store_.get()};
  request.listed = *list_folder(*store_, "in");
  request.check_columns = [&](const arrow::Schema&, const std::string& path) {
    ++num_checks;
    return path == "in/odd.csv" ? Status::not_found("no such column:", path) : Status::ok();
  };
  ASSERT_TRUE(JobPlan::make(request, {}).is_ok());
  EXPECT_LE(num_checks, 3);
  ASSERT_TRUE(write_file_atomic(files_, "in/odd.csv", "x\n1\n").is_ok());
  request.listed = *list_folder(*store_, "in");
  EXPECT_EQ(JobPlan::make(request, {}).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(*files_.exists("out"));
}

class ManyInputs : public ::testing::Test {
 protected:
  ManyInputs() {
    add_input(memory_, "one.parquet", 1);
    bytes_ = *read_file(memory_, "in/one.parquet");
    EXPECT_TRUE(memory_.remove_tree("in").is_ok());
  }
  MemoryFileSystem memory_;
  std::string bytes_;
};

TEST_F(ManyInputs, planning_ends_soon_after_a_stop) {
  constexpr int64_t kNumFiles = 20'000;
  SyntheticFiles synthetic(memory_, "in", kNumFiles, bytes_);
  CountingFiles files(synthetic);
  files.stop_at = 1'000;
  const auto store = make_posix_store(files, "memory");
  const Status status = plan_job(*store, {}, small_job(), files.stop.get_token()).status();
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
  EXPECT_LE(files.num_opened, 1'000 + 3 * 64) << "each of 64 readers ends with the file it has";
}

TEST_F(ManyInputs, one_look_a_file_and_a_commit_costs_the_same_whatever_their_number) {
  std::vector<int64_t> commit_bytes;
  for (const int64_t num_files : {int64_t{2'000}, few_rounds(200'000)}) {
    SyntheticFiles synthetic(memory_, "in", num_files, bytes_);
    CountingFiles files(synthetic);
    const auto store = make_posix_store(files, "memory");
    ASSERT_TRUE(memory_.remove_tree("out").is_ok());
    const auto start = std::chrono::steady_clock::now();
    const auto planned = plan_job(*store);
    ASSERT_TRUE(planned.is_ok()) << planned.status().to_string();
    JobPlan& plan = **planned;
    EXPECT_EQ(plan.num_pending(), num_files);
    EXPECT_LE(files.num_opened, num_files + 64);
    ASSERT_TRUE(plan.prepare().is_ok());
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    std::printf("%lld inputs: planned and pinned in %.2f s, peak resident memory of the test program %ld MB\n",
                static_cast<long long>(num_files), seconds, usage.ru_maxrss / 1024);
    const WorkItem item = plan.item(num_files / 2);
    auto shard = write_item(plan, item);
    ASSERT_TRUE(shard.is_ok());
    const int64_t before = allocated_bytes;
    ASSERT_TRUE(plan.publish(item, tally_of(item), *std::move(shard)).is_ok());
    commit_bytes.push_back(allocated_bytes - before);
    const auto again = plan_job(*store);  // With pins to join.
    ASSERT_TRUE(again.is_ok()) << again.status().to_string();
    EXPECT_EQ((*again)->num_pending(), num_files - 1);
  }
  EXPECT_LE(static_cast<double>(commit_bytes[1]), 1.2 * static_cast<double>(commit_bytes[0]));
}

TEST_F(JobPlans, an_input_that_was_replaced_is_not_opened) {
  const auto job = plan();
  EXPECT_TRUE(job->open_input(job->item(5)).is_ok());
  ASSERT_TRUE(files_.remove_file("in/d.parquet").is_ok());
  add_input(files_, "d.parquet", 7, "y");
  const Status status = job->open_input(job->item(5)).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("in/d.parquet"));
  InputRows rows(nullptr, {}, {});
  EXPECT_TRUE(rows.seek(*job, job->item(0)).is_ok());
  EXPECT_EQ(rows.seek(*job, job->item(5)).code(), StatusCode::kFailedPrecondition);
}

TEST_F(JobPlans, columns_are_looked_at_once_for_each_set_of_arrow_types) {
  const auto add = [&](const std::string& name, const std::shared_ptr<arrow::DataType>& type, const std::string& metadata) {
    const auto schema = arrow::schema({arrow::field("value", type)}, arrow::key_value_metadata({"pandas"}, {metadata}));
    const auto builder = *arrow::MakeBuilder(type);
    ASSERT_TRUE(builder->AppendNull().ok());
    ASSERT_TRUE(put_shard(files_, "typed", name, *arrow::RecordBatch::Make(schema, 1, {*builder->Finish()})).is_ok());
  };
  add("a.parquet", arrow::binary(), "rows 0 to 1");
  add("b.parquet", arrow::binary(), "rows 1 to 2");
  add("c.parquet", arrow::large_binary(), "rows 0 to 1");
  std::vector<std::string> seen;
  const CheckColumns look = [&](const arrow::Schema& schema, const std::string&) {
    seen.push_back(schema.field(0)->type()->ToString());
    return Status::ok();
  };
  auto inputs = list_folder(*store_, "typed").value();
  ASSERT_TRUE(measure_inputs(store_.get(), look, {}, inputs).is_ok());
  EXPECT_THAT(seen, ElementsAre("binary", "large_binary"));
}

/// Has the whole part take the place of the cut one between the look at that and its opening, as another run does.
class ReplacedCut : public ForwardingFiles {
 public:
  explicit ReplacedCut(FileSystem& files) : ForwardingFiles(files), base_(files) {}
  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    if (path.ends_with("out/part-000001-r00003.parquet") && *base_.exists("whole/part-000001.parquet")) {
      EXPECT_TRUE(base_.rename_replace("whole/part-000001.parquet", "out/part-000001.parquet").is_ok());
      EXPECT_TRUE(base_.remove_file(path).is_ok());
    }
    return ForwardingFiles::open_input(path);
  }

 private:
  FileSystem& base_;
};

TEST_F(JobPlans, a_cut_part_that_goes_for_the_whole_one_while_it_is_looked_at_fails_no_run) {
  run();
  ASSERT_TRUE(files_.create_folders("whole").is_ok());
  ASSERT_TRUE(files_.rename_replace("out/part-000001.parquet", "whole/part-000001.parquet").is_ok());
  ReplacedCut files(files_);
  const auto store = make_posix_store(files, "memory");
  const auto job = plan_job(*store, {.limit = 8}).value();
  run({.limit = 8});
  WorkItem cut = job->item(1);
  cut.num_rows = 3;
  const auto is_there = job->is_committed_now(cut);
  ASSERT_TRUE(is_there.is_ok()) << is_there.status().to_string();
  EXPECT_TRUE(*is_there);
  EXPECT_EQ(job->parts().at(1).name.text(), "part-000001.parquet");
}

TEST_F(JobPlans, pending_work_counts_the_rows_bytes_and_parts_of_what_is_left) {
  const int64_t all_bytes =
      files_.stat("in/a.parquet")->size_bytes + files_.stat("in/c.parquet")->size_bytes + files_.stat("in/d.parquet")->size_bytes;
  PendingWork work = plan()->pending_work();
  EXPECT_EQ(work.num_rows, 24);
  EXPECT_EQ(work.num_inputs, 3);
  EXPECT_NEAR(static_cast<double>(work.input_bytes), static_cast<double>(all_bytes), 1);
  EXPECT_TRUE(work.reads_objects && work.writes_objects) << "a store of its own is no disk";
  EXPECT_EQ(work.part_rows_in + work.part_bytes, 0);
  run({.limit = 10});
  work = plan()->pending_work();
  EXPECT_EQ(work.num_rows, 14);
  EXPECT_EQ(work.part_rows_in, 10);
  EXPECT_EQ(work.part_rows_out, 10);
  EXPECT_EQ(work.part_bytes, files_.stat("out/part-000000.parquet")->size_bytes + files_.stat("out/part-000001.parquet")->size_bytes);
  EXPECT_EQ(plan({.shard = 1, .num_shards = 2})->pending_work().num_rows, 5 + 2);
  const auto local = make_posix_store(files_, "file");
  EXPECT_FALSE(plan_job(*local).value()->pending_work().writes_objects);
}

/// Counts the lists that are asked for of the claims.
class ClaimListings final : public ForwardingFiles {
 public:
  using ForwardingFiles::ForwardingFiles;
  Result<std::vector<FileInfo>> list(const std::string& folder) override {
    num_listings += folder.find("out/_claims") != std::string::npos ? 1 : 0;
    return ForwardingFiles::list(folder);
  }
  int num_listings = 0;
};

TEST_F(JobPlans, a_run_looks_at_the_claims_once_when_the_dead_left_nothing_beside_them) {
  run();
  for (const bool is_claimed : {false, true}) {
    if (is_claimed) {
      ASSERT_TRUE(write_file_atomic(files_, "out/_claims/000001", "somebody's").is_ok());
      ASSERT_TRUE(files_.remove_tree("out/_claims/_tmp").is_ok());
    }
    ClaimListings files(files_);
    const auto store = make_posix_store(files, "memory");
    ASSERT_TRUE(plan_job(*store).value()->prepare().is_ok());
    EXPECT_EQ(files.num_listings, 1) << is_claimed;
  }
}

TEST_F(JobPlans, a_run_begins_by_sweeping_what_the_dead_left_beside_parts_and_claims) {
  for (const char* left : {"out/_tmp/part-000000.parquet.left", "out/_claims/_tmp/000003.left", "out/_claims/_tmp.000003.left"}) {
    ASSERT_TRUE(files_.create_folders(parent_folder(left)).is_ok());
    ASSERT_TRUE(files_.create(left).value()->close().is_ok());
    ASSERT_TRUE(plan()->prepare().is_ok());
    EXPECT_FALSE(files_.exists(left).value()) << left;
  }
}

}  // namespace
}  // namespace darkroom
