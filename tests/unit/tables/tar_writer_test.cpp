#include "darkroom/tables/tar_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "darkroom/files/memory_files.h"
#include "unit/tables/tar_blocks.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

TarSink tar_sink(std::string& text) {
  return [&text](std::span<const std::byte> bytes) {
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::ok();
  };
}

TEST(TarWriter, gives_the_bytes_of_pythons_tarfile) {
  std::string got;
  TarWriter writer(tar_sink(got));
  for (const GoldenTarMember& member : golden_members("written.tar")) {
    std::string data(static_cast<size_t>(member.size_bytes), '\0');
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<char>((7 * i + data.size()) % 251);  // data_of() of the script.
    }
    ASSERT_TRUE(writer.add(member.name, data).is_ok());
  }
  ASSERT_TRUE(writer.finish().is_ok());
  EXPECT_TRUE(got == tar_golden("written.tar"));
  EXPECT_EQ(writer.num_bytes(), static_cast<int64_t>(got.size()));
}

TEST(TarWriter, what_it_writes_is_read_again) {
  std::vector<std::string> names = {"a", std::string(100, 'n'), std::string(101, 'n'), "ill-formed \xFF\xFE.txt", "a"};
  for (const size_t prefix : {1, 54, 55, 155, 156, 3994}) {
    for (const size_t name : {1, 99, 100, 101}) {
      names.push_back(std::string(prefix, 'p') + "/" + std::string(name, 'n'));
    }
  }
  for (const size_t size : {1, 80, 81, 82, 83, 84, 85, 90, 91, 979, 980, 981, 982, 983, 4096}) {  // Where the length of a pax record grows.
    names.push_back("x" + std::string(size - 1, 'y'));
  }
  std::string bytes;
  TarWriter writer(tar_sink(bytes));
  for (const std::string& name : names) {
    ASSERT_TRUE(writer.add(name, "data of " + name).is_ok()) << name;
  }
  ASSERT_TRUE(writer.finish().is_ok());
  const auto [members, status] = list_members(bytes);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  ASSERT_EQ(members.size(), names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(members[i].name, names[i]);
    EXPECT_EQ(members[i].kind, TarMemberKind::kFile);
    EXPECT_EQ(bytes.substr(static_cast<size_t>(members[i].data_offset), static_cast<size_t>(members[i].size_bytes)), "data of " + names[i]);
  }
}

TEST(TarWriter, an_archive_may_be_empty) {
  std::string bytes;
  TarWriter writer(tar_sink(bytes));
  ASSERT_TRUE(writer.finish().is_ok());
  EXPECT_EQ(bytes, tar_end());
}

TEST(TarWriter, writes_into_a_file) {
  MemoryFileSystem files;
  ASSERT_TRUE(replace_file_atomic(files, "out/0.tar", [](OutputFile& output) {
                TarWriter writer([&](std::span<const std::byte> bytes) { return output.write(bytes); });
                DARKROOM_RETURN_IF_ERROR(writer.add("0.txt", "caption"));
                return writer.finish();
              }).is_ok());
  const auto file = files.open_input("out/0.tar").value();
  TarReader tar(*file);
  EXPECT_EQ(list_members(tar).first.at(0), (TarMember{.name = "0.txt", .header_offset = 0, .data_offset = 512, .size_bytes = 7}));
}

TEST(TarWriter, a_file_has_the_bytes_of_its_text_whatever_its_size) {
  MemoryFileSystem files;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{512}, size_t{4} << 20, (size_t{4} << 20) + 1}) {
    const std::string text(size, 't');
    ASSERT_TRUE(write_file_atomic(files, "file", text).is_ok());
    std::string got, want;
    TarWriter of_file(tar_sink(got)), of_text(tar_sink(want));
    ASSERT_TRUE(of_file.add_file("name", *files.open_input("file").value()).is_ok());
    ASSERT_TRUE(of_text.add("name", text).is_ok());
    EXPECT_TRUE(got == want) << size;
  }
}

TEST(TarWriter, a_file_that_became_shorter_spoils_the_archive) {
  class ShortFile final : public InputFile {
   public:
    const std::string& path() const override { return path_; }
    int64_t size_bytes() const override { return 10; }
    Result<size_t> read_at(int64_t offset, std::span<std::byte>) const override { return offset == 0 ? 4 : 0; }

   private:
    std::string path_ = "short";
  };
  std::string bytes;
  TarWriter writer(tar_sink(bytes));
  const Status status = writer.add_file("name", ShortFile());
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_THAT(status.message(), HasSubstr("short"));
  EXPECT_EQ(writer.finish().code(), StatusCode::kCorruptData);
}

TEST(TarWriter, takes_no_name_that_leaves_the_folder_or_is_none) {
  std::string bytes;
  TarWriter writer(tar_sink(bytes));
  for (const std::string& name :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string(".."), std::string("../a"),
        std::string("a/../b"), std::string("./a"), std::string("a/."), std::string("a\0b", 3), std::string(4097, 'n')}) {
    const Status status = writer.add(name, "x");
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), HasSubstr("a tar archive takes no file of this name: " + name.substr(0, 200)));
  }
  EXPECT_EQ(bytes, "");
  EXPECT_TRUE(writer.add("..a/b..", "x").is_ok());
}

TEST(TarWriter, a_failure_of_the_sink_stays) {
  for (int num_fine = 0; num_fine < 6; ++num_fine) {  // Header, records, padding; header, data, padding.
    int num_calls = 0;
    TarWriter writer([&](std::span<const std::byte>) {
      return num_calls++ == num_fine ? Status::resource_exhausted("no space left:", "out") : Status::ok();
    });
    EXPECT_EQ(writer.add(std::string(101, 'n'), "x").code(), StatusCode::kResourceExhausted) << num_fine;
    EXPECT_EQ(writer.add("b", "x").code(), StatusCode::kResourceExhausted) << num_fine;
    EXPECT_EQ(writer.finish().code(), StatusCode::kResourceExhausted) << num_fine;
    EXPECT_EQ(num_calls, num_fine + 1);
  }
}

TEST(TarWriter, a_finished_archive_takes_nothing) {
  std::string bytes;
  TarWriter writer(tar_sink(bytes));
  ASSERT_TRUE(writer.finish().is_ok());
  EXPECT_THROW((void)writer.add("a", "x"), CheckFailure);
  EXPECT_THROW((void)writer.finish(), CheckFailure);
}

/// The first bytes of an archive; all that follows counts as zeros.
class LargeFile final : public InputFile {
 public:
  LargeFile(std::string head, int64_t size_bytes) : head_(std::move(head)), size_bytes_(size_bytes) {}
  const std::string& path() const override { return path_; }
  int64_t size_bytes() const override { return size_bytes_; }
  Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t at = static_cast<size_t>(offset) + i;
      out[i] = at < head_.size() ? static_cast<std::byte>(head_[at]) : std::byte{0};
    }
    return out.size();
  }

 private:
  std::string path_ = "large.tar";
  std::string head_;
  int64_t size_bytes_;
};

TEST(TarWriter, from_8_gib_on_the_size_stands_in_a_pax_header) {
  constexpr size_t kLimit = size_t{1} << 33;
  // Pages that nobody touches cost no memory.
  void* pages = ::mmap(nullptr, kLimit, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  for (const size_t size : {kLimit - 1, kLimit}) {
    std::string head;
    TarWriter writer([&](std::span<const std::byte> bytes) { return bytes.size() <= 512 ? tar_sink(head)(bytes) : Status::ok(); });
    ASSERT_TRUE(writer.add("large.bin", std::span(static_cast<const std::byte*>(pages), size)).is_ok());
    ASSERT_TRUE(writer.finish().is_ok());
    const LargeFile file(head, writer.num_bytes());
    TarReader tar(file);
    const auto [members, status] = list_members(tar);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    ASSERT_EQ(members.size(), 1u);
    EXPECT_EQ(members[0].size_bytes, static_cast<int64_t>(size));
    EXPECT_EQ(members[0].data_offset, size < kLimit ? 512 : 1536);
    // The header's own field holds the size where 11 digits and their zero byte do, else 0, as Python writes it.
    const std::string field = head.substr(static_cast<size_t>(members[0].data_offset) - 512 + 124, 12);
    EXPECT_EQ(field, (size < kLimit ? "77777777777" : "00000000000") + std::string(1, '\0'));
  }
  ::munmap(pages, kLimit);
}

}  // namespace
}  // namespace darkroom
