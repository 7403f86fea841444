#include "darkroom/tables/paged_shard_writer.h"

#include <arrow/io/memory.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>
#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <nlohmann/json.hpp>

#include "darkroom/core/random.h"
#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/verify_shard.h"
#include "support/shard_rows.h"
#include "support/source_path.h"
#include "table_rows.h"
#include "tables/column_layout.h"
#include "tables/page_writer.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A store of files in memory with faults, and what tests do with it.
struct ShardStore {
  MemoryFileSystem memory = {};
  FaultInjectingFileSystem files{memory};
  std::unique_ptr<Store> store = make_posix_store(files, "memory");

  Result<std::unique_ptr<PendingObject>> begin(const std::string& name) { return store->begin_object("out", name); }

  Result<PublishOutcome> stream(const std::string& name, int num_rows, int step, const PagedShardOptions& options = {}) {
    DARKROOM_ASSIGN_OR_RETURN(auto object, begin(name));
    DARKROOM_ASSIGN_OR_RETURN(const FinishedShard shard, stream_rows(std::move(object), num_rows, step, options));
    return shard.object->publish();
  }

  Result<PublishOutcome> write(const std::string& name, const std::vector<std::shared_ptr<arrow::RecordBatch>>& batches,
                               const PagedShardOptions& options = {}, const KeyValues& footer = {}) {
    DARKROOM_ASSIGN_OR_RETURN(auto object, begin(name));
    DARKROOM_ASSIGN_OR_RETURN(auto writer, PagedShardWriter::open(std::move(object), batches.at(0)->schema(), options));
    for (const auto& batch : batches) {
      DARKROOM_RETURN_IF_ERROR(writer->write(*batch));
    }
    DARKROOM_ASSIGN_OR_RETURN(const FinishedShard shard, writer->finish(footer));
    return shard.object->publish();
  }

  std::string bytes(const std::string& name) { return read_file(memory, "out/" + name).value(); }
};

/// Arrow's own reading, page checksums checked.
std::unique_ptr<parquet::ParquetFileReader> open_parquet(const std::string& bytes) {
  parquet::ReaderProperties properties;
  properties.set_page_checksum_verification(true);
  return parquet::ParquetFileReader::Open(std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(bytes)), properties);
}

std::shared_ptr<arrow::Table> read_with_arrow(const std::string& bytes) {
  std::unique_ptr<parquet::arrow::FileReader> reader;
  parquet::arrow::FileReaderBuilder builder;
  parquet::ReaderProperties properties;
  properties.set_page_checksum_verification(true);
  EXPECT_TRUE(builder.Open(std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(bytes)), properties).ok());
  EXPECT_TRUE(builder.Build(&reader).ok());
  std::shared_ptr<arrow::Table> table;
  const arrow::Status status = reader->ReadTable(&table);
  DARKROOM_CHECK(status.ok(), "Arrow does not read it:", status.ToString());
  EXPECT_TRUE(table->ValidateFull().ok());
  return table;
}

std::shared_ptr<arrow::RecordBatch> joined(const std::shared_ptr<arrow::Table>& table) {
  return table->CombineChunksToBatch().ValueOrDie();
}

struct PageShape {
  int64_t num_values = 0;
  int64_t num_bytes = 0;

  bool operator==(const PageShape&) const = default;
};

void PrintTo(const PageShape& page, std::ostream* out) { *out << page.num_values << " values in " << page.num_bytes << " bytes"; }

std::vector<PageShape> pages_of(const std::string& bytes, int row_group, int column) {
  const auto file = open_parquet(bytes);
  const auto reader = file->RowGroup(row_group)->GetColumnPageReader(column);
  std::vector<PageShape> pages;
  while (const auto page = reader->NextPage()) {
    const auto& data = static_cast<const parquet::DataPageV1&>(*page);
    EXPECT_EQ(data.type(), parquet::PageType::DATA_PAGE);
    EXPECT_EQ(data.encoding(), parquet::Encoding::PLAIN);
    pages.push_back({.num_values = data.num_values(), .num_bytes = data.size()});
  }
  return pages;
}

/// One column `image` of values of these sizes; -1 is null.
std::shared_ptr<arrow::RecordBatch> images_of(const std::vector<int64_t>& sizes) {
  arrow::BinaryBuilder builder;
  for (const int64_t size : sizes) {
    EXPECT_TRUE((size < 0 ? builder.AppendNull() : builder.Append(std::string(static_cast<size_t>(size), 'v'))).ok());
  }
  return arrow::RecordBatch::Make(arrow::schema({arrow::field("image", arrow::binary())}), static_cast<int64_t>(sizes.size()),
                                  {builder.Finish().ValueOrDie()});
}

TEST(PagedShardWriter, what_it_streams_reads_back_equal_by_us_and_by_arrow) {
  ShardStore out;
  ASSERT_TRUE(out.stream("part.parquet", 1000, 64, {.row_group_bytes = 1'500'000}).is_ok());
  auto table = open_table(out.memory, "out/part.parquet").value();
  EXPECT_GT(read_footer(out.memory, "out/part.parquet")->row_groups.size(), 2u);
  const auto want = rows_with_images(0, 1000);
  EXPECT_TRUE(read_range(*table, 0, 1000).value()->Equals(*want));
  EXPECT_TRUE(read_range(*table, 701, 10).value()->Equals(*want->Slice(701, 10)));
  EXPECT_TRUE(joined(read_with_arrow(out.bytes("part.parquet")))->Equals(*want));
}

TEST(PagedShardWriter, gives_the_same_bytes_however_rows_come_in) {
  ShardStore out;
  const PagedShardOptions options{.row_group_bytes = 1'200'000};
  ASSERT_TRUE(out.stream("streamed", 603, 603, options).is_ok());
  const std::string want = out.bytes("streamed");
  for (const int step : {1, 7, 64, 602}) {
    ASSERT_TRUE(out.stream(fmt::format("step-{}", step), 603, step, options).is_ok());
    EXPECT_EQ(out.bytes(fmt::format("step-{}", step)), want) << step;
    std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
    const auto all = rows_with_images(0, 603);
    for (int first = 0; first < 603; first += step) {
      batches.push_back(all->Slice(first, step));
    }
    const std::string name = fmt::format("whole-{}", step);
    ASSERT_TRUE(out.write(name, batches, options, {{kShardKey, "{\"item\":42}"}, {"other", "value"}}).is_ok());
    EXPECT_EQ(out.bytes(name), want) << "whole batches of " << step;
  }
}

TEST(PagedShardWriter, the_record_names_the_content) {
  ShardStore out;
  const FinishedShard shard = stream_rows(out.begin("part").value(), 100, 10).value();
  EXPECT_FALSE(out.memory.exists("out/part").value());
  EXPECT_EQ(shard.object->publish().value(), PublishOutcome::kPublished);
  EXPECT_EQ(shard.num_rows, 100);
  const std::string bytes = out.bytes("part");
  EXPECT_EQ(shard.num_bytes, static_cast<int64_t>(bytes.size()));
  const TableFooter footer = read_footer(out.memory, "out/part").value();
  EXPECT_EQ(*footer.find("other"), "value");
  EXPECT_TRUE(footer.schema->Equals(*shard_schema()));
  const auto record = nlohmann::json::parse(*footer.find(kShardKey));
  EXPECT_EQ(record["item"], 42);
  EXPECT_EQ(record["content_hash"], shard.content_hash);
  ContentHash hash;
  hash.update(std::as_bytes(std::span(bytes)).first(static_cast<size_t>(footer.content_bytes)));
  EXPECT_EQ(shard.content_hash, "xxh3-128:" + hash.hex());
  EXPECT_EQ(open_parquet(bytes)->metadata()->created_by(), "darkroom version 2.0.0");
}

/// Offsets of all column chunks in the order of row groups and columns must follow one another without a gap.
void expect_no_gaps(const std::string& bytes, int64_t content_bytes) {
  const auto metadata = open_parquet(bytes)->metadata();
  int64_t offset = 4;
  int64_t num_rows = 0;
  for (int group = 0; group < metadata->num_row_groups(); ++group) {
    const auto row_group = metadata->RowGroup(group);
    EXPECT_EQ(row_group->file_offset(), offset);
    num_rows += row_group->num_rows();
    int64_t num_bytes = 0;
    int64_t num_compressed = 0;
    for (int column = 0; column < row_group->num_columns(); ++column) {
      const auto chunk = row_group->ColumnChunk(column);
      EXPECT_EQ(chunk->data_page_offset(), offset) << group << ", " << column;
      offset += chunk->total_compressed_size();
      num_bytes += chunk->total_uncompressed_size();
      num_compressed += chunk->total_compressed_size();
    }
    EXPECT_EQ(row_group->total_byte_size(), num_bytes);
    EXPECT_EQ(row_group->total_compressed_size(), num_compressed);
  }
  EXPECT_EQ(offset, content_bytes);
  EXPECT_EQ(num_rows, metadata->num_rows());
}

TEST(PagedShardWriter, columns_lie_in_the_order_of_the_schema) {
  ShardStore out;
  ASSERT_TRUE(out.stream("streamed", 500, 64, {.row_group_bytes = 1'000'000}).is_ok());
  expect_no_gaps(out.bytes("streamed"), read_footer(out.memory, "out/streamed")->content_bytes);
  const auto batch = rows_with_images(0, 500);
  const auto reordered = batch->SelectColumns({1, 2, 0, 3}).ValueOrDie();
  ASSERT_TRUE(out.write("whole", {reordered}, {.row_group_bytes = 1'000'000}).is_ok());
  expect_no_gaps(out.bytes("whole"), read_footer(out.memory, "out/whole")->content_bytes);
  EXPECT_TRUE(joined(read_with_arrow(out.bytes("whole")))->Equals(*reordered));
}

/// Columns of many types with nulls, none of which has pages of ours.
std::shared_ptr<arrow::RecordBatch> foreign_rows(int count) {
  arrow::Int64Builder counts;
  arrow::DoubleBuilder scores;
  arrow::BooleanBuilder flags;
  auto tag = std::make_shared<arrow::StringBuilder>();
  arrow::ListBuilder tags(arrow::default_memory_pool(), tag);
  arrow::StringBuilder names;
  for (int row = 0; row < count; ++row) {
    arrow::Status status = row % 4 == 0 ? counts.AppendNull() : counts.Append(row - 50);
    status &= scores.Append(row / 8.0 - 3);
    status &= row % 3 == 0 ? flags.AppendNull() : flags.Append(row % 2 == 0);
    status &= names.Append(fmt::format("name {}", row));
    status &= row % 6 == 0 ? tags.AppendNull() : tags.Append();
    for (int i = 0; row % 6 != 0 && i < row % 5; ++i) {
      status &= tag->Append(fmt::format("tag {}", i));
    }
    EXPECT_TRUE(status.ok());
  }
  const auto score = scores.Finish().ValueOrDie();
  const auto name = names.Finish().ValueOrDie();
  const auto pair = arrow::StructArray::Make({score, name}, std::vector<std::string>{"score", "name"}).ValueOrDie();
  const arrow::ArrayVector columns = {counts.Finish().ValueOrDie(), flags.Finish().ValueOrDie(), tags.Finish().ValueOrDie(), pair, name};
  arrow::FieldVector fields;
  for (size_t i = 0; i < columns.size(); ++i) {
    fields.push_back(arrow::field(std::string(1, static_cast<char>('a' + i)), columns[i]->type(), i != 4));
  }
  return arrow::RecordBatch::Make(arrow::schema(fields), count, columns);
}

/// All that a footer says of its row groups.
std::string row_groups_text(const parquet::FileMetaData& metadata) {
  const std::string text = metadata.SerializeUnencrypted(/*scrub=*/false, /*debug=*/true);
  const size_t begin = text.find("row_groups=");
  return text.substr(begin, text.find("key_value_metadata=", text.rfind("RowGroup(")) - begin);
}

/// What Arrow's own writer makes of the rows, with our properties and in row groups of so many rows.
std::string write_with_arrow(const arrow::RecordBatch& rows, const std::vector<int64_t>& group_rows) {
  const auto properties = make_shard_properties(*rows.schema(), 3, "test").value();
  const auto sink = arrow::io::BufferOutputStream::Create().ValueOrDie();
  auto writer = parquet::arrow::FileWriter::Open(*rows.schema(), arrow::default_memory_pool(), sink, properties).ValueOrDie();
  int64_t first = 0;
  for (const int64_t count : group_rows) {
    EXPECT_TRUE(writer->NewRowGroup().ok());
    for (const auto& column : rows.columns()) {
      EXPECT_TRUE(writer->WriteColumnChunk(cut_into_pieces(column->Slice(first, count))).ok());
    }
    first += count;
  }
  EXPECT_EQ(first, rows.num_rows());
  EXPECT_TRUE(writer->Close().ok());
  return sink->Finish().ValueOrDie()->ToString();
}

TEST(PagedShardWriter, other_columns_are_written_as_arrow_does) {
  ShardStore out;
  const auto rows = foreign_rows(400);
  ASSERT_TRUE(out.write("part", {rows}, {.row_group_bytes = 10'000}).is_ok());
  const std::string got = out.bytes("part");
  const TableFooter footer = read_footer(out.memory, "out/part").value();
  std::vector<int64_t> group_rows;
  for (int i = 0; i < open_parquet(got)->metadata()->num_row_groups(); ++i) {
    group_rows.push_back(open_parquet(got)->metadata()->RowGroup(i)->num_rows());
  }
  const std::string want = write_with_arrow(*rows, group_rows);
  const auto content_bytes = static_cast<size_t>(footer.content_bytes);
  ASSERT_LT(content_bytes, want.size());
  EXPECT_EQ(got.substr(0, content_bytes), want.substr(0, content_bytes));
  const auto got_metadata = open_parquet(got)->metadata();
  const auto want_metadata = open_parquet(want)->metadata();
  ASSERT_GT(want_metadata->num_row_groups(), 2);
  EXPECT_EQ(row_groups_text(*got_metadata), row_groups_text(*want_metadata));
  EXPECT_THAT(row_groups_text(*want_metadata), AllOf(HasSubstr("min_value="), HasSubstr("null_count="), HasSubstr("encoding_stats=")));
  EXPECT_TRUE(got_metadata->schema()->Equals(*want_metadata->schema()));
}

TEST(PagedShardWriter, a_page_ends_with_the_row_that_fills_it) {
  constexpr int64_t kLevels = 4 + 2;  // A length and a run.
  for (const int64_t excess : {-1, 0, 1}) {
    SCOPED_TRACE(excess);
    ShardStore out;
    const int64_t size = kPageBytes - 4 + excess;
    ASSERT_TRUE(out.write("part", {images_of({size, 10})}).is_ok());
    const std::vector<PageShape> two = {{1, kLevels + kPageBytes + excess}, {1, kLevels + 4 + 10}};
    const std::vector<PageShape> one = {{2, kLevels + kPageBytes + excess + 4 + 10}};
    EXPECT_EQ(pages_of(out.bytes("part"), 0, 0), excess < 0 ? one : two);
  }
}

TEST(PagedShardWriter, a_row_of_50_MB_is_a_page_of_its_own) {
  ShardStore out;
  const auto rows = images_of({10, 50'000'000, -1, 0, 10});
  ASSERT_TRUE(out.write("part", {rows}, {.row_group_bytes = 100'000'000}).is_ok());
  EXPECT_EQ(pages_of(out.bytes("part"), 0, 0), (std::vector<PageShape>{{2, 6 + 14 + 50'000'004}, {3, 8 + 4 + 14}}));
  EXPECT_TRUE(joined(read_with_arrow(out.bytes("part")))->Equals(*rows));
}

TEST(PagedShardWriter, a_shard_without_rows_and_one_of_nulls_are_tables) {
  ShardStore out;
  ASSERT_TRUE(out.stream("empty.parquet", 0, 1).is_ok());
  auto table = open_table(out.memory, "out/empty.parquet").value();
  EXPECT_EQ(table->num_rows().value(), 0);
  EXPECT_TRUE(read_footer(out.memory, "out/empty.parquet")->schema->Equals(*shard_schema()));
  const auto nulls = images_of(std::vector<int64_t>(1000, -1));
  ASSERT_TRUE(out.write("nulls.parquet", {nulls}, {.row_group_rows = 300}).is_ok());
  EXPECT_TRUE(joined(read_with_arrow(out.bytes("nulls.parquet")))->Equals(*nulls));
  EXPECT_EQ(open_parquet(out.bytes("nulls.parquet"))->metadata()->num_row_groups(), 4);
  for (const char* name : {"out/empty.parquet", "out/nulls.parquet"}) {
    EXPECT_TRUE(verify_shard(out.memory, name).is_ok());
  }
}

TEST(PagedShardWriter, tensors_read_back_equal_and_have_pages_of_whole_rows) {
  ShardStore out;
  const auto all = tensor_rows(0, 700);
  ASSERT_TRUE(out.write("part.parquet", {all->Slice(0, 301), all->Slice(301)}, {.row_group_rows = 256}).is_ok());
  const std::string bytes = out.bytes("part.parquet");
  EXPECT_TRUE(joined(read_with_arrow(bytes))->Equals(*all));
  auto table = open_table(out.memory, "out/part.parquet").value();
  EXPECT_TRUE(read_range(*table, 0, 700).value()->Equals(*all));
  expect_no_gaps(bytes, read_footer(out.memory, "out/part.parquet")->content_bytes);
  const auto footer = read_footer(out.memory, "out/part.parquet").value();
  ASSERT_EQ(footer.row_groups.size(), 3u);
  EXPECT_EQ(footer.row_groups[0].num_rows, 256);
  constexpr int64_t kPageRows = kPageBytes / (kMeanElements * 2);  // 128: the last fills the page to the byte.
  EXPECT_EQ(pages_of(bytes, 0, 1).size(), 256 / kPageRows);
  EXPECT_EQ(pages_of(bytes, 0, 1).front().num_values, kPageRows * kMeanElements);
  EXPECT_EQ(pages_of(bytes, 2, 2).front().num_values, 188 * kStateElements);
}

TEST(PagedShardWriter, tensors_are_the_same_bytes_however_rows_come_in) {
  ShardStore out;
  const auto all = tensor_rows(0, 150);
  ASSERT_TRUE(out.write("whole", {all}).is_ok());
  std::vector<std::shared_ptr<arrow::RecordBatch>> parts;
  for (int first = 0; first < 150; first += 7) {
    parts.push_back(all->Slice(first, 7));
  }
  ASSERT_TRUE(out.write("parts", parts).is_ok());
  EXPECT_EQ(out.bytes("parts"), out.bytes("whole"));
}

TEST(PagedShardWriter, refuses_nulls_where_the_column_has_none) {
  ShardStore out;
  const auto type = tensor_type(TensorElement::kFloat16, {2});
  const auto& storage_type = static_cast<const arrow::ExtensionType&>(*type).storage_type();
  const auto null_row = arrow::ExtensionType::WrapArray(type, arrow::MakeArrayOfNull(storage_type, 3).ValueOrDie());
  arrow::FixedSizeListBuilder lists(arrow::default_memory_pool(), std::make_shared<arrow::HalfFloatBuilder>(), 2);
  ASSERT_TRUE(lists.Append().ok());
  ASSERT_TRUE(lists.value_builder()->AppendNulls(2).ok());
  const auto null_element = arrow::ExtensionType::WrapArray(type, lists.Finish().ValueOrDie());
  for (const auto& column : {null_row, null_element}) {
    const auto batch = arrow::RecordBatch::Make(arrow::schema({arrow::field("mean", type)}), column->length(), {column});
    const Status status = out.write("part", {batch}).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("mean"));
  }
  const auto nulls = images_of({1, -1});
  const auto strict = arrow::RecordBatch::Make(arrow::schema({arrow::field("image", arrow::binary(), false)}), 2, nulls->columns());
  EXPECT_EQ(out.write("part", {strict}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(out.memory.list_tree("out")->empty());
}

TEST(PagedShardWriter, tells_whose_bytes_were_taken) {
  ShardStore out;
  auto writer = PagedShardWriter::open(out.begin("part").value(), shard_schema(), {.streamed_column = "image"}).value();
  const std::string half(kPageBytes / 2, 'h');
  const std::vector<BorrowedValue> value = {std::as_bytes(std::span(half))};
  const std::vector<int64_t> want = {0, 2, 2, 4};  // With its length half a page is more than half.
  for (int row = 0; row < 4; ++row) {
    ASSERT_TRUE(writer->write(*rows_without_images(row, 1), value).is_ok());
    EXPECT_EQ(writer->num_rows_taken(), want[static_cast<size_t>(row)]) << row;
  }
  EXPECT_EQ(writer->num_rows(), 4);
}

TEST(PagedShardWriter, refuses_wrong_options_and_uses) {
  ShardStore out;
  const auto code = [&](const PagedShardOptions& options, const std::shared_ptr<arrow::Schema>& schema = shard_schema()) {
    return PagedShardWriter::open(out.begin("part").value(), schema, options).status().code();
  };
  const auto binary = arrow::field("image", arrow::binary());
  const auto text = arrow::field("text", arrow::utf8());
  EXPECT_EQ(code({.row_group_bytes = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.row_group_rows = 0}), StatusCode::kInvalidArgument);
  for (const int level : {-1, 0, 23}) {
    EXPECT_EQ(code({.zstd_level = level}), StatusCode::kInvalidArgument) << level;
  }
  EXPECT_EQ(code({}, arrow::schema({text, text})), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.streamed_column = "none"}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.streamed_column = "image"}, arrow::schema({text, binary})), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.streamed_column = "text"}, arrow::schema({text, binary})), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.row_group_bytes = 1, .row_group_rows = 1, .zstd_level = 1, .streamed_column = "image"}), StatusCode::kOk);
  EXPECT_EQ(code({.row_group_bytes = 1, .row_group_rows = 1, .zstd_level = 22, .streamed_column = "image"}), StatusCode::kOk);

  auto streaming = PagedShardWriter::open(out.begin("part").value(), shard_schema(), {.streamed_column = "image"}).value();
  EXPECT_THROW((void)streaming->write(*rows_with_images(0, 1)), CheckFailure);
  EXPECT_THROW((void)streaming->write(*rows_with_images(0, 1), std::vector<BorrowedValue>(1)), CheckFailure);
  EXPECT_THROW((void)streaming->write(*rows_without_images(0, 1), std::vector<BorrowedValue>(2)), CheckFailure);
  auto whole = PagedShardWriter::open(out.begin("part").value(), shard_schema()).value();
  EXPECT_THROW((void)whole->write(*rows_without_images(0, 1)), CheckFailure);
  EXPECT_THROW((void)whole->num_rows_taken(), CheckFailure);
  ASSERT_TRUE(whole->finish({}).is_ok());
  EXPECT_THROW((void)whole->finish({}), CheckFailure);
}

TEST(PagedShardWriter, the_second_writer_of_a_name_finds_it_there) {
  ShardStore out;
  EXPECT_EQ(out.stream("part", 10, 10).value(), PublishOutcome::kPublished);
  EXPECT_EQ(out.stream("part", 20, 10).value(), PublishOutcome::kAlreadyThere);
  EXPECT_EQ(read_footer(out.memory, "out/part")->num_rows, 10);
}

TEST(PagedShardWriter, leaves_nothing_when_it_or_its_shard_is_given_up) {
  ShardStore out;
  {
    auto writer = PagedShardWriter::open(out.begin("part").value(), shard_schema()).value();
    ASSERT_TRUE(writer->write(*rows_with_images(0, 1000)).is_ok());
  }
  EXPECT_TRUE(out.memory.list_tree("out")->empty());
  (void)stream_rows(out.begin("part").value(), 10, 10).value();
  EXPECT_TRUE(out.memory.list_tree("out")->empty());
}

TEST(PagedShardWriter, no_disk_fault_publishes_a_bad_shard) {
  const PagedShardOptions options{.row_group_bytes = 30'000};
  ShardStore counted;
  ASSERT_TRUE(counted.stream("part", 30, 10, options).is_ok());
  const int64_t num_calls = counted.files.num_calls();
  ASSERT_GT(num_calls, 40);
  for (const Fault fault : {Fault::kNoSpace, Fault::kInputOutput, Fault::kShortWrite}) {
    for (int64_t call = 0; call < num_calls; ++call) {
      SCOPED_TRACE(fmt::format("call {} of {}, fault {}", call, num_calls, static_cast<int>(fault)));
      ShardStore out;
      out.files.fail_call(call, fault);
      const Status status = out.stream("part", 30, 10, options).status();
      EXPECT_EQ(status.code(), fault == Fault::kInputOutput ? StatusCode::kUnavailable : StatusCode::kResourceExhausted)
          << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("out"));
      out.files.heal();
      if (out.memory.exists("out/part").value()) {
        EXPECT_TRUE(verify_shard(out.memory, "out/part").is_ok());
      }
      ASSERT_TRUE(out.stream("part", 30, 10, options).is_ok());
      EXPECT_TRUE(verify_shard(out.memory, "out/part").is_ok());
      EXPECT_EQ(out.memory.list_tree("out")->size(), 1u);
    }
  }
}

TEST(PagedShardWriter, a_crash_at_any_instant_leaves_a_whole_shard_or_none) {
  ShardStore counted;
  ASSERT_TRUE(counted.stream("part", 30, 10).is_ok());
  for (int64_t call = 0; call <= counted.files.num_calls(); ++call) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(fmt::format("call {}, seed {}", call, seed));
      ShardStore out;
      out.files.fail_call(call, Fault::kDeath);
      const bool acknowledged = out.stream("part", 30, 10).is_ok();
      out.memory.crash(seed);
      const bool visible = out.memory.exists("out/part").value();
      EXPECT_TRUE(visible || !acknowledged);
      if (visible) {
        EXPECT_TRUE(verify_shard(out.memory, "out/part").is_ok());
      }
    }
  }
}

// Written by tests/parity/shard_files.cpp (`shard_files FOLDER`) with pyarrow 23.0.1's libparquet.
TEST(PagedShardWriter, the_bytes_of_format_version_2_do_not_change) {
  ShardStore out;
  ASSERT_TRUE(out.stream("part", 12, 5).is_ok());
  EXPECT_EQ(out.bytes("part"), read_file(local_files(), source_path("tests/golden/tables/shard_v2.parquet")).value());
}

}  // namespace
}  // namespace darkroom
