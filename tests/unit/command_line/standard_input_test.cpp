#include "standard_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace darkroom {
namespace {

using testing::HasSubstr;

/// The process's standard input reads `text` while this object lives.
class GivenInput {
 public:
  explicit GivenInput(const std::string& text) : before_(dup(STDIN_FILENO)) {
    const int file = memfd_create("standard input", 0);
    EXPECT_EQ(write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    lseek(file, 0, SEEK_SET);
    dup2(file, STDIN_FILENO);
    close(file);
  }
  ~GivenInput() {
    dup2(before_, STDIN_FILENO);
    close(before_);
  }

 private:
  int before_;
};

TEST(StandardInput, gives_lines_of_any_length_whole) {
  // A piece that is read has 65,536 bytes.
  const std::vector<size_t> sizes = {0, 1, 65'534, 65'535, 65'536, 65'537, 0, 200'003, 5};
  std::string text;
  for (const size_t size : sizes) {
    text += std::string(size, 'x') + "\n";
  }
  const GivenInput given(text + "the last one");
  StandardInput input{std::stop_token()};
  std::string line;
  for (const size_t size : sizes) {
    static_cast<void>(input.has_line());  // Looking ahead loses nothing.
    ASSERT_TRUE(input.next_line(line).value());
    ASSERT_EQ(line, std::string(size, 'x'));
  }
  ASSERT_TRUE(input.next_line(line).value());
  EXPECT_EQ(line, "the last one");
  EXPECT_FALSE(input.next_line(line).value());
}

TEST(StandardInput, knows_whether_a_line_is_there) {
  const GivenInput given("a\nb\nc");
  StandardInput input{std::stop_token()};
  std::string line;
  EXPECT_FALSE(input.has_line());  // Nothing is read yet.
  ASSERT_TRUE(input.next_line(line).value());
  EXPECT_TRUE(input.has_line());
  ASSERT_TRUE(input.next_line(line).value());
  EXPECT_EQ(line, "b");
  EXPECT_FALSE(input.has_line());
}

TEST(StandardInput, a_line_without_an_end_is_refused_with_the_limit) {
  const GivenInput given("short\n" + std::string((64 << 20) + 200'000, 'x'));
  StandardInput input{std::stop_token()};
  std::string line;
  ASSERT_TRUE(input.next_line(line).value());
  const auto endless = input.next_line(line);
  ASSERT_FALSE(endless.is_ok());
  EXPECT_EQ(endless.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(endless.status().message(), HasSubstr("64 MiB"));
}

}  // namespace
}  // namespace darkroom
