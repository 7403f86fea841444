#include "darkroom/batches/latents_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/fake_s3_stores.h"
#include "support/temporary_folder.h"
#include "unit/feed/small_datasets.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

class LatentsReaderTest : public testing::Test {
 protected:
  void write(const std::string& name, const SmallLatents& rows) { write_small_latents(temporary.path("latents"), name, rows); }
  Result<std::unique_ptr<LatentsReader>> open(int64_t memory_bytes = 1 << 20, int64_t resolution = 8) {
    DARKROOM_ASSIGN_OR_RETURN(const auto index, DatasetIndex::of_latents(*find_local_dataset(temporary.path("latents"))));
    return LatentsReader::open(
        *find_local_dataset(temporary.path("latents")), index,
        {.resolution = resolution, .latents_shape = kSmallLatentsShape, .states_shape = kSmallStatesShape, .memory_bytes = memory_bytes});
  }
  /// Reads rows in an order that jumps between shards and row groups and checks what they hold.
  void expect_rows(LatentsReader& reader, int64_t num_rows) {
    std::vector<SampleRef> samples;
    for (int64_t i = 0; i < num_rows; ++i) {
      samples.push_back({0, i * 37 % num_rows});
    }
    const auto batch = reader.read(samples);
    ASSERT_TRUE(batch.is_ok()) << batch.status().to_string();
    ASSERT_EQ(batch->latents_nchw.scalar_type(), torch::kFloat32);
    for (int64_t i = 0; i < num_rows; ++i) {
      const auto row = static_cast<float>(samples[static_cast<size_t>(i)].row);
      ASSERT_TRUE(batch->latents_nchw[i].eq(row).all().item<bool>()) << row;
      ASSERT_TRUE(batch->states_btc[i].eq(row).all().item<bool>()) << row;
    }
  }

  TemporaryFolder temporary;
};

TEST_F(LatentsReaderTest, reads_rows_of_all_shards_in_any_order) {
  write("part-000000.parquet", {.num_rows = 101});
  write("part-000001.parquet", {.first = 101, .num_rows = 0});
  write("part-000002.parquet", {.first = 101, .num_rows = 99, .element = TensorElement::kFloat32});
  auto reader = open();
  ASSERT_TRUE(reader.is_ok()) << reader.status().to_string();
  expect_rows(**reader, 200);
  const std::vector<SampleRef> one = {{3, 150}};
  EXPECT_EQ((*reader)->read(one)->keys, std::vector<std::string>{"key-150"});
  EXPECT_EQ((*reader)->describe(150), temporary.path("latents") + "/part-000002.parquet, row 49");
}

TEST_F(LatentsReaderTest, a_budget_of_one_row_group_changes_nothing_but_time) {
  write("part-000000.parquet", {.num_rows = 101});
  auto reader = open(1);
  ASSERT_TRUE(reader.is_ok());
  expect_rows(**reader, 101);
}

TEST_F(LatentsReaderTest, reads_the_published_dialect_without_keys) {
  write("a.parquet", {.num_rows = 5,
                      .element = TensorElement::kFloat32,
                      .latents_name = "latents_8_bytes",
                      .states_name = "caption_latents",
                      .with_keys = false});
  auto reader = open();
  ASSERT_TRUE(reader.is_ok()) << reader.status().to_string();
  expect_rows(**reader, 5);
  const std::vector<SampleRef> one = {{0, 4}};
  EXPECT_EQ((*reader)->read(one)->keys, std::vector<std::string>{"000000000004"});
}

TEST_F(LatentsReaderTest, a_row_without_a_key_is_named_by_its_number) {
  arrow::StringBuilder some;
  ASSERT_TRUE(some.Append("a").ok() && some.AppendNull().ok() && some.Append("").ok() && some.AppendNull().ok());
  write("a.parquet", {.num_rows = 1});
  write("b.parquet", {.first = 1, .num_rows = 4, .keys = *some.Finish()});
  arrow::Int64Builder numbers;
  ASSERT_TRUE(numbers.AppendValues({7, 7}).ok());
  write("c.parquet", {.first = 5, .num_rows = 2, .keys = *numbers.Finish()});
  auto reader = open();
  ASSERT_TRUE(reader.is_ok()) << reader.status().to_string();
  const std::vector<SampleRef> samples = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {0, 6}};
  const auto batch = (*reader)->read(samples);
  ASSERT_TRUE(batch.is_ok()) << batch.status().to_string();
  EXPECT_EQ(batch->keys,
            (std::vector<std::string>{"key-0", "a", "000000000002", "000000000003", "000000000004", "000000000005", "000000000006"}));
}

TEST_F(LatentsReaderTest, keys_of_a_dictionary_are_read) {
  arrow::StringDictionaryBuilder keys;
  ASSERT_TRUE(keys.Append("x").ok() && keys.Append("y").ok());
  write("a.parquet", {.num_rows = 2, .keys = *keys.Finish()});
  auto reader = open();
  ASSERT_TRUE(reader.is_ok()) << reader.status().to_string();
  const std::vector<SampleRef> samples = {{0, 1}, {0, 0}};
  EXPECT_EQ((*reader)->read(samples)->keys, (std::vector<std::string>{"y", "x"}));
}

TEST_F(LatentsReaderTest, names_shard_and_row_of_a_nan) {
  write("part-000000.parquet", {.num_rows = 20});
  write("part-000001.parquet", {.first = 20, .num_rows = 20, .nan_row = 7});
  auto reader = open();
  ASSERT_TRUE(reader.is_ok());
  const std::vector<SampleRef> row = {{0, 27}};
  const auto batch = (*reader)->read(row);
  EXPECT_EQ(batch.status().code(), StatusCode::kCorruptData);
  EXPECT_THAT(batch.status().message(), HasSubstr("part-000001.parquet 7 image_latents_8"));
}

TEST_F(LatentsReaderTest, names_a_missing_column_and_those_that_exist) {
  write("a.parquet", {.num_rows = 5});
  const auto reader = open(1 << 20, 16);
  EXPECT_EQ(reader.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(reader.status().message(), HasSubstr("'image_latents_16'"));
  EXPECT_THAT(reader.status().message(), HasSubstr("image_latents_8, caption_embeddings"));
}

TEST_F(LatentsReaderTest, says_what_to_do_about_moments_and_token_ids) {
  write("a.parquet", {.num_rows = 5, .latents_name = "image_moments_8"});
  EXPECT_THAT(open().status().message(), HasSubstr("--latents sample"));
  TemporaryFolder other;
  write_small_latents(other.path("latents"), "a.parquet", {.num_rows = 5, .states_name = "caption_ids"});
  const auto index = DatasetIndex::of_latents(*find_local_dataset(other.path("latents")));
  const LatentsReaderOptions options{.resolution = 8, .latents_shape = kSmallLatentsShape, .states_shape = kSmallStatesShape};
  EXPECT_THAT(LatentsReader::open(*find_local_dataset(other.path("latents")), *index, options).status().message(),
              HasSubstr("--text embeddings"));
}

TEST_F(LatentsReaderTest, refuses_latents_of_another_shape) {
  write("a.parquet", {.num_rows = 5});
  const auto index = DatasetIndex::of_latents(*find_local_dataset(temporary.path("latents")));
  auto reader = LatentsReader::open(*find_local_dataset(temporary.path("latents")), *index,
                                    {.resolution = 8, .latents_shape = {4, 2, 2}, .states_shape = kSmallStatesShape});
  ASSERT_TRUE(reader.is_ok());
  const std::vector<SampleRef> row = {{0, 0}};
  EXPECT_EQ((*reader)->read(row).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(LatentsReaderTest, reads_a_dataset_of_s3_by_ranges) {
  for (const int64_t part : {0, 1, 2}) {
    write(fmt::format("part-{:06}.parquet", part), {.first = 50 * part, .num_rows = 50});
  }
  FakeS3Stores s3;
  ASSERT_TRUE(s3.upload(temporary.path("latents"), "data/latents").is_ok());
  const auto dataset = find_dataset(s3.set, FakeS3Stores::uri("data/latents"));
  ASSERT_TRUE(dataset.is_ok()) << dataset.status().to_string();
  const auto index = DatasetIndex::of_latents(*dataset);
  ASSERT_TRUE(index.is_ok()) << index.status().to_string();
  EXPECT_EQ(index->hash(), DatasetIndex::of_latents(*find_local_dataset(temporary.path("latents")))->hash());
  auto reader = LatentsReader::open(
      *dataset, *index, {.resolution = 8, .latents_shape = kSmallLatentsShape, .states_shape = kSmallStatesShape, .memory_bytes = 1 << 20});
  ASSERT_TRUE(reader.is_ok()) << reader.status().to_string();
  expect_rows(**reader, 150);
  EXPECT_EQ((*reader)->describe(149), "s3://pictures/data/latents/part-000002.parquet, row 49");
  for (const auto& request : s3.fake.requests()) {
    const bool is_whole = request.head.starts_with("GET ") && request.head.find(".parquet") != std::string::npos &&
                          request.head.find("\r\nrange: ") == std::string::npos && request.head.find("\r\nRange: ") == std::string::npos;
    EXPECT_FALSE(is_whole) << request.head;
  }
}

TEST_F(LatentsReaderTest, a_remote_shard_that_is_replaced_meanwhile_is_told) {
  write("part-000000.parquet", {.num_rows = 101});
  FakeS3Stores s3;
  ASSERT_TRUE(s3.upload(temporary.path("latents"), "latents").is_ok());
  const auto dataset = *find_dataset(s3.set, FakeS3Stores::uri("latents"));
  const auto index = *DatasetIndex::of_latents(dataset);
  auto reader = *LatentsReader::open(
      dataset, index, {.resolution = 8, .latents_shape = kSmallLatentsShape, .states_shape = kSmallStatesShape, .memory_bytes = 1});
  s3.fake.with_state([](FakeS3Objects& state) { state.objects.at("latents/part-000000.parquet").bytes.resize(1000); });
  const std::vector<SampleRef> row = {{0, 7}};
  EXPECT_FALSE(reader->read(row).is_ok());
}

TEST_F(LatentsReaderTest, takes_a_pattern_and_a_single_file_of_s3) {
  write("part-000000.parquet", {.num_rows = 5});
  write("part-000001.parquet", {.first = 5, .num_rows = 7});
  FakeS3Stores s3;
  ASSERT_TRUE(s3.upload(temporary.path("latents"), "latents").is_ok());
  const auto rows = [&](const std::string& uri) { return DatasetIndex::of_latents(*find_dataset(s3.set, FakeS3Stores::uri(uri))); };
  EXPECT_EQ(rows("latents/part-*.parquet")->num_rows(), 12);
  EXPECT_EQ(rows("latents/part-000001.parquet")->num_rows(), 7);
  EXPECT_EQ(rows("latents/part-*.parquet")->hash(), rows("latents")->hash()) << "names count from the same folder";
  EXPECT_EQ(find_dataset(s3.set, FakeS3Stores::uri("nothing")).status().code(), StatusCode::kNotFound);
}

TEST(dataset_files, records_no_query_of_a_web_address) {
  EXPECT_EQ(recorded_uri("https://user:pw@host/latents.parquet?X-Amz-Signature=abc"), "https://host/latents.parquet");
  EXPECT_EQ(recorded_uri("s3://bucket/a?region=eu"), "s3://bucket/a?region=eu");
  EXPECT_EQ(recorded_uri("plain/path?"), "plain/path?");
}

}  // namespace
}  // namespace darkroom
