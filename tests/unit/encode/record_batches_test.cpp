#include "darkroom/encode/record_batches.h"

#include <arrow/api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>

#include "darkroom/tables/tensor_column.h"
#include "process_fixture.h"

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::shared_ptr<arrow::RecordBatch> images_batch(const std::vector<ImageRow>& rows) {
  arrow::StringBuilder keys, captions;
  arrow::BinaryBuilder images;
  arrow::Int64Builder hashes;
  for (const ImageRow& row : rows) {
    EXPECT_TRUE((hashes.Append(hashes.length() * 11) & keys.Append(row.key) & captions.Append(row.caption)).ok());
    EXPECT_TRUE((row.image.empty() ? images.AppendNull() : images.Append(row.image)).ok());
  }
  const auto schema = arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()),
                                     arrow::field("image", arrow::binary()), arrow::field("hash", arrow::int64())});
  return arrow::RecordBatch::Make(schema, static_cast<int64_t>(rows.size()),
                                  {*keys.Finish(), *captions.Finish(), *images.Finish(), *hashes.Finish()});
}

class RecordBatches : public ProcessJob {
 protected:
  std::unique_ptr<BatchEncoder> encoder(const ProcessOptions& options) {
    auto opened = BatchEncoder::open(stores_, options);
    EXPECT_TRUE(opened.is_ok()) << opened.status().to_string();
    return std::move(opened).value();
  }
  static BatchTransformOptions squares_of(const ProcessOptions& job) {
    return {.transform = job.transform, .seed = job.seed, .keep_columns = job.keep_columns};
  }
  /// Rows with each kind of failure among good ones.
  static std::vector<ImageRow> mixed_rows() {
    std::vector<ImageRow> rows = good_rows(7);
    rows[1].image = "no picture";
    rows[3].caption = "  ";
    rows[4].image.clear();
    return rows;
  }
  /// The part that process writes of the rows, as one batch.
  std::shared_ptr<arrow::RecordBatch> processed(const std::vector<ImageRow>& rows, const ProcessOptions& options) {
    write_images("part-000000.parquet", rows);
    process(options);
    const auto table = read_table(part(0));
    return *table->CombineChunksToBatch();
  }
  static void expect_same_rows(const arrow::RecordBatch& got, const arrow::RecordBatch& want) {
    EXPECT_TRUE(got.schema()->Equals(*want.schema(), false)) << got.schema()->ToString() << want.schema()->ToString();
    EXPECT_TRUE(got.ValidateFull().ok()) << got.ValidateFull().ToString();
    for (int i = 0; i < want.num_columns(); ++i) {
      EXPECT_TRUE(got.column(i)->Equals(*want.column(i))) << want.schema()->field(i)->name();
    }
  }
};

TEST_F(RecordBatches, latents_are_those_that_process_writes_of_the_same_rows) {
  ProcessOptions job = options();
  job.text = TextKind::kBoth;
  job.transform.crop = Crop::kRandom;
  job.seed = 5;
  const auto want = processed(mixed_rows(), job);
  const RecordsOut got = *encoder(job)->encode(images_batch(mixed_rows()));
  expect_same_rows(*got.rows, *want);
  EXPECT_EQ(got.tally.rows_in, 7);
  EXPECT_EQ(got.tally.rows_out, 4);
  EXPECT_THAT(got.tally.rows_by_error, ElementsAre(Pair("empty_caption", 1), Pair("not_an_image", 1), Pair("null_image", 1)));
  EXPECT_THAT(got.tally.failed_rows,
              ElementsAre(Pair("empty_caption", ElementsAre(3)), Pair("not_an_image", ElementsAre(1)), Pair("null_image", ElementsAre(4))));
}

TEST_F(RecordBatches, squares_on_the_way_change_no_bit_and_columns_are_carried_through_both) {
  ProcessOptions job = options();
  job.transform.crop = Crop::kRandom;
  job.seed = 5;
  job.keep_columns = {"hash"};
  const auto batch = images_batch(mixed_rows());
  const RecordsOut direct = *encoder(job)->encode(batch);
  const RecordsOut squares = *(*BatchTransformer::create(squares_of(job)))->transform(batch);
  EXPECT_EQ(squares.rows->num_rows(), 4);
  EXPECT_EQ(squares.tally.rows_by_error, direct.tally.rows_by_error);
  EXPECT_EQ(squares.rows->schema()->field(4)->name(), "pixels_32");
  EXPECT_TRUE(squares.rows->ValidateFull().ok()) << squares.rows->ValidateFull().ToString();
  const RecordsOut twice = *encoder(job)->encode(squares.rows);
  expect_same_rows(*twice.rows, *direct.rows);
  EXPECT_EQ(std::static_pointer_cast<arrow::Int64Array>(twice.rows->GetColumnByName("hash"))->Value(1), 22);
}

TEST_F(RecordBatches, a_slice_of_a_batch_gives_the_rows_of_the_slice) {
  ProcessOptions job = options();
  job.keep_columns = {"hash"};
  const auto encoding = encoder(job);
  const auto batch = images_batch(good_rows(5));
  const RecordsOut whole = *encoding->encode(batch);
  expect_same_rows(*encoding->encode(batch->Slice(2, 2))->rows, *whole.rows->Slice(2, 2));
  const RecordsOut squares = *(*BatchTransformer::create(squares_of(job)))->transform(batch);
  expect_same_rows(*encoding->encode(squares.rows->Slice(2, 2))->rows, *whole.rows->Slice(2, 2));
}

TEST_F(RecordBatches, a_batch_without_a_good_row_gives_no_rows_with_all_columns) {
  const auto encoding = encoder(options());
  std::vector<ImageRow> rows = good_rows(2);
  rows[0].image = rows[1].image = "no picture";
  for (const auto& batch : {images_batch({}), images_batch(rows)}) {
    const RecordsOut got = *encoding->encode(batch);
    EXPECT_EQ(got.rows->num_rows(), 0);
    EXPECT_NE(got.rows->GetColumnByName("image_latents_32"), nullptr);
    EXPECT_EQ(got.tally.rows_in, batch->num_rows());
    EXPECT_EQ((*BatchTransformer::create(squares_of(options())))->transform(batch)->rows->num_rows(), 0);
  }
}

TEST_F(RecordBatches, a_batch_without_keys_or_with_other_squares_is_refused) {
  const auto encoding = encoder(options());
  const auto batch = images_batch(good_rows(1));
  const Status no_key = encoding->encode(*batch->RemoveColumn(0)).status();
  EXPECT_EQ(no_key.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(no_key.message(), HasSubstr("needs a column `key`"));
  EXPECT_EQ(encoding->encode(*batch->RemoveColumn(2)).status().code(), StatusCode::kNotFound);
  BatchTransformOptions other = squares_of(options());
  other.transform.resolution = 16;
  const auto squares = (*BatchTransformer::create(other))->transform(batch)->rows;
  const auto renamed = *squares->RenameColumns({"key", "caption", "width", "height", "pixels_32"});
  const Status status = encoding->encode(renamed).status();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("uint8 [32, 32, 3]"));
  EXPECT_EQ(encoding->encode(*renamed->RemoveColumn(1)).status().code(), StatusCode::kNotFound);
}

// Whose key would be its number in the batch, so that its draws were another's in another batch.
TEST_F(RecordBatches, a_row_without_a_key_is_refused_by_its_number) {
  const auto encoding = encoder(options());
  const auto transforming = *BatchTransformer::create(squares_of(options()));
  const auto batch = images_batch(good_rows(4));
  const auto squares = transforming->transform(batch)->rows;
  for (const std::optional<std::string>& key : {std::optional<std::string>(), std::optional<std::string>("")}) {
    arrow::StringBuilder builder;
    EXPECT_TRUE((builder.Append("a") & builder.Append("b")).ok());
    EXPECT_TRUE((key ? builder.Append(*key) : builder.AppendNull()).ok());
    EXPECT_TRUE(builder.Append("d").ok());
    const std::shared_ptr<arrow::Array> keys = *builder.Finish();
    const auto with_keys = [&](const auto& rows) { return *rows->SetColumn(0, arrow::field("key", arrow::utf8()), keys); };
    for (const Status& status : {encoding->encode(with_keys(batch)).status(), transforming->transform(with_keys(batch)).status(),
                                 encoding->encode(with_keys(squares)).status()}) {
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("neither null nor empty: it decides the row's draws (column, row of the batch): key 2"));
    }
    EXPECT_EQ(encoding->encode(with_keys(batch)->Slice(0, 2))->rows->num_rows(), 2);
  }
}

TEST_F(RecordBatches, options_that_no_batch_can_follow_are_refused) {
  ProcessOptions job = options();
  job.dialect = LatentsDialect::kMosaicMl;
  EXPECT_THAT(BatchEncoder::open(stores_, job).status().message(), HasSubstr("no record batches; use another one: mosaicml"));
  job = options();
  job.model = folder_.path("nothing");
  EXPECT_EQ(BatchEncoder::open(stores_, job).status().code(), StatusCode::kNotFound);
  job = options();
  job.transform.resolution = 0;
  EXPECT_EQ(BatchEncoder::open(stores_, job).status().code(), StatusCode::kInvalidArgument);
  BatchTransformOptions squares = squares_of(options());
  squares.keep_columns = {"pixels_32"};
  EXPECT_EQ(BatchTransformer::create(squares).status().code(), StatusCode::kInvalidArgument);
  squares = squares_of(options());
  squares.keep_columns = {"licence"};
  EXPECT_EQ((*BatchTransformer::create(squares))->transform(images_batch(good_rows(1))).status().code(), StatusCode::kNotFound);
}

TEST_F(RecordBatches, threads_side_by_side_get_the_bits_of_one) {
  const auto encoding = encoder(options());
  const auto batch = images_batch(good_rows(4));
  const RecordsOut want = *encoding->encode(batch);
  std::vector<RecordsOut> got(3);
  {
    std::vector<std::jthread> threads;
    for (RecordsOut& out : got) {
      threads.emplace_back([&] { out = *encoding->encode(batch); });
    }
  }
  for (const RecordsOut& out : got) {
    expect_same_rows(*out.rows, *want.rows);
  }
}

TEST_F(RecordBatches, the_callers_number_of_threads_is_put_back) {
  at::set_num_threads(3);
  ProcessOptions job = options();
  job.encoder_threads = 2;
  ASSERT_TRUE(encoder(job)->encode(images_batch(good_rows(1))).is_ok());
  EXPECT_EQ(at::get_num_threads(), 3);
  at::set_num_threads(1);
}

}  // namespace
}  // namespace darkroom
