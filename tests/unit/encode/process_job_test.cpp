#include "darkroom/encode/process_job.h"

#include <arrow/api.h>
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <new>
#include <stop_token>

#include "darkroom/batches/latents_info.h"
#include "darkroom/image/probe.h"
#include "darkroom/tables/tensor_column.h"
#include "darkroom/tensor/safetensors.h"
#include "encode/empty_caption.h"
#include "encode/tried_encoder.h"
#include "process_fixture.h"
#include "support/fake_s3_stores.h"
#include "support/put_shard.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

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

TEST_F(ProcessJob, another_model_is_another_job) {
  write_images("part-000000.parquet", good_rows(3));
  process(options());
  const TinyModelFolder other(2);
  ProcessOptions job = options();
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

TEST_F(ProcessJob, bad_options_are_refused) {
  write_images("part-000000.parquet", good_rows(1));
  ProcessOptions job = options();
  job.transform.resolution = 33;
  EXPECT_EQ(failure(job).code(), StatusCode::kInvalidArgument);
  job = options();
  job.batch_size = -1;
  EXPECT_EQ(failure(job).code(), StatusCode::kInvalidArgument);
  job = options();
  job.model = folder_.path("nowhere");
  EXPECT_EQ(failure(job).code(), StatusCode::kNotFound);
}

TEST_F(ProcessJob, a_model_on_an_object_store_makes_the_bytes_of_a_local_one) {
  write_images("part-000000.parquet", good_rows(7));
  process(options());
  FakeS3Stores places;
  const auto put = [&](const std::string& path, const std::string& name) {
    const Location place = places.place(name);
    return place.store->replace_small(place.path, read_bytes(path));
  };
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(options().model, std::filesystem::directory_options::follow_directory_symlink)) {
    if (file.is_regular_file()) {
      const std::string name = file.path().lexically_relative(options().model);
      ASSERT_TRUE(put(file.path(), "model/" + name).is_ok()) << name;
    }
  }
  ASSERT_TRUE(put(folder_.path("images/part-000000.parquet"), "model/unet/config.json").is_ok());
  std::atomic<int> num_in_vain = 0;
  places.fake.before = [&](const FakeS3::Call& call) { num_in_vain += call.key.starts_with("model/unet/") ? 1 : 0; };
  ProcessOptions job = options("of-remote-model");
  job.model = "s3://pictures/model";
  const auto summary = run_process(places.set, job, {});
  ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
  EXPECT_EQ(part_bytes(job.output), part_bytes(folder_.path("latents")));
  EXPECT_EQ(num_in_vain, 0) << "the U-Net was fetched, too";
  const auto again = run_process(places.set, job, {});  // The model's place does not belong to the job.
  job.model = options().model;
  ASSERT_TRUE(again.is_ok()) << again.status().to_string();
  EXPECT_EQ(run_process(places.set, job, {})->rows_this_run, 0);

  ProcessOptions missing = options("missing");
  missing.model = "s3://pictures/no-model";
  const Status failed = run_process(places.set, missing, {}).status();
  EXPECT_EQ(failed.code(), StatusCode::kNotFound);
  EXPECT_THAT(failed.message(), HasSubstr("s3://pictures/no-model"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("missing")));
}

TEST_F(ProcessJob, a_stop_is_obeyed_between_the_rows_of_a_batch) {
  const auto models = *load_frozen_models(local_files(), models_->path(), TokenizerDialect::kHuggingFace);
  RowEncoderOptions encoder_options;
  encoder_options.transform.resolution = kProcessSide;
  const auto encoder = *RowEncoder::create(models, encoder_options);
  const auto decoder = decoder_in_process();
  std::vector<PreparedRow> rows;
  for (const ImageRow& row : good_rows(3)) {
    rows.push_back(encoder->prepare(row, *decoder)->value());
  }
  std::stop_source stop;
  EXPECT_EQ(encoder->encode(rows, stop.get_token()).is_finite.size(), 3u);
  stop.request_stop();
  EXPECT_TRUE(encoder->encode(rows, stop.get_token()).is_finite.empty());
}

/// The empty caption of two text encoders in one folder.
class EmptyCaptions : public ProcessJob {
 protected:
  std::shared_ptr<const RowEncoder> encoder_of(const TinyModelFolder& model) const {
    RowEncoderOptions options;
    options.transform.resolution = kProcessSide;
    const auto models = load_frozen_models(local_files(), model.path(), TokenizerDialect::kHuggingFace).value();
    return RowEncoder::create(models, options).value();
  }
  Result<std::string> publish(const std::shared_ptr<const RowEncoder>& encoder) const {
    return publish_empty_caption(*encoder, 1, folder());
  }
  Location folder() const { return {.store = &local_store(), .path = folder_.path("latents")}; }
  EmptyCaption there() const { return read_empty_caption_file(folder()).value(); }
  /// As versions before wrote the file.
  void put_without_its_maker(const torch::Tensor& states_tw) const {
    const std::string path = folder_.path("latents/_empty_caption.safetensors");
    std::filesystem::remove(path);
    ASSERT_TRUE(write_safetensors(local_files(), path, {{"caption_embeddings", states_tw}}).is_ok());
  }
  void put_part() const { ASSERT_TRUE(write_file_atomic(local_files(), part(0), "rows").is_ok()); }

  const TinyModelFolder other_model_{2};
  const std::shared_ptr<const RowEncoder> first_ = encoder_of(*models_);
  const std::shared_ptr<const RowEncoder> second_ = encoder_of(other_model_);
};

TEST_F(EmptyCaptions, of_another_job_give_way_where_no_part_of_it_is_left) {
  const std::string first = publish(first_).value();
  EXPECT_EQ(there().text_encoder_fingerprint, first_->models().text_encoder_fingerprint);
  EXPECT_EQ(publish(first_).value(), first);
  const std::string second = publish(second_).value();
  EXPECT_NE(second, first);
  EXPECT_EQ(there().sha256, second);
  EXPECT_EQ(there().text_encoder_fingerprint, second_->models().text_encoder_fingerprint);
  put_without_its_maker(first_->empty_caption_states());
  EXPECT_EQ(publish(second_).value(), second);
  EXPECT_EQ(there().sha256, second);
}

TEST_F(EmptyCaptions, of_another_text_encoder_beside_parts_are_refused) {
  ASSERT_TRUE(publish(first_).is_ok());
  put_part();
  const Status refused = publish(second_).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("latents/_empty_caption.safetensors"));
  EXPECT_EQ(there().text_encoder_fingerprint, first_->models().text_encoder_fingerprint);
  EXPECT_TRUE(publish(first_).is_ok());
}

TEST_F(EmptyCaptions, of_another_kind_of_processor_stay_and_are_what_parts_name) {
  const std::string here = publish(first_).value();
  const torch::Tensor elsewhere = first_->empty_caption_states() + 0.125;
  const std::string path = folder_.path("latents/_empty_caption.safetensors");
  std::filesystem::remove(path);
  ASSERT_TRUE(write_safetensors(local_files(), path, {{"caption_embeddings", elsewhere}},
                                {{kTextEncoderKey, first_->models().text_encoder_fingerprint}})
                  .is_ok());
  const std::string there_too = publish(first_).value();
  EXPECT_NE(there_too, here);
  EXPECT_EQ(there_too, there().sha256);
}

TEST_F(EmptyCaptions, whose_maker_is_not_known_are_told_beside_parts) {
  const std::string here = publish(first_).value();
  put_part();
  put_without_its_maker(first_->empty_caption_states() + 0.125);
  testing::internal::CaptureStderr();
  EXPECT_EQ(publish(first_).value(), here);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("latents/_empty_caption.safetensors"));
}

TEST_F(ProcessJob, networks_that_throw_at_the_empty_caption_are_an_error) {
  const auto models = std::make_shared<FrozenModels>();
  models->vae = load_vae(models_->path("vae")).value();
  models->tokenizer = ClipTokenizer::load(local_files(), models_->path("tokenizer"), TokenizerDialect::kHuggingFace).value();
  ClipTextConfig config = find_preset("tiny")->text_encoder;
  config.vocab_size = 10;  // Which load_frozen_models would refuse.
  models->text_encoder = ClipTextModel(config);
  initialize_parameters(models->text_encoder, 1);
  RowEncoderOptions encoder_options;
  encoder_options.transform.resolution = kProcessSide;
  const auto encoder = RowEncoder::create(models, encoder_options).value();
  const Location output{.store = &local_store(), .path = folder_.path("latents")};
  const Status status = publish_empty_caption(*encoder, 1, output).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("empty caption"));
}

TEST(RunApart, memory_that_is_used_up_is_told_as_such) {
  const Status status = run_apart(1, "trying the encoder", [] { throw std::bad_alloc(); });
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("trying the encoder: out of memory; what was committed is safe"));
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
