#include "darkroom/train/event_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "darkroom/core/crc32.h"
#include "darkroom/files/memory_files.h"

namespace darkroom {
namespace {

uint32_t read_u32(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

/// The records of a TFRecord file; fails the test on a wrong length or checksum.
std::vector<std::string> records(const std::string& bytes) {
  std::vector<std::string> found;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    const auto unmask = [](uint32_t masked) {
      const uint32_t rotated = masked - 0xa282ead8U;
      return rotated >> 17 | rotated << 15;
    };
    EXPECT_EQ(unmask(read_u32(bytes, at + 8)), crc32c(bytes.substr(at, 8)));
    found.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(unmask(read_u32(bytes, at + 12 + length)), crc32c(found.back()));
    at += 16 + length;
  }
  return found;
}

TEST(event_writer, checksums_are_crc32c) {
  // RFC 3720, B.4.
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(event_writer, frames_an_empty_record) { EXPECT_EQ(records(tfrecord_frame("")), std::vector<std::string>{""}); }

TEST(event_writer, writes_version_start_scalars_and_pictures) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.create_folders("run").is_ok());
  {
    auto writer = EventWriter::open(files, "run", 0);
    ASSERT_TRUE(writer.is_ok()) << writer.status().to_string();
    ASSERT_TRUE((*writer)->add_scalar(1, "train/loss", 0.5F).is_ok());
    ASSERT_TRUE((*writer)->add_image(300, "samples/x", 2, 3, "PNG").is_ok());
    ASSERT_TRUE((*writer)->sync().is_ok());
  }
  const auto found = records(*read_file(files, "run/events.out.tfevents.0000000000.darkroom"));
  ASSERT_EQ(found.size(), 4U);
  // 9 bytes of wall time, then the step, then the field.
  EXPECT_EQ(found[0].substr(9), std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");
  EXPECT_EQ(found[1].substr(9), std::string("\x10\x01\x3a\x02\x08\x01", 6));
  EXPECT_EQ(found[2].substr(9), std::string("\x10\x01\x2a\x13\x0a\x11\x0a\x0a", 8) + "train/loss" + std::string("\x15\x00\x00\x00\x3f", 5));
  const std::string image = std::string("\x08\x03\x10\x02\x18\x03\x22\x03", 8) + "PNG";  // Height, width, RGB, bytes.
  EXPECT_EQ(found[3].substr(9), std::string("\x10\xac\x02\x2a\x1a\x0a\x18\x0a\x09", 9) + "samples/x" + "\x22\x0b" + image);
}

TEST(event_writer, a_new_start_replaces_what_will_be_repeated_and_keeps_the_rest) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.create_folders("run").is_ok());
  for (const int64_t step : {0, 100, 200}) {
    ASSERT_TRUE(EventWriter::open(files, "run", step).is_ok());
  }
  ASSERT_TRUE(EventWriter::open(files, "run", 100).is_ok());
  const auto left = files.list("run");
  ASSERT_TRUE(left.is_ok());
  ASSERT_EQ(left->size(), 2U);
  EXPECT_EQ((*left)[1].path, "run/events.out.tfevents.0000000100.darkroom");
}

TEST(event_writer, files_of_other_programs_stay) {
  MemoryFileSystem files;
  const std::vector<std::string> others = {"events.out.tfevents.1764230000.host.12.0", "events.out.tfevents.1764230000.darkroom.v2",
                                           "events.out.tfevents.999999999.darkroom",   "events.out.tfevents.darkroom",
                                           "events.out.tfevents.00000000100.darkroom", "events.out.tfevents.0000000x00.darkroom"};
  for (const std::string& other : others) {
    ASSERT_TRUE(write_file_atomic(files, "run/" + other, "theirs").is_ok());
  }
  ASSERT_TRUE(write_file_atomic(files, "run/" + event_file_name(100), "ours").is_ok());
  ASSERT_TRUE(write_file_atomic(files, "run/" + event_file_name(12'345'678'901), "ours").is_ok());
  ASSERT_TRUE(EventWriter::open(files, "run", 0).is_ok());
  for (const std::string& other : others) {
    EXPECT_TRUE(files.exists("run/" + other).value()) << other;
  }
  EXPECT_EQ(files.list("run")->size(), others.size() + 1);
}

}  // namespace
}  // namespace darkroom
