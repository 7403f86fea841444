#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/train/event_writer.h"
#include "full_disk.h"
#include "remote_run_fixture.h"
#include "train/training_run.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

size_t num_times(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

class UnstoredLogsTest : public RemoteRunTest {
 protected:
  Status train_on(FullDisk& disk, TrainOptions trained) {
    trained.clock = &s3_.clock;
    const auto run = TrainingRun::create(disk, s3_.set, trained);
    return run.is_ok() ? (*run)->run({}) : run.status();
  }

  /// The stored events, each whole.
  int num_events() {
    std::string bytes;
    for (const std::string& key : s3_.fake.keys_below("run/events")) {
      bytes += s3_.fake.bytes_of(key).value();
    }
    int count = 0;
    constexpr size_t kHead = 12, kTail = 4;  // The length and its checksum; that of the data.
    for (size_t at = 0; at + kHead <= bytes.size(); ++count) {
      uint64_t size = 0;
      std::memcpy(&size, bytes.data() + at, sizeof(size));
      if (size > bytes.size()) {
        ADD_FAILURE() << "no frame begins at byte " << at;
        break;
      }
      EXPECT_EQ(bytes.substr(at, kHead + size + kTail), tfrecord_frame(bytes.substr(at + kHead, size)));
      at += kHead + size + kTail;
    }
    return count;
  }
};

TEST_F(UnstoredLogsTest, costs_the_lines_that_it_has_no_room_for_and_not_the_run) {
  FullDisk disk(6, 7);
  testing::internal::CaptureStderr();
  const Status trained = train_on(disk, options());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(trained.is_ok()) << trained.to_string();
  std::vector<std::pair<int64_t, double>> wanted = undisturbed_losses();
  std::erase_if(wanted, [](const auto& line) { return line.first == 6 || line.first == 7; });
  EXPECT_EQ(losses(), wanted);
  EXPECT_EQ(num_events(), 2 + 10 * 5);  // Two begin the file.
  expect_same_checkpoint(12);
  EXPECT_EQ(num_times(said, "has no room for all that is logged"), 1U) << said;
  EXPECT_THAT(said, HasSubstr("no space left on device"));
  EXPECT_THAT(said, HasSubstr("events.out.tfevents.0000000000.darkroom: 10, metrics.jsonl: 2"));
}

TEST_F(UnstoredLogsTest, that_never_has_room_again_leaves_the_checkpoints) {
  FullDisk disk(3, 1000);
  const Status trained = train_on(disk, options());
  EXPECT_TRUE(trained.is_ok()) << trained.to_string();
  EXPECT_EQ(losses().size(), 2U);
  expect_same_checkpoint(12);
}

TEST_F(UnstoredLogsTest, that_fails_otherwise_ends_the_run) {
  FullDisk disk(3, 1000, Status::unavailable("input/output error"));
  EXPECT_EQ(train_on(disk, options()).code(), StatusCode::kUnavailable);
}

// Nothing is in the way of the user's own disk: what a run folder has no room for is for the user to know at once.
TEST_F(UnstoredLogsTest, is_no_run_folder_of_this_machine) {
  const TemporaryFolder here;
  FullDisk disk(3, 1000);
  const TrainOptions local = small_training(inputs_->path("model"), inputs_->path("latents"), here.path("run"));
  EXPECT_EQ(train_on(disk, local).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace darkroom
