#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "darkroom/tables/tar_reader.h"
#include "unit/tables/tar_blocks.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(HostileTar, sixty_gigabytes_in_a_kilobyte) {
  const std::string size = octal(60'000'000'000);
  const auto status = list_members(TarBlock{.size = size}.bytes() + padded("x")).second;
  EXPECT_EQ(
      status.to_string(),
      "corrupt_data: cannot read the tar archive in/x.tar at offset 0: the file ends inside a member's data (bytes needed, bytes left): "
      "60000000000 512");
}

TEST(HostileTar, the_padding_must_be_there_too) {
  EXPECT_THAT(list_members(tar_member("a.txt", "x") + TarBlock{.size = octal(2)}.bytes() + "xy").second.to_string(),
              HasSubstr("at offset 1024: the file ends inside a member's data (bytes needed, bytes left): 2 2"));
}

TEST(HostileTar, sizes_that_are_none) {
  const std::string high(11, '\xFF');
  EXPECT_THAT(tar_failure(TarBlock{.size = "\xFF" + high}.bytes()), HasSubstr("negative"));                   // -1
  EXPECT_THAT(tar_failure(TarBlock{.size = "\xC0" + std::string(11, '\0')}.bytes()), HasSubstr("negative"));  // -2^94
  EXPECT_THAT(tar_failure(TarBlock{.size = "\xBF" + high}.bytes()), HasSubstr("more than 63 bits"));          // 2^94 - 1
  EXPECT_THAT(tar_failure(TarBlock{.size = std::string("\x80\0\0\0\x80", 5) + std::string(7, '\0')}.bytes()), HasSubstr("63 bits"));
  EXPECT_THAT(tar_failure(TarBlock{.size = std::string("\x80\0\0\0\x7F", 5) + std::string(7, '\xFF')}.bytes()),  // 2^63 - 1
              HasSubstr("(bytes needed, bytes left): 9223372036854775807 1024"));
  for (const char* size : {"-0000000001", "+0000000001", "00000000008", "0x000000001", "1 1", "1.5", "nan", "\t1"}) {
    EXPECT_THAT(tar_failure(TarBlock{.size = size}.bytes()), HasSubstr("a number in its header is no octal number")) << size;
  }
}

TEST(HostileTar, what_is_no_archive_is_named_so) {
  EXPECT_THAT(tar_failure(std::string(512, 'x')), HasSubstr("at offset 0: this is no header of a tar archive: its checksum is no number"));
  std::string block = TarBlock{}.bytes();
  block[0] ^= 1;
  EXPECT_THAT(tar_failure(tar_member("a.txt", "x") + block),
              HasSubstr("at offset 1024: this is no header of a tar archive, or a damaged one"));
  EXPECT_THAT(list_members("").second.to_string(), HasSubstr("the file ends before the end of the archive"));
}

TEST(HostileTar, sparse_files_and_volumes_are_refused) {
  const auto refused = [](const std::string& bytes) { return list_members(bytes + tar_end()).second; };
  for (const std::string& bytes : {TarBlock{.type = 'S'}.bytes(), pax_header("22 GNU.sparse.major=1\n") + TarBlock{}.bytes()}) {
    EXPECT_EQ(refused(bytes).code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused(bytes).message(), HasSubstr("sparse files are not read"));
  }
  EXPECT_EQ(refused(TarBlock{.type = 'M'}.bytes()).code(), StatusCode::kFailedPrecondition);
}

TEST(HostileTar, only_files_have_data) {
  for (const char type : {'1', '2', '3', '4', '5', '6'}) {
    EXPECT_THAT(tar_failure(tar_member("a", "x", type)), HasSubstr("a link, folder or device has data (bytes): 1")) << type;
  }
  EXPECT_THAT(tar_failure(tar_member("folder/", "x")), HasSubstr("a link, folder or device has data (bytes): 1"));
  EXPECT_THAT(tar_failure(pax_header("10 size=1\n") + TarBlock{.type = '2'}.bytes()), HasSubstr("has data (bytes): 1"));
}

TEST(HostileTar, names_and_headers_over_the_limits_are_not_read) {
  const auto limited = [](const std::string& bytes) {
    const BytesFile file(bytes + tar_end());
    TarReader tar(file, {.max_name_bytes = 200, .max_pax_bytes = 1000, .window_bytes = 512});
    const std::string failure = list_members(tar).second.to_string();
    EXPECT_LE(file.largest_read, 1000u);
    return failure;
  };
  const std::string rest = TarBlock{}.bytes();
  EXPECT_EQ(limited(long_name(std::string(200, 'n')) + rest), "ok");
  EXPECT_THAT(limited(long_name(std::string(201, 'n')) + rest), HasSubstr("is too large (bytes, limit): 202 201"));
  EXPECT_THAT(limited(long_name(std::string(201, 'n'), 'K') + rest), HasSubstr("is too large (bytes, limit): 202 201"));
  EXPECT_THAT(limited(tar_member("././@LongLink", std::string(201, 'n'), 'L') + rest),  // Without the zero byte at its end.
              HasSubstr("a member's name is too long (bytes, limit): 201 200"));
  EXPECT_EQ(limited(pax_header("1000 comment=" + std::string(986, 'c') + "\n") + rest), "ok");
  EXPECT_THAT(limited(pax_header("1001 comment=" + std::string(987, 'c') + "\n") + rest),
              HasSubstr("is too large (bytes, limit): 1001 1000"));
  EXPECT_EQ(limited(pax_header("210 path=" + std::string(200, 'n') + "\n") + rest), "ok");
  EXPECT_THAT(limited(pax_header("211 path=" + std::string(201, 'n') + "\n") + rest),
              HasSubstr("a member's name is too long (bytes, limit): 201 200"));
}

TEST(HostileTar, long_names_and_headers_that_say_they_are_huge_cost_nothing) {
  for (const char type : {'x', 'g', 'L', 'K'}) {
    for (const int64_t size : {int64_t{60'000'000'000}, int64_t{4000}}) {
      const BytesFile file(TarBlock{.type = type, .size = octal(size)}.bytes() + padded("x"));
      TarReader tar(file);
      EXPECT_THAT(list_members(tar).second.to_string(), HasSubstr(size > 4000 ? "is too large" : "the file ends inside a long name"))
          << type;
      EXPECT_EQ(file.largest_read, 1024u);
    }
  }
}

TEST(HostileTar, records_of_extended_headers_that_are_none) {
  const auto failure = [](const std::string& records) { return tar_failure(pax_header(records) + TarBlock{}.bytes()); };
  for (const char* records : {"path=b.jpg\n", "15 path=b.jpg\n", "-4 path=b.jpg\n", "99999999999999999999 path=b.jpg\n", " 14 path=b.jpg\n",
                              "0x0e path=b.jpg\n", "14path=b.jpg\n", "14 path=b.jpg\n1", "14 path=b.jpg\nx y"}) {
    EXPECT_THAT(failure(records), HasSubstr("a record of its extended header has no length")) << records;
  }
  for (const char* records : {"13 path=b.jpg\n", "0 path=b.jpg\n", "1 path=b.jpg\n", "2 path=b.jpg\n", "3 path=b.jpg\n", "4 =\n",
                              "14 path b.jpg\n", "10 =b.jpg\n", "4 a\n"}) {
    EXPECT_THAT(failure(records), HasSubstr("a record of its extended header is no KEYWORD=VALUE")) << records;
  }
  for (const char* records :
       {"11 size=-1\n", "11 size=+1\n", "11 size= 1\n", "12 size=0x1\n", "28 size=9223372036854775808\n", "12 size=1.5\n"}) {
    EXPECT_THAT(failure(records), HasSubstr("the size in its extended header is no number")) << records;
  }
  EXPECT_THAT(failure("28 size=9223372036854775807\n"), HasSubstr("(bytes needed, bytes left): 9223372036854775807 1024"));
  EXPECT_THAT(failure(std::string("12 path=a\0b\n", 12)), HasSubstr("zero byte"));
}

TEST(HostileTar, names_that_readers_would_disagree_about) {
  const std::string rest = TarBlock{}.bytes();
  const std::string path = pax_header("14 path=b.jpg\n");
  EXPECT_THAT(tar_failure(long_name("b") + long_name("c") + rest), HasSubstr("a member has two long names"));
  EXPECT_THAT(tar_failure(long_name("b", 'K') + long_name("c", 'K') + rest), HasSubstr("a member has two long names"));
  EXPECT_THAT(tar_failure(long_name("b") + path + rest), HasSubstr("a long name and a path"));
  EXPECT_THAT(tar_failure(path + long_name("b") + rest), HasSubstr("a long name and a path"));
  EXPECT_THAT(tar_failure(path + path + rest), HasSubstr("a member has two extended headers"));
  for (const char* records : {"14 path=b.jpg\n", "10 size=0\n", "22 GNU.sparse.major=1\n"}) {
    EXPECT_THAT(tar_failure(pax_header(records, 'g') + rest), HasSubstr("for all members sets their path or size")) << records;
  }
  EXPECT_EQ(tar_failure(long_name("b", 'K') + long_name("c") + rest), "ok");
}

TEST(HostileTar, an_archive_does_not_end_within_a_member) {
  for (const std::string& begun : {long_name("b"), long_name("b", 'K'), pax_header("14 path=b.jpg\n")}) {
    EXPECT_THAT(tar_failure(begun), HasSubstr("without its member"));
  }
}

TEST(HostileTar, a_lone_block_of_zeros_hides_nothing) {
  EXPECT_THAT(tar_failure(tar_member("a.txt", "x") + std::string(512, '\0') + tar_member("b.txt", "x")),
              HasSubstr("at offset 1024: a block of zeros stands alone"));
}

TEST(HostileTar, a_file_that_shrinks_is_an_error) {
  BytesFile file(tar_member("a.txt", "x"));
  file.num_missing = 5000;
  TarReader tar(file);
  EXPECT_THAT(list_members(tar).second.to_string(), HasSubstr("at offset 1024: the file has become shorter while it was read"));
}

/// Every kind of block that the reader knows.
std::string rich_archive() {
  return tar_member("000.jpg", std::string(700, 'x')) + tar_member("000.txt", "caption") + long_name(std::string(600, 'n') + ".jpg") +
         long_name("somewhere", 'K') + TarBlock{.type = '2'}.bytes() + pax_header("16 comment=note\n", 'g') +
         pax_header("14 path=b.jpg\n12 size=600\n") + TarBlock{}.bytes() + padded(std::string(600, 'x')) +
         TarBlock{.name = "sub/", .type = '5'}.bytes() +
         TarBlock{.size = "\x80" + std::string(10, '\0') + "\x53", .prefix = "folder"}.bytes() + padded(std::string(83, 'x')) + tar_end();
}

TEST(HostileTar, truncation_at_every_byte_is_an_error_with_file_and_offset) {
  const std::string whole = rich_archive();
  const auto [want, fine] = list_members(whole);
  ASSERT_TRUE(fine.is_ok()) << fine.to_string();
  ASSERT_EQ(want.size(), 6u);
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto [got, status] = list_members(whole.substr(0, size));
    ASSERT_EQ(status.code(), StatusCode::kCorruptData) << size;
    ASSERT_THAT(status.message(), AllOf(StartsWith("cannot read the tar archive in/x.tar at offset "), HasSubstr("the file ends"))) << size;
    const auto num_whole = std::count_if(want.begin(), want.end(), [&](const TarMember& member) {
      return (member.data_offset + member.size_bytes + 511) / 512 * 512 <= static_cast<int64_t>(size);
    });
    ASSERT_EQ(got, std::vector<TarMember>(want.begin(), want.begin() + num_whole)) << size;
  }
}

/// Changes some bytes, moves or doubles some blocks; in two of three cases the checksums are made right again.
std::string mutate_tar(std::string bytes, std::mt19937& random) {
  const auto draw = [&](size_t bound) { return static_cast<size_t>(random()) % bound; };
  constexpr std::string_view kTelling(
      "\0\x80\xFF"
      "0179 =\n/.-LKxgXS12345",
      23);
  for (size_t i = 1 + draw(4); i > 0; --i) {
    const size_t block = draw(bytes.size() / 512) * 512;
    const size_t fields[] = {draw(512), 124 + draw(12), 156, draw(30)};
    const size_t at = block + fields[draw(4)];
    bytes[at] = draw(2) == 0 ? static_cast<char>(draw(256)) : kTelling[draw(kTelling.size())];
    if (draw(4) == 0) {
      const std::string moved = bytes.substr(block, 512);
      bytes.insert(draw(bytes.size() / 512) * 512, moved);
    }
  }
  if (draw(3) != 0) {
    for (size_t block = 0; block + 512 <= bytes.size(); block += 512) {
      if (bytes.compare(block + 257, 5, "ustar") == 0) {
        bytes.replace(block, 512, TarBlock::sealed(bytes.substr(block, 512)));
      }
    }
  }
  return bytes.substr(0, draw(8) == 0 ? draw(bytes.size()) : bytes.size());
}

TEST(HostileTar, ten_thousand_mutated_archives_end_in_an_answer_within_the_limits) {
  const std::string whole = rich_archive();
  std::mt19937 random(20261122);
  int num_fine = 0;
  for (int i = 0; i < 10'000; ++i) {
    const BytesFile file(mutate_tar(whole, random));
    TarReader tar(file, {.max_name_bytes = 2000, .max_pax_bytes = 4000, .window_bytes = 512});
    const auto [members, status] = list_members(tar);
    num_fine += status.is_ok() ? 1 : 0;
    ASSERT_TRUE(status.is_ok() || status.code() == StatusCode::kCorruptData || status.code() == StatusCode::kFailedPrecondition)
        << i << status.to_string();
    ASSERT_LE(file.largest_read, 4000u) << i;
    ASSERT_LE(file.num_reads, file.size_bytes() / 512 + 2) << i;
    int64_t end = 0;
    for (const TarMember& member : members) {
      ASSERT_GE(member.header_offset, end) << i;
      ASSERT_GE(member.data_offset, member.header_offset + 512) << i;
      end = member.data_offset + member.size_bytes;
      ASSERT_LE(end, file.size_bytes()) << i;
      ASSERT_LE(member.name.size(), 2000u) << i;
    }
  }
  EXPECT_GT(num_fine, 500);  // Mutants that are archives again: the test reaches beyond the checksum.
  EXPECT_LT(num_fine, 9500);
}

}  // namespace
}  // namespace darkroom
