#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"
#include "tables/tar_table.h"
#include "unit/tables/table_rows.h"
#include "unit/tables/tar_blocks.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A sample as img2dataset writes it.
std::string tar_sample(const std::string& key, const std::string& caption) {
  return tar_member(key + ".jpg", "picture of " + key) +
         tar_member(key + ".json", R"({"caption": ")" + caption + R"(", "url": "http://)" + key + R"(", "width": 640})") +
         tar_member(key + ".txt", caption);
}

std::shared_ptr<BytesFile> tar_file(const std::string& members) { return std::make_shared<BytesFile>(members + tar_end()); }

std::unique_ptr<TableReader> open_tar(const std::string& members) {
  auto table = open_tar_table(tar_file(members));
  EXPECT_TRUE(table.is_ok()) << table.status().to_string();
  return table.is_ok() ? *std::move(table) : nullptr;
}

/// A column of an archive's rows.
std::vector<std::string> tar_column(const std::string& members, const std::string& column) {
  const auto batch = read_range(*open_tar(members), 0, 1000, {column});
  EXPECT_TRUE(batch.is_ok()) << batch.status().to_string();
  return batch.is_ok() ? texts(*batch, column) : std::vector<std::string>();
}

TEST(TarTable, a_row_is_a_sample_with_its_picture_caption_and_json) {
  const auto table = open_tar(tar_sample("000", "a house") + tar_sample("001", "a tree"));
  EXPECT_EQ(table->format(), TableFormat::kTar);
  EXPECT_THAT(table->schema()->field_names(), ElementsAre("key", "image", "caption", "url", "width"));
  EXPECT_EQ(*table->num_rows(), 2);
  const auto batch = *read_range(*table, 0, 5);
  EXPECT_THAT(texts(batch, "key"), ElementsAre("000", "001"));
  EXPECT_THAT(texts(batch, "image"), ElementsAre("picture of 000", "picture of 001"));
  EXPECT_THAT(texts(batch, "caption"), ElementsAre("a house", "a tree"));
  EXPECT_THAT(texts(batch, "url"), ElementsAre("http://000", "http://001"));
  EXPECT_THAT(texts(batch, "width"), ElementsAre("640", "640"));
}

TEST(TarTable, the_caption_is_the_jsons_or_else_the_txt_without_its_line_end) {
  const std::string members = tar_member("0.jpg", "p") + tar_member("0.json", R"({"caption": "json"})") + tar_member("0.txt", "txt\r\n") +
                              tar_member("1.jpg", "p") + tar_member("1.json", R"({"caption": null})") + tar_member("1.txt", "txt\r\n") +
                              tar_member("2.jpg", "p") + tar_member("2.txt", "only\n\n") + tar_member("3.jpg", "p");
  EXPECT_THAT(tar_column(members, "caption"), ElementsAre("json", "txt", "only\n", "<null>"));
}

TEST(TarTable, without_a_caption_anywhere_the_jsons_own_names_are_left_to_the_dialects) {
  const auto table = open_tar(tar_member("0.webp", "p") + tar_member("0.json", R"({"TEXT": "t", "Key": "k", "input_Key": "i"})"));
  EXPECT_THAT(table->schema()->field_names(), ElementsAre("key", "image", "TEXT", "input_input_Key", "input_Key"));
  EXPECT_THAT(texts(*read_range(*table, 0, 1), "input_input_Key"), ElementsAre("k"));
  EXPECT_THAT(table->read_rows(0, 1, {"caption"}).status().message(), HasSubstr("input_Key"));
}

TEST(TarTable, every_picture_ending_counts_in_any_letter_case) {
  std::string members;
  for (const char* ending : {"jpg", "JPEG", "Png", "webp", "gif", "avif"}) {
    members += tar_member(std::string("sample-") + ending + "." + ending, ending);
  }
  EXPECT_THAT(tar_column(members, "image"), ElementsAre("jpg", "JPEG", "Png", "webp", "gif", "avif"));
}

TEST(TarTable, what_a_sample_lacks_costs_its_row) {
  const std::string members = tar_sample("0", "a") + tar_member("1.txt", "no picture") + tar_member("2.jpg", "p") +
                              tar_member("2.json", R"({"caption": "cut)") + tar_member("2.txt", "from txt") + tar_member("3.jpg", "p") +
                              tar_member("3.json", "[1]") + tar_sample("4", "b") + tar_sample("5", "not UTF-8: \xff");
  const auto table = open_tar(members);
  const auto range = *table->read_rows(0, 100, {});
  const auto batch = *read_all(*range);
  EXPECT_THAT(texts(batch, "image"), ElementsAre("picture of 0", "<null>", "p", "p", "picture of 4", "picture of 5"));
  EXPECT_THAT(texts(batch, "caption"), ElementsAre("a", "no picture", "from txt", "<null>", "b", "not UTF-8: \xff"));
  EXPECT_THAT(texts(batch, "url"), ElementsAre("http://0", "<null>", "<null>", "<null>", "http://4", "http://5"));
  EXPECT_EQ(range->num_malformed_rows(), 3);
}

TEST(TarTable, json_that_is_no_utf8_keeps_its_row_and_numbers_their_digits) {
  const std::string members = tar_member("0.jpg", "p") + tar_member("0.json", "{\"caption\": \"caf\xe9\", \"punsafe\": 0.10}");
  EXPECT_THAT(tar_column(members, "caption"), ElementsAre("caf\xff"));
  EXPECT_THAT(tar_column(members, "punsafe"), ElementsAre("0.10"));
}

TEST(TarTable, names_are_text_wherever_they_lead) {
  const std::string members = tar_member("../../etc/x.jpg", "a") + tar_member("/root/y.jpg", "b") +
                              long_name("long/" + std::string(300, 'n') + ".jpg") + tar_member("cut.jpg", "c") +
                              tar_member("x.jpg", "", '2') + pax_header("21 path=pax/name.jpg\n") + tar_member("z.jpg", "d");
  EXPECT_THAT(tar_column(members, "key"), ElementsAre("../../etc/x", "/root/y", "long/" + std::string(300, 'n'), "pax/name"));
  EXPECT_THAT(tar_column(members, "image"), ElementsAre("a", "b", "c", "d"));
}

TEST(TarTable, any_range_in_any_order_and_batch_gives_the_rows_of_the_whole) {
  std::string members;
  std::vector<std::string> keys;
  for (int i = 0; i < 101; ++i) {
    keys.push_back(fmt::format("{:06}", i));
    members += tar_sample(keys.back(), std::string(static_cast<size_t>(i * 37 % 2000), 'x'));
  }
  for (const int64_t batch_rows : {1, 7, 1000}) {
    const auto table = open_tar(members);
    for (int64_t step = 1; step < 30; ++step) {
      const int64_t first = step * 37 % 110;
      const auto batch = *read_range(*table, first, step, {"key", "image"}, {.max_batch_rows = batch_rows});
      const int64_t end = std::min<int64_t>(first + step, 101);
      const std::vector<std::string> wanted(keys.begin() + std::min<int64_t>(first, 101),
                                            keys.begin() + std::max(end, std::min<int64_t>(first, 101)));
      EXPECT_EQ(texts(batch, "key"), wanted) << first;
    }
    EXPECT_EQ(*table->num_rows(), 101);
  }
  const auto small = *open_tar(members)->read_rows(0, 101, {"image"}, {.batch_bytes = 1});
  EXPECT_EQ((*small->next())->num_rows(), 1);
}

TEST(TarTable, pictures_are_read_as_a_stream_of_few_large_reads) {
  std::string members;
  for (int i = 0; i < 60; ++i) {
    members += tar_member(fmt::format("{:03}.jpg", i), std::string(100'000, 'p')) + tar_member(fmt::format("{:03}.txt", i), "caption");
  }
  const auto file = tar_file(members);
  const auto table = *open_tar_table(file);
  EXPECT_EQ(*table->num_rows(), 60);
  file->num_reads = 0;
  file->num_bytes_read = 0;
  EXPECT_EQ((*read_range(*table, 0, 60))->num_rows(), 60);
  EXPECT_LT(file->num_reads, 8);
  EXPECT_LT(file->num_bytes_read, file->size_bytes() * 5 / 4);
}

TEST(TarTable, rows_that_were_read_are_not_walked_through_again) {
  std::string members;
  for (int i = 0; i < 200; ++i) {
    members += tar_member(fmt::format("{:03}.jpg", i), std::string(40'000, 'p'));
  }
  const auto file = tar_file(members);
  const auto table = *open_tar_table(file);
  ASSERT_EQ((*read_range(*table, 0, 100))->num_rows(), 100);
  file->num_bytes_read = 0;
  ASSERT_EQ(texts(*read_range(*table, 99, 1, {"key"}), "key"), std::vector<std::string>{"099"});
  EXPECT_LT(file->num_bytes_read, 5 << 20);
}

TEST(TarTable, a_later_reader_of_the_same_archive_walks_to_no_row_that_an_earlier_one_knew) {
  std::string members;
  for (int i = 0; i < 400; ++i) {
    members += tar_member(fmt::format("{:03}.jpg", i), std::string(40'000, 'p'));
  }
  const auto file = tar_file(members);
  const auto first = *open_tar_table(file);
  EXPECT_EQ(first->row_marks().size(), 1u);
  ASSERT_EQ((*read_range(*first, 200, 1, {"key"}))->num_rows(), 1);
  const std::vector<int64_t> marks = first->row_marks();
  EXPECT_EQ(marks.size(), 200u / kRowsPerTarMark + 1);
  const auto table = *open_tar_table(file);
  table->take_row_marks(marks);
  EXPECT_EQ(table->row_marks(), marks);
  file->num_bytes_read = 0;
  ASSERT_EQ(texts(*read_range(*table, 192, 1, {"key"}), "key"), std::vector<std::string>{"192"});
  EXPECT_LT(file->num_bytes_read, 5 << 20);
  for (const int row : {399, 40, 191, 193, 63, 64, 65, 320, 0}) {  // Known ones, ones between and behind them.
    EXPECT_EQ(texts(*read_range(*table, row, 1, {"key"}), "key"), std::vector<std::string>{fmt::format("{:03}", row)});
  }
  EXPECT_EQ(*table->num_rows(), 400);
  EXPECT_EQ(texts(*read_range(*table, 250, 1, {"key"}), "key"), std::vector<std::string>{"250"});
  EXPECT_EQ(*read_range(*table, 400, 1, {"key"}), nullptr);
}

TEST(TarTable, a_compressed_archive_is_refused_by_its_name) {
  MemoryFileSystem files;
  ASSERT_TRUE(write_file_atomic(files, "x.TAR", tar_sample("0", "a") + tar_end()).is_ok());
  EXPECT_TRUE(open_table(files, "x.TAR").is_ok());
  for (const std::string name : {"x.tar.gz", "x.TGZ", "x.tar.zst"}) {
    ASSERT_TRUE(write_file_atomic(files, name, "compressed").is_ok());
    const Status refused = open_table(files, name).status();
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(refused.message(), testing::AllOf(HasSubstr("decompress"), HasSubstr(name)));
  }
}

TEST(TarTable, damage_names_the_file_and_the_offset) {
  const std::string whole = tar_sample("0", "a");
  const auto cut = open_tar_table(std::make_shared<BytesFile>(whole.substr(0, whole.size() - 600)));
  EXPECT_EQ(cut.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(cut.status().message(), testing::AllOf(HasSubstr("in/x.tar"), HasSubstr("offset 2048")));
  // Behind the samples that open() looks at.
  std::string many;
  for (int i = 0; i < 50; ++i) {
    many += tar_sample(fmt::format("{:03}", i), "a");
  }
  const auto table = *open_tar_table(std::make_shared<BytesFile>(many + std::string(512, 'x') + tar_end()));
  EXPECT_THAT(table->num_rows().status().message(), HasSubstr(fmt::format("offset {}", many.size())));
  EXPECT_EQ((*read_range(*table, 0, 49))->num_rows(), 49);
  EXPECT_EQ(read_range(*table, 0, 50).status().code(), StatusCode::kCorruptData);
}

TEST(TarTable, sizes_that_lie_are_refused_and_large_members_cost_their_row) {
  const std::string lies = TarBlock{.name = "0.jpg", .size = octal(int64_t{1} << 32)}.bytes();
  EXPECT_THAT(open_tar_table(tar_file(lies)).status().message(), HasSubstr("the file ends inside"));
  const auto sparse = open_tar_table(tar_file(tar_member("0.jpg", "x", 'S')));
  EXPECT_EQ(sparse.status().code(), StatusCode::kFailedPrecondition);
  const std::string members = tar_member("0.jpg", "p") + tar_member("0.json", "{\"a\": \"" + std::string(5 << 20, 'x') + "\"}") +
                              tar_member("0.txt", "t") + tar_member("1.jpg", "p") + tar_member("1.txt", std::string(2 << 20, 'x'));
  EXPECT_THAT(tar_column(members, "caption"), ElementsAre("t", "<null>"));
}

TEST(TarTable, an_archive_without_samples_has_no_rows) {
  const auto table = open_tar(tar_member("README", "x"));
  EXPECT_EQ(*table->num_rows(), 0);
  EXPECT_THAT(table->schema()->field_names(), ElementsAre("key", "image", "caption")) << "as its dataset's other archives";
  EXPECT_EQ(*read_range(*table, 0, 10), nullptr);
}

TEST(TarTable, a_store_that_fails_is_the_reads_own_failure) {
  std::string members;
  for (int i = 0; i < 100; ++i) {
    members += tar_member(fmt::format("{:03}.jpg", i), std::string(100'000, 'p'));
  }
  const auto file = tar_file(members);
  const auto table = *open_tar_table(file);
  file->fail_after_reads = 2;
  EXPECT_EQ(read_range(*table, 0, 100).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ((*read_range(*table, 0, 100))->num_rows(), 100);
}

}  // namespace
}  // namespace darkroom
