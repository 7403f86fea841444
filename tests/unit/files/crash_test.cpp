#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/files/publication.h"
#include "support/crash_everywhere.h"

namespace darkroom {
namespace {

constexpr int kNumSeeds = kNumCrashSeeds;
const std::string kBlock(1000, 'b');

Status publish_file(FileSystem& files) {
  DARKROOM_ASSIGN_OR_RETURN(auto publication, Publication::begin(files, "out", "part"));
  DARKROOM_RETURN_IF_ERROR(publication->file().write_text(kBlock));
  DARKROOM_RETURN_IF_ERROR(publication->file().write_text(kBlock));
  return publication->publish().status();
}

Status publish_checkpoint(FileSystem& files) {
  DARKROOM_ASSIGN_OR_RETURN(auto publication, FolderPublication::begin(files, "out", "step-1"));
  DARKROOM_RETURN_IF_ERROR(files.create_folders(publication->folder() + "/unet"));
  for (const char* name : {"/unet/weights", "/state.json"}) {
    DARKROOM_ASSIGN_OR_RETURN(auto file, files.create(publication->folder() + name));
    DARKROOM_RETURN_IF_ERROR(file->write_text(kBlock));
    DARKROOM_RETURN_IF_ERROR(file->close());
  }
  return publication->publish().status();
}

Status replace_file(FileSystem& files) { return write_file_atomic(files, "out/job.json", kBlock); }

void prepare_nothing(FileSystem&) {}

TEST(Crash, a_published_file_is_whole_or_absent_and_stays_once_acknowledged) {
  crash_everywhere(prepare_nothing, publish_file, [](FileSystem& files, bool acknowledged) {
    const bool visible = files.exists("out/part").value();
    EXPECT_TRUE(visible || !acknowledged);
    if (visible) {
      EXPECT_EQ(read_file(files, "out/part").value(), kBlock + kBlock);
    }
  });
}

TEST(Crash, a_published_folder_is_whole_or_absent_and_stays_once_acknowledged) {
  crash_everywhere(prepare_nothing, publish_checkpoint, [](FileSystem& files, bool acknowledged) {
    const bool visible = files.exists("out/step-1").value();
    EXPECT_TRUE(visible || !acknowledged);
    if (visible) {
      EXPECT_EQ(read_file(files, "out/step-1/unet/weights").value(), kBlock);
      EXPECT_EQ(read_file(files, "out/step-1/state.json").value(), kBlock);
    }
  });
}

TEST(Crash, a_replaced_file_is_the_old_or_the_new_one) {
  const auto prepare = [](FileSystem& files) { ASSERT_TRUE(write_file_atomic(files, "out/job.json", "old").is_ok()); };
  crash_everywhere(prepare, replace_file, [](FileSystem& files, bool acknowledged) {
    const std::string text = read_file(files, "out/job.json").value();
    EXPECT_TRUE(text == kBlock || (text == "old" && !acknowledged)) << text;
  });
}

TEST(Crash, a_second_run_completes_the_work_and_sweeps_the_leftovers) {
  crash_everywhere(prepare_nothing, publish_file, [](FileSystem& files, bool) {
    ASSERT_TRUE(sweep_unpublished(files, "out").is_ok());
    ASSERT_TRUE(publish_file(files).is_ok());
    const auto left = files.list_tree("out").value();
    ASSERT_EQ(left.size(), 1u);
    EXPECT_EQ(read_file(files, "out/part").value(), kBlock + kBlock);
  });
}

/// Fails each call of `work` once, with the process alive.
void fail_everywhere(const std::function<Status(FileSystem&)>& work, const std::string& path) {
  const int64_t num_calls = count_calls(prepare_nothing, work);
  for (const Fault fault : {Fault::kNoSpace, Fault::kInputOutput, Fault::kShortWrite}) {
    for (int64_t call = 0; call < num_calls; ++call) {
      SCOPED_TRACE(fmt::format("call {} of {}, fault {}", call, num_calls, static_cast<int>(fault)));
      MemoryFileSystem memory;
      FaultInjectingFileSystem files(memory);
      files.fail_call(call, fault);
      const Status status = work(files);
      EXPECT_FALSE(status.is_ok());
      EXPECT_EQ(status.code(), fault == Fault::kInputOutput ? StatusCode::kUnavailable : StatusCode::kResourceExhausted);
      EXPECT_THAT(status.message(), testing::HasSubstr("out"));
      files.heal();
      const bool visible = files.exists(path).value();
      EXPECT_TRUE(!visible || call == num_calls - 1) << "only the last sync may fail with the object visible";
      EXPECT_TRUE(work(files).is_ok());
      EXPECT_EQ(read_file(files, path).value().substr(0, kBlock.size()), kBlock);
      EXPECT_EQ(files.list("out/_tmp").is_ok() ? files.list("out/_tmp").value().size() : 0, 0u);
    }
  }
}

TEST(Faults, no_disk_fault_publishes_a_bad_file_or_leaves_a_temporary) { fail_everywhere(publish_file, "out/part"); }

TEST(Faults, no_disk_fault_replaces_a_file_by_a_bad_one) { fail_everywhere(replace_file, "out/job.json"); }

TEST(Faults, the_call_with_the_given_number_fails_and_no_other) {
  for (const int64_t number : {0, 1, 2}) {
    MemoryFileSystem memory;
    FaultInjectingFileSystem files(memory);
    ASSERT_TRUE(files.create_folders("before").is_ok());
    files.fail_call(number, Fault::kNoSpace);
    for (int64_t call = 0; call < 4; ++call) {
      EXPECT_EQ(files.num_calls(), call);
      const StatusCode want = call == number ? StatusCode::kResourceExhausted : StatusCode::kOk;
      EXPECT_EQ(files.create_folders(fmt::format("folder-{}", call)).code(), want) << number;
    }
    files.heal();
    EXPECT_EQ(files.num_calls(), 0);
    EXPECT_TRUE(files.create_folders("after").is_ok());
  }
}

TEST(Faults, a_file_whose_sync_failed_is_never_synced_again) {
  MemoryFileSystem memory;
  FaultInjectingFileSystem files(memory);
  auto file = files.create("a").value();
  ASSERT_TRUE(file->write_text("x").is_ok());
  files.fail_call(0, Fault::kInputOutput);
  EXPECT_FALSE(file->sync().is_ok());
  EXPECT_FALSE(file->sync().is_ok());
  EXPECT_FALSE(file->write_text("y").is_ok());
  EXPECT_EQ(files.num_calls(), 1);
}

TEST(MemoryFiles, a_power_loss_takes_unsynced_bytes_and_names) {
  MemoryFileSystem files;
  auto synced = files.create("synced").value();
  ASSERT_TRUE(synced->write_text("safe").is_ok());
  ASSERT_TRUE(synced->sync().is_ok());
  ASSERT_TRUE(files.sync_folder("/").is_ok());
  ASSERT_TRUE(synced->write_text(" lost").is_ok());
  auto nameless = files.create("nameless").value();
  ASSERT_TRUE(nameless->sync().is_ok());
  files.crash(0);
  EXPECT_EQ(read_file(files, "synced").value(), "safe");
  EXPECT_FALSE(files.exists("nameless").value());
}

TEST(MemoryFiles, a_power_loss_may_leave_a_name_that_was_not_synced) {
  int num_left = 0;
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    MemoryFileSystem files;
    auto file = files.create("nameless").value();
    ASSERT_TRUE(file->sync().is_ok());
    files.crash(seed);
    num_left += files.exists("nameless").value() ? 1 : 0;
  }
  EXPECT_GT(num_left, 0);
  EXPECT_LT(num_left, kNumSeeds);
}

TEST(MemoryFiles, what_one_power_loss_left_survives_the_next) {
  for (uint64_t seed = 0; seed < kNumSeeds; ++seed) {
    SCOPED_TRACE(seed);
    MemoryFileSystem files;
    auto file = files.create("log").value();
    ASSERT_TRUE(file->write_text(kBlock).is_ok());
    ASSERT_TRUE(file->close().is_ok());
    ASSERT_TRUE(files.sync_folder("").is_ok());
    files.crash(seed);
    const std::string left = read_file(files, "log").value();
    files.crash(0);
    EXPECT_EQ(read_file(files, "log").value(), left);
  }
}

}  // namespace
}  // namespace darkroom
