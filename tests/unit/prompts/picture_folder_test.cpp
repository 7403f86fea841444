#include "darkroom/prompts/picture_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "darkroom/core/sha256.h"
#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"
#include "some_pictures.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

constexpr const char* kOut = "work/out";

std::string bytes_of(size_t picture) { return "picture " + std::to_string(picture); }

// What a run does: looks which pictures are there and paints the others. Gives how many it painted.
Result<size_t> paint_all(FileSystem& files, const PictureRecord& asked) {
  DARKROOM_ASSIGN_OR_RETURN(const auto folder, PictureFolder::open(files, kOut));
  PictureRecord record = asked;
  std::vector<size_t> missing;
  for (size_t i = 0; i < record.pictures.size(); ++i) {
    const auto digest = folder->find(record.pictures[i].file, picture_identity(record.origin, record.pictures[i]));
    record.pictures[i].sha256 = digest.value_or("");
    if (!digest) {
      missing.push_back(i);
    }
  }
  if (!missing.empty()) {
    DARKROOM_RETURN_IF_ERROR(folder->begin({"apples"}));
  }
  for (const size_t i : missing) {
    RecordedPicture& picture = record.pictures[i];
    DARKROOM_ASSIGN_OR_RETURN(picture.sha256, folder->add(picture.file, picture_identity(record.origin, picture), bytes_of(i)));
  }
  DARKROOM_RETURN_IF_ERROR(folder->finish(record));
  return missing.size();
}

std::string file_in(FileSystem& files, const std::string& name) { return read_file(files, std::string(kOut) + "/" + name).value(); }

bool is_there(FileSystem& files, const std::string& name) { return files.exists(std::string(kOut) + "/" + name).value(); }

void expect_whole(FileSystem& files, const PictureRecord& asked) {
  const PictureRecord record = read_picture_record(file_in(files, kPictureRecordFile), "x").value();
  ASSERT_EQ(record.pictures.size(), asked.pictures.size());
  for (size_t i = 0; i < record.pictures.size(); ++i) {
    EXPECT_EQ(file_in(files, record.pictures[i].file), bytes_of(i));
    EXPECT_EQ(record.pictures[i].sha256, sha256_hex(bytes_of(i)));
  }
  EXPECT_FALSE(is_there(files, kPictureJournalFile));
}

TEST(PictureFolder, a_finished_folder_has_a_record_and_nothing_to_paint) {
  MemoryFileSystem files;
  EXPECT_EQ(paint_all(files, some_record()).value(), 2U);
  expect_whole(files, some_record());
  EXPECT_EQ(paint_all(files, some_record()).value(), 0U);
  expect_whole(files, some_record());
}

TEST(PictureFolder, pictures_of_other_settings_or_bytes_are_painted_again) {
  MemoryFileSystem files;
  ASSERT_TRUE(paint_all(files, some_record()).is_ok());
  PictureRecord record = some_record();
  record.pictures[1].picture.fields.steps = 3;
  EXPECT_EQ(paint_all(files, record).value(), 1U);
  ASSERT_TRUE(write_file_atomic(files, "work/out/apples/00000.png", "painted over").is_ok());
  EXPECT_EQ(paint_all(files, record).value(), 1U);
  ASSERT_TRUE(files.remove_file("work/out/apples/00000.png").is_ok());
  EXPECT_EQ(paint_all(files, record).value(), 1U);
  record.origin.fingerprints["unet"] = std::string(64, 'f');
  EXPECT_EQ(paint_all(files, record).value(), 2U);
  expect_whole(files, record);
}

// Two job files take turns in one folder.
TEST(PictureFolder, a_run_forgets_no_picture_of_another) {
  PictureRecord whole = some_record();
  PictureRecord first = whole, second = whole;
  first.pictures.resize(1);
  second.pictures.erase(second.pictures.begin());
  MemoryFileSystem files;
  {
    const auto folder = PictureFolder::open(files, kOut).value();  // Killed before it is done.
    ASSERT_TRUE(folder->begin({"apples"}).is_ok());
    ASSERT_TRUE(folder->add(first.pictures[0].file, picture_identity(first.origin, first.pictures[0]), bytes_of(0)).is_ok());
  }
  EXPECT_EQ(paint_all(files, second).value(), 1U);
  EXPECT_EQ(paint_all(files, second).value(), 0U);
  EXPECT_EQ(paint_all(files, first).value(), 0U);
  EXPECT_EQ(paint_all(files, second).value(), 0U);
  EXPECT_EQ(paint_all(files, whole).value(), 0U);
}

TEST(PictureFolder, lines_of_pictures_that_are_gone_go) {
  PictureRecord second = some_record();
  second.pictures.erase(second.pictures.begin());
  MemoryFileSystem files;
  ASSERT_TRUE(paint_all(files, some_record()).is_ok());
  ASSERT_TRUE(paint_all(files, second).is_ok());
  EXPECT_TRUE(is_there(files, kPictureJournalFile));
  ASSERT_TRUE(files.remove_file("work/out/apples/00000.png").is_ok());
  ASSERT_TRUE(paint_all(files, second).is_ok());
  EXPECT_FALSE(is_there(files, kPictureJournalFile));
}

TEST(PictureFolder, there_is_no_record_while_pictures_are_added) {
  MemoryFileSystem files;
  ASSERT_TRUE(paint_all(files, some_record()).is_ok());
  const auto folder = PictureFolder::open(files, kOut).value();
  ASSERT_TRUE(folder->begin({"apples"}).is_ok());
  EXPECT_FALSE(is_there(files, kPictureRecordFile));
  EXPECT_EQ(std::ranges::count(file_in(files, kPictureJournalFile), '\n'), 2);  // What the record knew is not lost.
}

TEST(PictureFolder, one_process_at_a_time_holds_it) {
  MemoryFileSystem files;
  const auto first = PictureFolder::open(files, kOut).value();
  const Status second = PictureFolder::open(files, kOut).status();
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(second.message(), HasSubstr("another process is painting into this folder"));
}

TEST(PictureFolder, a_record_that_is_none_is_damage_and_stays) {
  MemoryFileSystem files;
  ASSERT_TRUE(write_file_atomic(files, "work/out/pictures.json", "my holiday").is_ok());
  const Status status = PictureFolder::open(files, kOut).status();
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("move it away"));
  EXPECT_EQ(file_in(files, kPictureRecordFile), "my holiday");
}

TEST(PictureFolder, torn_and_foreign_lines_tell_of_no_picture) {
  MemoryFileSystem files;
  {
    const auto folder = PictureFolder::open(files, kOut).value();
    ASSERT_TRUE(folder->begin({"apples"}).is_ok());
    const PictureRecord record = some_record();
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(folder->add(record.pictures[i].file, picture_identity(record.origin, record.pictures[i]), bytes_of(i)).is_ok());
    }
  }
  const std::string lines = file_in(files, kPictureJournalFile);
  for (const std::string& text : {lines.substr(0, lines.size() - 1), lines.substr(0, lines.size() / 2 + 10),
                                  "\n[]\n{\"file\":3}\n" + lines.substr(0, lines.find('\n') + 1)}) {
    ASSERT_TRUE(write_file_atomic(files, "work/out/pictures.jsonl", text).is_ok());
    EXPECT_EQ(paint_all(files, some_record()).value(), 1U) << text;
    expect_whole(files, some_record());
    ASSERT_TRUE(files.remove_file("work/out/pictures.json").is_ok());
  }
}

// Whatever call fails, the next run ends with the same files, and paints again what was not said to be painted.
TEST(PictureFolder, every_fault_at_every_call_costs_a_rerun_and_nothing_else) {
  for (const Fault fault : {Fault::kNoSpace, Fault::kInputOutput, Fault::kShortWrite, Fault::kDeath}) {
    for (int64_t call = 0;; ++call) {
      MemoryFileSystem memory;
      FaultInjectingFileSystem files(memory);
      files.fail_call(call, fault);
      const auto first = paint_all(files, some_record());
      const bool is_past_the_end = files.num_calls() <= call;
      files.heal();
      const auto second = paint_all(memory, some_record());
      ASSERT_TRUE(second.is_ok()) << call << " " << second.status().message();
      expect_whole(memory, some_record());
      if (first.is_ok()) {
        EXPECT_EQ(*second, 0U) << call;
      }
      if (is_past_the_end) {
        break;
      }
    }
  }
}

TEST(PictureFolder, a_power_loss_at_any_call_leaves_no_picture_that_is_another) {
  for (int64_t call = 0;; ++call) {
    MemoryFileSystem memory;
    FaultInjectingFileSystem files(memory);
    files.fail_call(call, Fault::kDeath);
    static_cast<void>(paint_all(files, some_record()).is_ok());
    const bool is_past_the_end = files.num_calls() <= call;
    for (const uint64_t seed : {0, 1, 2}) {
      memory.crash(seed);
      ASSERT_TRUE(paint_all(memory, some_record()).is_ok()) << call << " " << seed;
      expect_whole(memory, some_record());
    }
    if (is_past_the_end) {
      break;
    }
  }
}

}  // namespace
}  // namespace darkroom
