#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "darkroom/files/file_system.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// What replace_file_atomic makes of names that are no plain files.
class ReplaceFile : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.path(name); }
  std::string text(const std::string& name) const { return read_file(local_files(), at(name)).value(); }
  void link(const std::string& to, const std::string& name) const { std::filesystem::create_symlink(to, at(name)); }
  Status replace(const std::string& name, std::string_view bytes) const { return write_file_atomic(local_files(), at(name), bytes); }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      found.push_back(entry.path().lexically_relative(folder_.path()).string());
    }
    std::ranges::sort(found);
    return found;
  }

  TemporaryFolder folder_;
};

TEST_F(ReplaceFile, replaces_what_a_link_leads_to_where_it_lies) {
  ASSERT_TRUE(replace("there/real", "old").is_ok());
  link("there/real", "first");
  link(at("first"), "second");
  ASSERT_TRUE(replace("second", "new").is_ok());
  EXPECT_TRUE(std::filesystem::is_symlink(at("first")));
  EXPECT_TRUE(std::filesystem::is_symlink(at("second")));
  EXPECT_EQ(text("there/real"), "new");
  EXPECT_THAT(names(), ElementsAre("first", "second", "there", "there/real"));
}

TEST_F(ReplaceFile, makes_what_a_link_to_nothing_names) {
  link("later/real", "link");
  ASSERT_TRUE(replace("link", "new").is_ok());
  EXPECT_TRUE(std::filesystem::is_symlink(at("link")));
  EXPECT_EQ(text("later/real"), "new");
}

TEST_F(ReplaceFile, refuses_links_in_a_circle_and_leaves_them) {
  link("b", "a");
  link("a", "b");
  const Status status = replace("a", "new");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr(at("a")));
  EXPECT_THAT(names(), ElementsAre("a", "b"));
}

TEST_F(ReplaceFile, writes_to_a_pipe_and_leaves_it) {
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  const int reader = ::open(at("pipe").c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(replace("pipe", "bytes").is_ok());
  std::array<char, 16> buffer{};
  EXPECT_EQ(::read(reader, buffer.data(), buffer.size()), 5);
  EXPECT_STREQ(buffer.data(), "bytes");
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(at("pipe")));
  EXPECT_THAT(names(), ElementsAre("pipe"));
}

TEST_F(ReplaceFile, writes_to_a_device_and_leaves_it) {
  link("/dev/null", "null");
  link("/dev/full", "full");
  EXPECT_TRUE(replace("null", "bytes").is_ok());
  const Status full = replace("full", "bytes");
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(full.message(), HasSubstr("/dev/full"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
  EXPECT_THAT(names(), ElementsAre("full", "null"));
}

// As /dev/stdout of a program whose output goes to a file.
TEST_F(ReplaceFile, writes_to_an_open_descriptor_and_leaves_the_file_behind_it) {
  const int descriptor = ::open(at("out").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(descriptor, 0);
  link("/dev/fd/" + std::to_string(descriptor), "stdout");
  ASSERT_TRUE(replace("stdout", "bytes").is_ok());
  struct stat named {};
  struct stat held {};
  ASSERT_EQ(::stat(at("out").c_str(), &named), 0);
  ASSERT_EQ(::fstat(descriptor, &held), 0);
  EXPECT_EQ(named.st_ino, held.st_ino);
  EXPECT_EQ(text("out"), "bytes");
  ::close(descriptor);
  EXPECT_THAT(names(), ElementsAre("out", "stdout"));
}

// `inspect x --html /dev/stdout > page.html` prints on after the page.
TEST_F(ReplaceFile, refuses_a_descriptor_that_the_program_opened_for_itself) {
  const int descriptor = ::open(at("own").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(descriptor, 0);
  EXPECT_FALSE(write_file_atomic(local_files(), "/dev/fd/" + std::to_string(descriptor), "bytes").is_ok());
  ::close(descriptor);
  EXPECT_EQ(read_file(local_files(), at("own")).value(), "");
}

TEST_F(ReplaceFile, shares_the_offset_of_an_open_descriptor) {
  const int descriptor = ::open(at("out").c_str(), O_WRONLY | O_CREAT, 0600);
  ASSERT_GE(descriptor, 0);
  const std::string own = "/proc/" + std::to_string(::getpid()) + "/fd/";
  for (const std::string& folder : {std::string("/dev/fd/"), std::string("/proc/self/fd/"), own}) {
    ASSERT_EQ(::write(descriptor, "before ", 7), 7);
    ASSERT_TRUE(write_file_atomic(local_files(), folder + std::to_string(descriptor), "bytes").is_ok());
    ASSERT_EQ(::write(descriptor, " after\n", 7), 7);
  }
  ::close(descriptor);
  EXPECT_EQ(text("out"), "before bytes after\nbefore bytes after\nbefore bytes after\n");
}

TEST_F(ReplaceFile, writes_to_a_socket_that_is_an_open_descriptor) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const Status written = write_file_atomic(local_files(), "/dev/fd/" + std::to_string(ends[0]), "bytes");
  EXPECT_TRUE(written.is_ok()) << written.to_string();
  ::close(ends[0]);
  std::array<char, 16> buffer{};
  EXPECT_EQ(::read(ends[1], buffer.data(), buffer.size()), 5);
  EXPECT_STREQ(buffer.data(), "bytes");
  ::close(ends[1]);
}

TEST_F(ReplaceFile, waits_for_the_reader_of_a_descriptor_that_does_not_block) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  const std::string bytes(1 << 20, 'x');  // More than a pipe holds.
  std::string got;
  std::jthread reader([&] {
    std::array<char, 65536> buffer;
    for (ssize_t num_read = 0; (num_read = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
      got.append(buffer.data(), static_cast<size_t>(num_read));
    }
  });
  const Status written = write_file_atomic(local_files(), "/dev/fd/" + std::to_string(ends[1]), bytes);
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  EXPECT_TRUE(written.is_ok()) << written.to_string();
  EXPECT_TRUE(got == bytes) << got.size();
}

TEST_F(ReplaceFile, a_descriptor_that_is_not_open_is_not_found) {
  EXPECT_FALSE(write_file_atomic(local_files(), "/dev/fd/987", "bytes").is_ok());
}

TEST_F(ReplaceFile, leaves_nothing_when_the_filling_throws) {
  ASSERT_TRUE(replace("file", "old").is_ok());
  const auto fill = [](OutputFile& file) -> Status {
    DARKROOM_RETURN_IF_ERROR(file.write_text("half"));
    throw std::runtime_error("a bug of the one that fills");
  };
  EXPECT_THROW((void)replace_file_atomic(local_files(), at("file"), fill), std::runtime_error);
  EXPECT_EQ(text("file"), "old");
  EXPECT_THAT(names(), ElementsAre("file"));
}

TEST_F(ReplaceFile, keeps_the_old_file_when_the_filling_fails) {
  ASSERT_TRUE(replace("file", "old").is_ok());
  const auto fill = [](OutputFile& file) {
    DARKROOM_RETURN_IF_ERROR(file.write_text("half"));
    return Status::cancelled("stopped by the test");
  };
  EXPECT_EQ(replace_file_atomic(local_files(), at("file"), fill).code(), StatusCode::kCancelled);
  EXPECT_EQ(text("file"), "old");
  EXPECT_THAT(names(), ElementsAre("file"));
}

TEST_F(ReplaceFile, refuses_a_folder_and_leaves_it) {
  std::filesystem::create_directories(at("folder/inner"));
  EXPECT_FALSE(replace("folder", "bytes").is_ok());
  EXPECT_THAT(names(), ElementsAre("folder", "folder/inner"));
}

}  // namespace
}  // namespace darkroom
