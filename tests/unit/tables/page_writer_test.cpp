#include "tables/page_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/core/crc32.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

/// Keeps what is written, and the places of the pieces.
class RecordingObject final : public PendingObject {
 public:
  std::string describe() const override { return "memory://recorded"; }
  Status write(std::span<const std::span<const std::byte>> pieces) override {
    if (is_broken) {
      return Status::unavailable("injected (object):", describe());
    }
    writes.emplace_back();
    for (const std::span<const std::byte> piece : pieces) {
      writes.back().append(reinterpret_cast<const char*>(piece.data()), piece.size());
      places.push_back(piece.data());
    }
    return Status::ok();
  }
  int64_t num_bytes() const override { return 0; }
  Result<PublishOutcome> publish() override { return PublishOutcome::kPublished; }

  std::vector<std::string> writes = {};
  std::vector<const std::byte*> places = {};
  bool is_broken = false;
};

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  }
  return text;
}

/// What a page of these levels and values must be.
std::string whole_page(const std::string& body, int32_t num_values) {
  return encode_page_header(static_cast<int32_t>(body.size()), crc32(body), num_values) + body;
}

std::string length_of(uint32_t number) { return {reinterpret_cast<const char*>(&number), 4}; }

// Worked out from parquet.thrift and the compact protocol: each i32 is 15 and its zigzag, the struct 1c, its end 00.
TEST(PageHeader, is_thrift_in_the_compact_protocol) {
  EXPECT_EQ(hex_of(encode_page_header(300, 0xdeadbeef, 7)), "150015d80415d80415a1849295041c150e1500150615060000");
}

TEST(LevelRuns, are_runs_of_equal_levels_behind_their_length) {
  LevelRuns levels;
  levels.add(1, 2);
  levels.add(1);
  levels.add(0);
  levels.add(1, 200);
  EXPECT_EQ(hex_of(levels.take()),
            "07000000"
            "0601"
            "0200"
            "900301");
  EXPECT_EQ(hex_of(levels.take()), "00000000");
  levels.add(0, 63);
  levels.add(0);
  EXPECT_EQ(hex_of(levels.take()),
            "03000000"
            "800100");
}

TEST(BytesPageWriter, lays_out_nulls_empty_values_and_others) {
  RecordingObject object;
  ShardContent content(object);
  BytesPageWriter pages("image", true, content);
  for (const std::optional<std::string_view> value : {std::optional<std::string_view>("abc"), {}, {""}, {"z"}}) {
    ASSERT_TRUE(pages.add(value ? std::optional(bytes_of(*value)) : std::nullopt).is_ok());
  }
  EXPECT_EQ(pages.num_taken(), 0);
  const ChunkExtent chunk = pages.end_chunk().value();
  const std::string levels = length_of(6) + std::string("\x02\x01\x02\x00\x04\x01", 6);
  const std::string want = whole_page(levels + length_of(3) + "abc" + length_of(0) + length_of(1) + "z", 4);
  ASSERT_EQ(object.writes.size(), 1u);
  EXPECT_EQ(hex_of(object.writes[0]), hex_of(want));
  EXPECT_EQ(pages.num_taken(), 4);
  EXPECT_EQ(chunk.first_page, 0);
  EXPECT_EQ(chunk.num_bytes, static_cast<int64_t>(want.size()));
  EXPECT_EQ(chunk.num_values, 4);
  EXPECT_EQ(chunk.num_pages, 1);
  EXPECT_EQ(content.num_bytes(), static_cast<int64_t>(want.size()));
}

TEST(BytesPageWriter, a_column_without_nulls_has_no_levels) {
  RecordingObject object;
  ShardContent content(object);
  BytesPageWriter pages("image", false, content);
  ASSERT_TRUE(pages.add(bytes_of("abc")).is_ok());
  ASSERT_TRUE(pages.end_chunk().is_ok());
  EXPECT_EQ(object.writes.at(0), whole_page(length_of(3) + "abc", 1));
  const Status status = pages.add(std::nullopt);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("image"));
}

TEST(BytesPageWriter, a_page_ends_with_the_value_that_fills_it) {
  for (const int64_t excess : {-1, 0, 1}) {
    SCOPED_TRACE(excess);
    RecordingObject object;
    ShardContent content(object);
    BytesPageWriter pages("image", true, content);
    const std::string value(static_cast<size_t>(kPageBytes - 4 + excess), 'v');
    ASSERT_TRUE(pages.add(bytes_of(value)).is_ok());
    EXPECT_EQ(pages.num_taken(), excess < 0 ? 0 : 1);
    ASSERT_TRUE(pages.add(std::nullopt).is_ok());
    const ChunkExtent chunk = pages.end_chunk().value();
    EXPECT_EQ(chunk.num_pages, excess < 0 ? 1 : 2);
    EXPECT_EQ(chunk.num_values, 2);
    ASSERT_EQ(object.writes.size(), excess < 0 ? 1u : 2u);
    EXPECT_EQ(chunk.num_bytes, content.num_bytes());
  }
}

TEST(BytesPageWriter, large_values_go_from_where_they_lie_and_small_ones_together) {
  RecordingObject object;
  ShardContent content(object);
  BytesPageWriter pages("image", true, content);
  const std::string large(5000, 'l');
  for (const std::string_view value : {std::string_view("a"), std::string_view("b"), std::string_view(large), std::string_view("c")}) {
    ASSERT_TRUE(pages.add(bytes_of(value)).is_ok());
  }
  ASSERT_TRUE(pages.end_chunk().is_ok());
  ASSERT_EQ(object.places.size(), 4u);  // The header; levels and small values; the large one; the last one.
  EXPECT_EQ(object.places[2], bytes_of(large).data());
  EXPECT_EQ(
      object.writes.at(0),
      whole_page(length_of(2) + "\x08\x01" + length_of(1) + "a" + length_of(1) + "b" + length_of(5000) + large + length_of(1) + "c", 4));
}

TEST(BytesPageWriter, a_second_chunk_begins_where_the_first_ended) {
  RecordingObject object;
  ShardContent content(object);
  ASSERT_TRUE(content.write(bytes_of("PAR1")).is_ok());
  BytesPageWriter pages("image", true, content);
  ASSERT_TRUE(pages.add(bytes_of("first")).is_ok());
  const ChunkExtent first = pages.end_chunk().value();
  ASSERT_TRUE(pages.add(std::nullopt).is_ok());
  const ChunkExtent second = pages.end_chunk().value();
  EXPECT_EQ(first.first_page, 4);
  EXPECT_EQ(second.first_page, 4 + first.num_bytes);
  EXPECT_EQ(second.num_values, 1);
  EXPECT_EQ(second.num_pages, 1);
  EXPECT_EQ(pages.num_taken(), 2);
  EXPECT_THROW((void)pages.end_chunk(), CheckFailure);
}

TEST(BytesPageWriter, refuses_a_value_that_no_page_holds) {
  RecordingObject object;
  ShardContent content(object);
  BytesPageWriter pages("image", true, content);
  const std::byte* nowhere = bytes_of("x").data();  // Only the length is looked at.
  const Status status = pages.add(std::span(nowhere, size_t{1} << 31));
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("image"));
  EXPECT_THAT(status.message(), HasSubstr("2147483648"));
}

TEST(PageWriters, hand_on_what_the_object_says) {
  RecordingObject object;
  object.is_broken = true;
  ShardContent content(object);
  BytesPageWriter bytes("image", true, content);
  const std::string value(kPageBytes, 'v');
  EXPECT_EQ(bytes.add(bytes_of(value)).code(), StatusCode::kUnavailable);
  BytesPageWriter waiting("image", true, content);
  ASSERT_TRUE(waiting.add(bytes_of("v")).is_ok());
  EXPECT_EQ(waiting.end_chunk().status().code(), StatusCode::kUnavailable);
  TensorPageWriter tensors("mean", {.row_values = kPageBytes / 2, .value_bytes = 2, .max_definition_level = 3}, content);
  EXPECT_EQ(tensors.add_rows(bytes_of(value)).code(), StatusCode::kUnavailable);
  TensorPageWriter waiting_tensors("mean", {.row_values = 1, .value_bytes = 2, .max_definition_level = 3}, content);
  ASSERT_TRUE(waiting_tensors.add_rows(bytes_of("ab")).is_ok());
  EXPECT_EQ(waiting_tensors.end_chunk().status().code(), StatusCode::kUnavailable);
}

TEST(TensorPageWriter, writes_rows_as_lists_of_the_values_in_memory) {
  RecordingObject object;
  ShardContent content(object);
  TensorPageWriter pages("mean", {.row_values = 3, .value_bytes = 2, .max_definition_level = 3}, content);
  const std::string rows = "aabbccddeeff";
  ASSERT_TRUE(pages.add_rows(bytes_of(rows)).is_ok());
  ASSERT_TRUE(pages.add_rows(bytes_of("gghhii")).is_ok());
  const ChunkExtent chunk = pages.end_chunk().value();
  const std::string repetition = length_of(12) + std::string("\x02\x00\x04\x01\x02\x00\x04\x01\x02\x00\x04\x01", 12);
  const std::string definition = length_of(2) + "\x12\x03";
  EXPECT_EQ(hex_of(object.writes.at(0)), hex_of(whole_page(repetition + definition + rows + "gghhii", 9)));
  EXPECT_EQ(chunk.num_values, 9);
  EXPECT_EQ(object.places.at(2), bytes_of(rows).data());
}

TEST(TensorPageWriter, rows_of_one_value_begin_a_list_each) {
  RecordingObject object;
  ShardContent content(object);
  TensorPageWriter pages("mean", {.row_values = 1, .value_bytes = 4, .max_definition_level = 2}, content);
  ASSERT_TRUE(pages.add_rows(bytes_of("aaaabbbb")).is_ok());
  ASSERT_TRUE(pages.end_chunk().is_ok());
  EXPECT_EQ(hex_of(object.writes.at(0)),
            hex_of(whole_page(length_of(2) + std::string("\x04\x00", 2) + length_of(2) + "\x04\x02" + "aaaabbbb", 2)));
}

TEST(TensorPageWriter, a_page_ends_with_the_row_that_fills_it) {
  // Row bytes, rows, pages.
  const std::vector<std::vector<int64_t>> cases = {{kPageBytes, 2, 2},     {kPageBytes - 2, 2, 1}, {kPageBytes - 2, 3, 2},
                                                   {kPageBytes + 2, 3, 3}, {kPageBytes / 2, 5, 3}, {kPageBytes / 2 + 2, 4, 2}};
  for (const std::vector<int64_t>& it : cases) {
    SCOPED_TRACE(fmt::format("{} rows of {} bytes", it[1], it[0]));
    RecordingObject object;
    ShardContent content(object);
    TensorPageWriter pages("mean", {.row_values = it[0] / 2, .value_bytes = 2, .max_definition_level = 3}, content);
    const std::string rows(static_cast<size_t>(it[0] * it[1]), 'h');
    ASSERT_TRUE(pages.add_rows(bytes_of(rows)).is_ok());
    const ChunkExtent chunk = pages.end_chunk().value();
    EXPECT_EQ(chunk.num_pages, it[2]);
    EXPECT_EQ(chunk.num_values, it[0] / 2 * it[1]);
    EXPECT_EQ(chunk.num_bytes, content.num_bytes());
  }
}

TEST(TensorPageWriter, refuses_rows_that_no_page_holds_and_halves_of_rows) {
  RecordingObject object;
  ShardContent content(object);
  TensorPageWriter large("mean", {.row_values = int64_t{1} << 30, .value_bytes = 2, .max_definition_level = 3}, content);
  const std::byte* nowhere = bytes_of("x").data();  // Only the length is looked at.
  EXPECT_EQ(large.add_rows(std::span(nowhere, size_t{1} << 31)).code(), StatusCode::kResourceExhausted);
  TensorPageWriter pages("mean", {.row_values = 3, .value_bytes = 2, .max_definition_level = 3}, content);
  EXPECT_THROW((void)pages.add_rows(bytes_of("aabb")), CheckFailure);
  EXPECT_THROW(TensorPageWriter("mean", {.row_values = 0, .value_bytes = 2, .max_definition_level = 3}, content), CheckFailure);
}

}  // namespace
}  // namespace darkroom
