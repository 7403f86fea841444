#include "darkroom/ingest/job_run.h"

#include <arrow/api.h>
#include <gtest/gtest.h>

#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"

namespace darkroom {
namespace {

constexpr int64_t kAllRows = 5;
constexpr int64_t kLimit = 3;
const std::string kPart = "out/" + part_name(0);

JobRecord one_item() {
  JobInput input;
  input.name = "table.parquet";
  input.num_rows = kAllRows;
  return {.verb = "download", .fields = {{"a", 1}}, .inputs = {input}, .rows_per_file = kAllRows};
}

/// One start of a job: the run and the shard of its only item.
struct Start {
  std::unique_ptr<JobRun> run;
  std::unique_ptr<ShardWriter> shard;
};

Result<Start> begin(FileSystem& files, int64_t limit, const std::string& value) {
  Start start;
  DARKROOM_ASSIGN_OR_RETURN(start.run, JobRun::open(files, "out", one_item(), limit));
  const WorkItem& item = start.run->pending().front();
  arrow::StringBuilder values;
  for (int64_t row = 0; row < item.num_rows; ++row) {
    EXPECT_TRUE(values.Append(value).ok());
  }
  const auto schema = arrow::schema({arrow::field("value", arrow::utf8())});
  DARKROOM_ASSIGN_OR_RETURN(start.shard, ShardWriter::open(files, "out", item.part_name(), schema));
  DARKROOM_RETURN_IF_ERROR(start.shard->write(*arrow::RecordBatch::Make(schema, item.num_rows, {*values.Finish()})));
  return start;
}

Status commit(Start& start) {
  const WorkItem& item = start.run->pending().front();
  ItemTally tally;
  tally.rows_in = tally.rows_out = item.num_rows;
  return start.run->commit(item, tally, *start.shard);
}

Status run_job(FileSystem& files, int64_t limit) {
  DARKROOM_ASSIGN_OR_RETURN(Start start, begin(files, limit, "x"));
  return commit(start);
}

int64_t rows_there(FileSystem& files) {
  const auto part = read_part(files, "out", 0, one_item());
  EXPECT_TRUE(part.is_ok()) << part.status().to_string();
  return part.is_ok() && verify_shard(files, kPart).is_ok() ? part->tally.rows_in : 0;
}

TEST(JobRun, a_part_that_a_limit_cut_is_replaced_by_the_whole_one) {
  MemoryFileSystem files;
  ASSERT_TRUE(run_job(files, kLimit).is_ok());
  EXPECT_EQ(rows_there(files), kLimit);
  const Status status = run_job(files, -1);
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(rows_there(files), kAllRows);
}

TEST(JobRun, no_failure_and_no_power_loss_costs_the_rows_of_a_part_that_is_being_replaced) {
  for (const Fault fault : {Fault::kNoSpace, Fault::kInputOutput, Fault::kShortWrite, Fault::kDeath}) {
    bool is_done = false;
    for (int64_t call = 0; !is_done; ++call) {
      SCOPED_TRACE(fmt::format("fault {}, call {}", static_cast<int>(fault), call));
      MemoryFileSystem memory;
      ASSERT_TRUE(run_job(memory, kLimit).is_ok());
      FaultInjectingFileSystem files(memory);
      files.fail_call(call, fault);
      is_done = run_job(files, -1).is_ok();
      EXPECT_GE(rows_there(memory), kLimit);
      memory.crash(static_cast<uint64_t>(call));
      EXPECT_GE(rows_there(memory), is_done ? kAllRows : kLimit);
      ASSERT_LT(call, 100) << "the job never succeeds";
    }
  }
}

TEST(JobRun, a_whole_part_that_another_process_made_meanwhile_stays) {
  MemoryFileSystem files;
  ASSERT_TRUE(run_job(files, kLimit).is_ok());
  auto first = begin(files, -1, "first");
  auto second = begin(files, -1, "second");  // Both saw the short part.
  ASSERT_TRUE(first.is_ok() && second.is_ok());
  ASSERT_TRUE(commit(*first).is_ok());
  const std::string published = *read_file(files, kPart);
  const Status status = commit(*second);
  EXPECT_TRUE(status.is_ok()) << status.to_string();
  EXPECT_EQ(*read_file(files, kPart), published);
  EXPECT_EQ(second->run->summary().rows_in, kAllRows);
}

TEST(JobRun, a_shorter_part_never_replaces_a_longer_one) {
  MemoryFileSystem files;
  auto limited = begin(files, kLimit, "x");
  ASSERT_TRUE(limited.is_ok());
  ASSERT_TRUE(run_job(files, -1).is_ok());
  EXPECT_TRUE(commit(*limited).is_ok());
  EXPECT_EQ(rows_there(files), kAllRows);
}

TEST(JobRun, a_part_that_another_process_is_replacing_is_left_to_it) {
  MemoryFileSystem files;
  ASSERT_TRUE(run_job(files, kLimit).is_ok());
  const auto held = files.try_lock(kPart);
  ASSERT_TRUE(held.is_ok() && *held != nullptr);
  EXPECT_EQ(run_job(files, -1).code(), StatusCode::kUnavailable);
  EXPECT_EQ(rows_there(files), kLimit);
}

}  // namespace
}  // namespace darkroom
