#include "darkroom/tables/folder_archive.h"

#include <arrow/util/compression.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "darkroom/files/memory_files.h"
#include "darkroom/tables/tar_writer.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

void put(FileSystem& files, const std::string& path, const std::string& text) { ASSERT_TRUE(write_file_atomic(files, path, text).is_ok()); }

// No match for the compressor: five million bytes in which nothing repeats soon.
std::string large_text() {
  std::string text;
  for (uint32_t i = 0, x = 1; i < 5'000'000; ++i) {
    x = x * 1'664'525 + 1'013'904'223;
    text += static_cast<char>(x >> 24);
  }
  return text;
}

std::string unpacked(FileSystem& files, const std::string& path, size_t most) {
  const std::string packed = read_file(files, path).value();
  std::string text(most, '\0');
  const auto codec = arrow::util::Codec::Create(arrow::Compression::GZIP).ValueOrDie();
  const int64_t size = codec
                           ->Decompress(static_cast<int64_t>(packed.size()), reinterpret_cast<const uint8_t*>(packed.data()),
                                        static_cast<int64_t>(text.size()), reinterpret_cast<uint8_t*>(text.data()))
                           .ValueOrDie();
  text.resize(static_cast<size_t>(size));
  return text;
}

TEST(FolderArchive, holds_every_file_under_its_path_in_byte_order) {
  MemoryFileSystem files;
  const std::string large = large_text();
  put(files, "model/unet/weights", large);
  put(files, "model/model_index.json", "{}");
  put(files, "model/tokenizer/empty", "");
  ASSERT_TRUE(write_folder_archive(files, "model/", "out/model.tar.gz").is_ok());
  std::string want;
  TarWriter tar([&](std::span<const std::byte> bytes) {
    want.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::ok();
  });
  ASSERT_TRUE(tar.add("model_index.json", "{}").is_ok());
  ASSERT_TRUE(tar.add("tokenizer/empty", "").is_ok());
  ASSERT_TRUE(tar.add("unet/weights", large).is_ok());
  ASSERT_TRUE(tar.finish().is_ok());
  EXPECT_TRUE(unpacked(files, "out/model.tar.gz", want.size() + 1) == want);
}

TEST(FolderArchive, has_the_same_bytes_each_time) {
  MemoryFileSystem files;
  put(files, "model/a", "text");
  ASSERT_TRUE(write_folder_archive(files, "model", "one.tar.gz").is_ok());
  ASSERT_TRUE(write_folder_archive(files, "model", "other.tar.gz").is_ok());
  const std::string packed = read_file(files, "one.tar.gz").value();
  EXPECT_EQ(packed, read_file(files, "other.tar.gz").value());
  EXPECT_EQ(packed.substr(4, 4), std::string(4, '\0')) << "gzip's header holds a time";
}

TEST(FolderArchive, replaces_nothing) {
  MemoryFileSystem files;
  put(files, "model/a", "text");
  put(files, "model.tar.gz", "before");
  EXPECT_EQ(write_folder_archive(files, "model", "model.tar.gz").code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(read_file(files, "model.tar.gz").value(), "before");
}

TEST(FolderArchive, leaves_nothing_when_it_fails_or_is_stopped) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.create_folders("empty").is_ok());
  const Status empty = write_folder_archive(files, "empty", "out/empty.tar.gz");
  EXPECT_EQ(empty.code(), StatusCode::kNotFound);
  EXPECT_THAT(empty.message(), HasSubstr("empty"));
  EXPECT_EQ(write_folder_archive(files, "missing", "out/missing.tar.gz").code(), StatusCode::kNotFound);
  put(files, "model/a", "text");
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(write_folder_archive(files, "model", "out/model.tar.gz", stop.get_token()).code(), StatusCode::kCancelled);
  const std::vector<FileInfo> left = files.list_tree("out").value();
  EXPECT_TRUE(left.empty()) << left.front().path;
}

}  // namespace
}  // namespace darkroom
