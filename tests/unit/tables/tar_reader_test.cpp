#include "darkroom/tables/tar_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/core/sha256.h"
#include "unit/tables/tar_blocks.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

std::string_view tar_kind_name(TarMemberKind kind) {
  constexpr std::string_view kNames[] = {"file", "folder", "link", "device", "other"};
  return kNames[static_cast<size_t>(kind)];
}

class TarGoldenTest : public testing::TestWithParam<const char*> {};

TEST_P(TarGoldenTest, equals_what_python_reads) {
  const std::string bytes = tar_golden(GetParam());
  const std::vector<GoldenTarMember> want = golden_members(GetParam());
  const auto [members, status] = list_members(bytes);
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  ASSERT_FALSE(want.empty());
  ASSERT_EQ(members.size(), want.size());
  for (size_t i = 0; i < members.size(); ++i) {
    const TarMember& got = members[i];
    const std::string data = bytes.substr(static_cast<size_t>(got.data_offset), static_cast<size_t>(got.size_bytes));
    EXPECT_EQ(got.name, want[i].name);
    EXPECT_EQ(tar_kind_name(got.kind), want[i].kind) << got.name;
    EXPECT_EQ(got.header_offset, want[i].header_offset) << got.name;
    EXPECT_EQ(got.data_offset, want[i].data_offset) << got.name;
    EXPECT_EQ(got.size_bytes, want[i].size_bytes) << got.name;
    EXPECT_EQ(sha256_hex(data), want[i].sha256) << got.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, TarGoldenTest, testing::Values("ustar.tar", "pax.tar", "gnu.tar", "written.tar"),
                         [](const auto& info) { return std::string(info.param).substr(0, std::string(info.param).find('.')); });

TEST(TarReader, reads_headers_and_not_the_data) {
  std::string bytes;
  for (int i = 0; i < 10; ++i) {
    bytes += tar_member(fmt::format("{}.jpg", i), std::string(1'000'000, 'x'));
  }
  const BytesFile file(bytes + tar_end());
  TarReader tar(file, {.window_bytes = 512});
  EXPECT_EQ(list_members(tar).first.size(), 10u);
  EXPECT_EQ(file.num_reads, 12);  // Ten headers and two blocks at the end.
  EXPECT_EQ(file.num_bytes_read, 12 * 512);
}

TEST(TarReader, small_members_share_a_read) {
  std::string bytes;
  for (int i = 0; i < 100; ++i) {
    bytes += tar_member(fmt::format("{}.txt", i), "caption");
  }
  const BytesFile file(bytes + tar_end());
  TarReader tar(file, {.window_bytes = 1 << 20});
  EXPECT_EQ(list_members(tar).first.size(), 100u);
  EXPECT_EQ(file.num_reads, 1);
}

TEST(TarReader, numbers_are_octal_or_base_256) {
  const std::string data = padded(std::string(83, 'x'));
  for (const std::string& size : {std::string("00000000123"), std::string("        123 "), std::string("123\0garbage.", 12),
                                  std::string("000000000123"), "\x80" + std::string(10, '\0') + "\x53"}) {
    const auto member = only_member(TarBlock{.size = size}.bytes() + data);
    ASSERT_TRUE(member.is_ok()) << size << member.status().to_string();
    EXPECT_EQ(member->size_bytes, 83) << size;
  }
  EXPECT_EQ(only_member(TarBlock{.size = std::string(12, '\0')}.bytes())->size_bytes, 0);
}

TEST(TarReader, takes_the_checksum_of_signed_bytes) {
  std::string block = TarBlock{.name = "gr\xC3\xBCn.txt"}.bytes();
  const int unsigned_sum = std::stoi(block.substr(148, 6), nullptr, 8);
  block.replace(148, 6, fmt::format("{:06o}", unsigned_sum - 2 * 256));
  EXPECT_EQ(only_member(block)->name, "gr\xC3\xBCn.txt");
  block.replace(148, 6, fmt::format("{:06o}", unsigned_sum - 256));
  EXPECT_THAT(tar_failure(block), HasSubstr("its checksum differs"));
}

TEST(TarReader, a_prefix_is_a_part_of_the_name_in_posix_archives_only) {
  EXPECT_EQ(only_member(TarBlock{.prefix = "folder"}.bytes())->name, "folder/a.txt");
  EXPECT_EQ(only_member(TarBlock{.magic = std::string("ustar  \0", 8), .prefix = "13072516571"}.bytes())->name, "a.txt");
  EXPECT_EQ(only_member(TarBlock{.magic = std::string(8, '\0'), .prefix = "left over"}.bytes())->name, "a.txt");
}

TEST(TarReader, a_name_may_fill_its_fields) {
  const std::string name(100, 'n');
  const std::string prefix(155, 'p');
  EXPECT_EQ(only_member(TarBlock{.name = name, .prefix = prefix}.bytes())->name, prefix + "/" + name);
}

TEST(TarReader, tells_kinds_apart) {
  const auto kind = [](char type, const std::string& name) { return only_member(TarBlock{.name = name, .type = type}.bytes())->kind; };
  for (const char type : {'0', '7', '\0'}) {
    EXPECT_EQ(kind(type, "a.txt"), TarMemberKind::kFile) << type;
    EXPECT_EQ(kind(type, "folder/"), TarMemberKind::kFolder) << type;  // As in v7, which had no type for folders.
  }
  EXPECT_EQ(kind('5', "folder"), TarMemberKind::kFolder);
  EXPECT_EQ(kind('1', "a"), TarMemberKind::kLink);
  EXPECT_EQ(kind('2', "a"), TarMemberKind::kLink);
  for (const char type : {'3', '4', '6'}) {
    EXPECT_EQ(kind(type, "a"), TarMemberKind::kDevice) << type;
  }
  EXPECT_EQ(kind('V', "label"), TarMemberKind::kOther);
}

TEST(TarReader, passes_over_the_data_of_unknown_kinds) {
  const auto [members, status] = list_members(tar_member("z", std::string(600, 'x'), 'Z') + tar_member("a.txt", "x") + tar_end());
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0].kind, TarMemberKind::kOther);
  EXPECT_EQ(members[1].name, "a.txt");
}

TEST(TarReader, says_which_names_leave_the_folder) {
  for (const char* name : {"/etc/passwd", "..", "../a", "a/../b", "a/..", "./../a"}) {
    EXPECT_TRUE(only_member(TarBlock{.name = name}.bytes())->leaves_folder) << name;
    EXPECT_EQ(only_member(TarBlock{.name = name}.bytes())->name, name);
  }
  for (const char* name : {"a", "./a", "a..b/c", "..a/b", "a/...", "a//b"}) {
    EXPECT_FALSE(only_member(TarBlock{.name = name}.bytes())->leaves_folder) << name;
  }
  EXPECT_TRUE(only_member(long_name("x/../../up") + TarBlock{}.bytes())->leaves_folder);
}

TEST(TarReader, extended_headers_rule_the_member_after_them_alone) {
  const std::string bytes = pax_header("14 path=b.jpg\n12 size=600\n") + TarBlock{.size = octal(0)}.bytes() +
                            padded(std::string(600, 'x')) + tar_member("c.txt", "1");
  const auto [members, status] = list_members(bytes + tar_end());
  ASSERT_TRUE(status.is_ok()) << status.to_string();
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0], (TarMember{.name = "b.jpg", .header_offset = 0, .data_offset = 1536, .size_bytes = 600}));
  EXPECT_EQ(members[1], (TarMember{.name = "c.txt", .header_offset = 2560, .data_offset = 3072, .size_bytes = 1}));
}

TEST(TarReader, of_a_keyword_that_comes_twice_the_last_record_counts) {
  EXPECT_EQ(only_member(pax_header("14 path=b.jpg\n14 path=c.jpg\n") + TarBlock{}.bytes())->name, "c.jpg");
  EXPECT_EQ(only_member(pax_header("14 path=b.jpg\n8 path=\n") + TarBlock{}.bytes())->name, "a.txt");
  EXPECT_EQ(only_member(pax_header("10 size=9\n8 size=\n") + TarBlock{}.bytes())->size_bytes, 0);
}

TEST(TarReader, an_extended_header_for_all_members_is_passed_over) {
  EXPECT_EQ(only_member(pax_header("14 comment=ab\n", 'g') + long_name("b.txt") + TarBlock{}.bytes())->name, "b.txt");
}

TEST(TarReader, stops_at_two_blocks_of_zeros) {
  const std::string first = tar_member("a.txt", "1") + tar_end();
  for (const std::string& rest : {std::string(), std::string("garbage"), tar_member("b.txt", "2") + tar_end(), std::string(8192, '\0')}) {
    const BytesFile file(first + rest);
    TarReader tar(file);
    const auto [members, status] = list_members(tar);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
    EXPECT_EQ(members.size(), 1u);
    EXPECT_EQ(tar.offset(), 2048);
    EXPECT_FALSE(tar.next().value().has_value());
  }
  EXPECT_TRUE(list_members(tar_end()).second.is_ok());
}

TEST(TarReader, after_a_failure_of_the_store_the_next_call_gives_the_member) {
  const std::string bytes =
      tar_member("a.txt", std::string(2000, '1')) + long_name("b.txt") + pax_header("10 size=1\n") + tar_member("b", "1") + tar_end();
  for (int num_reads = 0; num_reads < 5; ++num_reads) {  // Two of the long name, two of the extended header, one of the header.
    const BytesFile file(bytes);
    TarReader tar(file, {.window_bytes = 512});
    EXPECT_EQ(tar.next().value()->name, "a.txt");
    file.fail_after_reads = num_reads;
    const auto failed = tar.next();
    ASSERT_FALSE(failed.is_ok());
    EXPECT_EQ(failed.status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(tar.offset(), 2560);
    const auto member = tar.next();
    ASSERT_TRUE(member.is_ok()) << member.status().to_string();
    EXPECT_EQ((*member)->name, "b.txt");
    EXPECT_EQ((*member)->header_offset, 2560);
    EXPECT_FALSE(tar.next().value().has_value());
  }
}

}  // namespace
}  // namespace darkroom
