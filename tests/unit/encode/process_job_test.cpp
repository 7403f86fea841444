#include "darkroom/encode/process_job.h"

#include <arrow/api.h>
#include <gtest/gtest.h>

#include "darkroom/image/probe.h"
#include "darkroom/tables/tensor_column.h"
#include "darkroom/tensor/safetensors.h"
#include "process_fixture.h"
#include "support/put_shard.h"

namespace darkroom {
namespace {

std::string tensor_bytes(const arrow::Table& table, const std::string& name, const std::vector<int64_t>& shape, int64_t row) {
  auto column = TensorColumn::open(*table.schema()->GetFieldByName(name), table.GetColumnByName(name)->chunk(0), shape);
  EXPECT_TRUE(column.is_ok()) << column.status().to_string();
  const auto bytes = column->bytes(row);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(ProcessJob, stores_what_the_row_encoder_computes) {
  const auto rows = good_rows(13);
  write_images("part-000000.parquet", rows);
  ProcessOptions job = options();
  job.text = TextKind::kBoth;
  const StageSummary summary = process(job);
  EXPECT_EQ(summary.rows_in, 13);
  EXPECT_EQ(summary.rows_out, 13);
  EXPECT_EQ(summary.num_parts, 2);

  const auto models = *load_frozen_models(local_files(), models_->path(), TokenizerDialect::kHuggingFace);
  RowEncoderOptions encoder_options;
  encoder_options.transform.resolution = kProcessSide;
  const auto encoder = *RowEncoder::create(models, encoder_options);
  const auto table = read_table(part(1));
  ASSERT_EQ(table->num_rows(), 3);
  at::set_num_threads(1);
  const auto decoder = decoder_in_process();
  for (int64_t i = 0; i < 3; ++i) {
    RowResult<PreparedRow> prepared = *encoder->prepare(rows[static_cast<size_t>(10 + i)], *decoder);
    ASSERT_TRUE(prepared.is_ok());
    const EncodedRows encoded = encoder->encode({&prepared.value(), 1});
    EXPECT_EQ(encoded.latents_nchw.sizes(), torch::IntArrayRef({1, 4, 4, 4}));
    EXPECT_EQ(tensor_bytes(*table, "image_latents_32", {4, 4, 4}, i),
              std::string(static_cast<const char*>(encoded.latents_nchw.const_data_ptr()), encoded.latents_nchw.nbytes()));
    EXPECT_EQ(tensor_bytes(*table, "caption_embeddings", {77, 128}, i),
              std::string(static_cast<const char*>(encoded.states_btc.const_data_ptr()), encoded.states_btc.nbytes()));
  }
  EXPECT_EQ(table->schema()->GetFieldByName("caption_ids")->type()->id(), arrow::Type::FIXED_SIZE_LIST);
  const auto empty = SafetensorsFile::open(folder_.path("latents/_empty_caption.safetensors"));
  ASSERT_TRUE(empty.is_ok());
  EXPECT_TRUE(torch::equal(*(*empty)->tensor("caption_embeddings"), encoder->empty_caption_states()));
  const TableFooter footer = *read_footer(local_files(), part(1));
  const auto latents = nlohmann::json::parse(*footer.find("darkroom.latents"));
  EXPECT_EQ(latents["vae_fingerprint"], models->vae_fingerprint);
  EXPECT_EQ(latents["scaling_factor"], 0.18215);
}

TEST_F(ProcessJob, counts_bad_rows_under_their_codes_and_keeps_the_others) {
  auto rows = good_rows(9);
  rows[1].image.clear();
  rows[3].image = "no picture";
  rows[4].caption = " \t";
  rows[6].image.resize(rows[6].image.size() / 2);
  write_images("part-000000.parquet", rows);
  testing::internal::CaptureStderr();
  const StageSummary summary = process(options());
  EXPECT_NE(testing::internal::GetCapturedStderr().find("process: a row failed, not_an_image: no known magic bytes\n"), std::string::npos);
  EXPECT_EQ(summary.rows_by_error, (RowsByError{{"null_image", 1}, {"not_an_image", 1}, {"empty_caption", 1}, {"truncated", 1}}));
  EXPECT_EQ(summary.rows_in, summary.rows_out + summary.rows_failed());
  EXPECT_EQ(texts(*read_table(part(0)), "key"), (std::vector<std::string>{row_key(0), row_key(2), row_key(5), row_key(7), row_key(8)}));
}

TEST_F(ProcessJob, counts_captions_that_open_clip_would_clean_otherwise) {
  auto rows = good_rows(9);
  rows[2].caption = "a letter of Unicode 15: \U0001E4D0";
  rows[5].caption = rows[2].caption;
  write_images("part-000000.parquet", rows);
  EXPECT_EQ(process(options()).num_unported_captions, 0);  // The dialect hf promises every caption.
  ProcessOptions open_clip = options("open_clip");
  open_clip.tokenizer_dialect = TokenizerDialect::kOpenClip;
  const StageSummary summary = process(open_clip);
  EXPECT_EQ(summary.num_unported_captions, 2);
  EXPECT_EQ(summary.rows_out, 9);
  EXPECT_EQ(process(open_clip).num_unported_captions, 2);  // Read back from the shards.
}

TEST_F(ProcessJob, reads_structs_of_bytes_and_numbers_rows_without_keys) {
  auto bytes = std::make_shared<arrow::BinaryBuilder>();
  arrow::StructBuilder images(arrow::struct_({arrow::field("bytes", arrow::binary())}), arrow::default_memory_pool(), {bytes});
  arrow::StringBuilder captions;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(images.Append().ok());
    ASSERT_TRUE(bytes->Append(numbered_png(i)).ok());
    ASSERT_TRUE(captions.Append("caption").ok());
  }
  const auto schema = arrow::schema({arrow::field("image", images.type()), arrow::field("text", arrow::utf8())});
  const auto rows = arrow::RecordBatch::Make(schema, 3, {*images.Finish(), *captions.Finish()});
  ASSERT_TRUE(put_shard(local_files(), folder_.path("images"), "train.parquet", *rows).is_ok());
  process(options());
  EXPECT_EQ(texts(*read_table(part(0)), "key"), (std::vector<std::string>{row_key(0), row_key(1), row_key(2)}));
}

TEST_F(ProcessJob, bytes_do_not_depend_on_workers_or_memory) {
  for (int file = 0; file < 3; ++file) {
    write_images(PartName{.item = file}.text(), good_rows(17));
  }
  ProcessOptions job = options("one");
  job.num_readers = job.num_transformers = job.num_encoders = 1;
  process(job);
  for (const int num_workers : {2, 4}) {
    job.output = folder_.path(std::to_string(num_workers));
    job.num_readers = job.num_transformers = job.num_encoders = num_workers;
    job.memory_bytes = 1'000'000 / num_workers;
    process(job);
    EXPECT_EQ(part_bytes(folder_.path("one")), part_bytes(job.output));
  }
}

TEST_F(ProcessJob, a_rows_values_do_not_depend_on_the_batch_size) {
  write_images("part-000000.parquet", good_rows(9));
  std::vector<std::string> values;
  for (const int batch_size : {1, 7, 64}) {
    ProcessOptions job = options(std::to_string(batch_size));
    job.batch_size = batch_size;
    process(job);
    std::string all;
    const auto table = read_table(part(0, std::to_string(batch_size)));
    for (int64_t row = 0; row < table->num_rows(); ++row) {
      all += tensor_bytes(*table, "image_latents_32", {4, 4, 4}, row) + tensor_bytes(*table, "caption_embeddings", {77, 128}, row);
    }
    values.push_back(all);
  }
  EXPECT_EQ(values[0], values[1]);
  EXPECT_EQ(values[0], values[2]);
}

TEST_F(ProcessJob, goes_on_after_the_parts_that_are_there) {
  write_images("part-000000.parquet", good_rows(25));
  ProcessOptions job = options();
  job.selection.limit = 12;
  EXPECT_EQ(process(job).rows_in, 12);
  job.selection.limit = -1;
  const StageSummary summary = process(job);
  EXPECT_EQ(summary.rows_in, 25);
  EXPECT_EQ(summary.rows_this_run, 15);
  job.output = folder_.path("clean");
  process(job);
  EXPECT_EQ(part_bytes(folder_.path("latents")), part_bytes(folder_.path("clean")));
}

TEST_F(ProcessJob, another_batch_size_model_or_resolution_is_another_job) {
  write_images("part-000000.parquet", good_rows(3));
  process(options());
  ProcessOptions job = options();
  job.batch_size = 5;
  EXPECT_NE(failure(job).message().find("batch_size (had 4, asked for 5)"), std::string::npos) << failure(job).message();
  job = options();
  job.transform.resolution = 40;
  EXPECT_NE(failure(job).message().find("resolution (had 32, asked for 40)"), std::string::npos);
  const TinyModelFolder other(2);
  job = options();
  job.model = other.path();
  const Status status = failure(job);
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("vae (had"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("text_encoder (had"), std::string::npos);
}

TEST_F(ProcessJob, moments_and_tokens_are_stored_on_request) {
  write_images("part-000000.parquet", good_rows(2));
  ProcessOptions job = options();
  job.latents = LatentsKind::kMoments;
  job.text = TextKind::kTokens;
  job.dtype = torch::kFloat32;
  process(job);
  const auto table = read_table(part(0));
  EXPECT_EQ(tensor_bytes(*table, "image_moments_32", {8, 4, 4}, 0).size(), 8u * 4 * 4 * 4);
  EXPECT_EQ(table->GetColumnByName("caption_embeddings"), nullptr);
  EXPECT_NE(table->GetColumnByName("caption_ids"), nullptr);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("latents/_empty_caption.safetensors")));
}

TEST_F(ProcessJob, nan_latents_are_counted_and_dropped) {
  TinyModelFolder broken;
  {
    AutoencoderKL vae = *load_vae(broken.path("vae"));
    const torch::NoGradGuard no_gradients;
    vae->parameters().front().fill_(std::numeric_limits<float>::quiet_NaN());
    std::filesystem::remove_all(broken.path("vae"));
    ASSERT_TRUE(save_vae(local_files(), vae, broken.path("vae")).is_ok());
  }
  write_images("part-000000.parquet", good_rows(3));
  ProcessOptions job = options();
  job.model = broken.path();
  const StageSummary summary = process(job);
  EXPECT_EQ(summary.rows_by_error, (RowsByError{{"nan_latents", 3}}));
  EXPECT_EQ(read_table(part(0))->num_rows(), 0);
}

TEST_F(ProcessJob, paints_a_sheet_of_samples) {
  write_images("part-000000.parquet", good_rows(12));
  ProcessOptions job = options();
  job.num_visualized = 11;
  job.visualize_path = folder_.path("sheet.png");
  process(job);
  const std::string png = read_bytes(job.visualize_path);
  const auto header = probe_image(std::as_bytes(std::span(png)), {});
  ASSERT_TRUE(header.is_ok());
  EXPECT_GT(header->height, 11 * 100);
}

TEST_F(ProcessJob, damaged_and_missing_inputs_are_named) {
  EXPECT_EQ(failure(options()).code(), StatusCode::kNotFound);
  write_images("part-000000.parquet", good_rows(3));
  const std::string path = folder_.path("images/part-000000.parquet");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 20);
  const Status status = failure(options());
  EXPECT_EQ(status.code(), StatusCode::kCorruptData);
  EXPECT_NE(status.message().find("part-000000.parquet"), std::string::npos) << status.message();
}

TEST_F(ProcessJob, bad_options_are_refused) {
  write_images("part-000000.parquet", good_rows(1));
  ProcessOptions job = options();
  job.transform.resolution = 33;
  EXPECT_EQ(failure(job).code(), StatusCode::kInvalidArgument);
  job = options();
  job.batch_size = -1;
  EXPECT_EQ(failure(job).code(), StatusCode::kInvalidArgument);
  job = options();
  job.num_visualized = 2;
  EXPECT_EQ(failure(job).code(), StatusCode::kInvalidArgument);
  job = options();
  job.model = folder_.path("nowhere");
  EXPECT_EQ(failure(job).code(), StatusCode::kNotFound);
}

TEST(DefaultBatchSize, holds_about_as_many_pixels_as_four_pictures_of_512) {
  EXPECT_EQ(default_batch_size(512), 4);
  EXPECT_EQ(default_batch_size(256), 16);
  EXPECT_EQ(default_batch_size(64), 64);
  EXPECT_EQ(default_batch_size(4096), 1);
  const torch::Device gpu(torch::kCUDA, 0);
  EXPECT_EQ(default_batch_size(512, gpu), 40);
  EXPECT_EQ(default_batch_size(256, gpu), 120);
  EXPECT_EQ(default_batch_size(8192, gpu), 1);
}

}  // namespace
}  // namespace darkroom
