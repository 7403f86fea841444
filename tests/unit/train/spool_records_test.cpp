#include "train/spool_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "darkroom/train/event_writer.h"
#include "darkroom/train/metrics_log.h"
#include "full_disk.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

class SpoolRecordsTest : public testing::Test {
 protected:
  /// Five steps, each with one line and one event. The first failure.
  Status log_on(FileSystem& files, LostRecords* lost) {
    DARKROOM_ASSIGN_OR_RETURN(const auto metrics, MetricsLog::open(files, metrics_, 0, lost));
    DARKROOM_ASSIGN_OR_RETURN(const auto events, EventWriter::open(files, folder_.path(), 0, lost));
    for (int step = 1; step <= 5; ++step) {
      DARKROOM_RETURN_IF_ERROR(metrics->append({{"step", step}}));
      DARKROOM_RETURN_IF_ERROR(events->add_scalar(step, "loss", 0.5F));
    }
    DARKROOM_RETURN_IF_ERROR(metrics->sync());
    return events->sync();
  }
  std::string read(const std::string& path) const { return read_file(local_files(), path).value(); }

  TemporaryFolder folder_;
  const std::string metrics_ = folder_.path("metrics.jsonl");
  const std::string events_ = folder_.path(event_file_name(0));
};

TEST_F(SpoolRecordsTest, what_a_full_disk_does_not_take_is_counted_and_leaves_the_logs_whole) {
  FullDisk roomy(100, 100);
  ASSERT_TRUE(log_on(roomy, nullptr).is_ok());
  const size_t all_bytes = read(events_).size();
  ASSERT_TRUE(local_files().remove_file(metrics_).is_ok());
  ASSERT_TRUE(EventWriter::open(roomy, folder_.path(), 0).is_ok());
  const size_t bytes_before_steps = read(events_).size();

  FullDisk disk(2, 3);
  testing::internal::CaptureStderr();
  {
    LostRecords lost;
    const Status logged = log_on(disk, &lost);
    EXPECT_TRUE(logged.is_ok()) << logged.to_string();
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(read(metrics_), "{\"step\":1}\n{\"step\":4}\n{\"step\":5}\n");
  const size_t bytes_of_a_step = (all_bytes - bytes_before_steps) / 5;  // Its time is eight bytes, and its number one.
  EXPECT_EQ(read(events_).size(), all_bytes - 2 * bytes_of_a_step);
  EXPECT_EQ(said.find("has no room for all that is logged"), said.rfind("has no room for all that is logged")) << "said once";
  EXPECT_THAT(said, HasSubstr("has no room for all that is logged"));
  EXPECT_THAT(said, HasSubstr("no space left on device"));
  EXPECT_THAT(said, HasSubstr("events.out.tfevents.0000000000.darkroom: 2, metrics.jsonl: 2"));
}

TEST_F(SpoolRecordsTest, nothing_is_said_where_nothing_was_lost) {
  testing::internal::CaptureStderr();
  {
    LostRecords lost;
    EXPECT_TRUE(log_on(local_files(), &lost).is_ok());
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(SpoolRecordsTest, goes_on_behind_what_was_there) {
  ASSERT_TRUE(write_file_atomic(local_files(), metrics_, "{\"step\":0}\n").is_ok());
  FullDisk disk(1, 4);
  LostRecords lost;
  EXPECT_TRUE(log_on(disk, &lost).is_ok());
  EXPECT_EQ(read(metrics_), "{\"step\":0}\n{\"step\":5}\n");
}

TEST_F(SpoolRecordsTest, without_leave_a_full_disk_is_an_error) {
  FullDisk disk(2, 3);
  EXPECT_EQ(log_on(disk, nullptr).code(), StatusCode::kResourceExhausted);
}

TEST_F(SpoolRecordsTest, every_other_failure_is_an_error) {
  FullDisk disk(2, 3, Status::unavailable("input/output error"));
  LostRecords lost;
  EXPECT_EQ(log_on(disk, &lost).code(), StatusCode::kUnavailable);
}

TEST_F(SpoolRecordsTest, a_log_that_is_gone_when_a_record_is_cut_off_is_an_error_that_names_it) {
  FullDisk disk(1, 1);
  LostRecords lost;
  const auto metrics = MetricsLog::open(disk, metrics_, 0, &lost).value();
  ASSERT_TRUE(local_files().remove_file(metrics_).is_ok());
  const Status failure = metrics->append({{"step", 1}});
  EXPECT_EQ(failure.code(), StatusCode::kUnavailable);
  EXPECT_THAT(failure.message(), HasSubstr(metrics_));
}

}  // namespace
}  // namespace darkroom
