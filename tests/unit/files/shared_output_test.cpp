#include "darkroom/files/shared_output.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "darkroom/files/file_system.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

Status write_text_at(SharedOutput& output, int64_t offset, std::string_view text) {
  return output.write_at(offset, std::as_bytes(std::span(text)));
}

TEST(shared_output, several_writers_make_up_one_file_in_any_order) {
  const TemporaryFolder folder;
  const std::string path = folder.path("file");
  ASSERT_TRUE(write_file_atomic(local_files(), path, "head ").is_ok());
  auto one = SharedOutput::open(path), other = SharedOutput::open(path);
  ASSERT_TRUE(one.is_ok() && other.is_ok());
  EXPECT_TRUE(write_text_at(*other, 8, "def").is_ok());
  EXPECT_TRUE(write_text_at(*one, 5, "abc").is_ok());
  EXPECT_TRUE(write_text_at(*one, 11, "").is_ok());
  EXPECT_TRUE(one->sync_and_close().is_ok());
  EXPECT_TRUE(other->sync_and_close().is_ok());
  EXPECT_EQ(*read_file(local_files(), path), "head abcdef");
}

TEST(shared_output, has_the_size_that_it_is_given_and_keeps_what_lies_before) {
  const TemporaryFolder folder;
  const std::string path = folder.path("file");
  ASSERT_TRUE(write_file_atomic(local_files(), path, "head and tail").is_ok());
  auto output = SharedOutput::open(path);
  ASSERT_TRUE(output.is_ok());
  EXPECT_TRUE(output->resize(4).is_ok());
  EXPECT_TRUE(output->resize(6).is_ok());
  EXPECT_EQ(*read_file(local_files(), path), std::string("head\0\0", 6));
  const Status refused = output->resize(-1);
  EXPECT_FALSE(refused.is_ok());
  EXPECT_NE(refused.message().find(path), std::string::npos) << refused.to_string();
}

TEST(shared_output, makes_no_file) {
  const TemporaryFolder folder;
  EXPECT_EQ(SharedOutput::open(folder.path("missing")).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(*local_files().exists(folder.path("missing")));
}

TEST(shared_output, a_write_that_fails_names_the_file) {
  auto full = SharedOutput::open("/dev/full");
  ASSERT_TRUE(full.is_ok()) << full.status().to_string();
  const Status failed = write_text_at(*full, 0, "text");
  EXPECT_EQ(failed.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(failed.message().find("/dev/full"), std::string::npos) << failed.message();
}

}  // namespace
}  // namespace darkroom
