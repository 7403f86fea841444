#pragma once

#include <arrow/api.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"
#include "darkroom/tables/shard_writer.h"
#include "darkroom/tables/tensor_column.h"
#include "darkroom/tensor/safetensors.h"
#include "darkroom/train/train_loop.h"
#include "support/temporary_folder.h"

namespace darkroom {

/// A run folder as `darkroom train` leaves it, of a network of a few thousand parameters, and the dataset with its job's
/// summary: what the report reads is written by those who write it.
class TrainedRun {
 public:
  static constexpr int64_t kRows = 40;
  static constexpr int64_t kRowsIn = 43;

  /// Trains `max_steps` steps of six pictures into folder/NAME; goes on where the run is there.
  void train(const std::string& name, int64_t max_steps, double lr = 1e-2, int64_t batch = 6) {
    write_inputs();
    TrainOptions options;
    options.output = folder_.path(name);
    Recipe& recipe = options.recipe;
    recipe.model.path = folder_.path("model");
    recipe.data.path = folder_.path("latents");
    recipe.data.resolution = 16;
    recipe.objective.prediction = "v_prediction";
    recipe.batch = {.global = batch, .micro = 4};
    recipe.optimizer.lr = lr;
    recipe.schedule = {.kind = "constant", .max_steps = max_steps, .warmup_steps = 1};
    recipe.samples.every_steps = 0;
    recipe.runtime.lanes = 2;
    const auto summary = run_training(options, {});
    ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
    parameters_ = summary->parameters;
  }

  std::string path(const std::string& name) const { return folder_.path(name); }
  std::string read(const std::string& name) const {
    const auto text = read_file(local_files(), folder_.path(name));
    EXPECT_TRUE(text.is_ok()) << text.status().to_string();
    return text.is_ok() ? *text : "";
  }
  void write(const std::string& name, const std::string& text) const {
    ASSERT_TRUE(write_file_atomic(local_files(), folder_.path(name), text).is_ok());
  }
  int64_t parameters() const { return parameters_; }

 private:
  void write_inputs() {
    if (local_files().exists(folder_.path("model")).value()) {
      return;
    }
    UNet2DConditionModel unet(*UNetConfig::from_json({{"sample_size", 2},
                                                      {"block_out_channels", {8, 8}},
                                                      {"layers_per_block", 1},
                                                      {"down_block_types", {"CrossAttnDownBlock2D", "DownBlock2D"}},
                                                      {"up_block_types", {"UpBlock2D", "CrossAttnUpBlock2D"}},
                                                      {"attention_head_dim", 2},
                                                      {"cross_attention_dim", kWidth},
                                                      {"norm_num_groups", 4}}));
    initialize_parameters(unet, 1);
    ASSERT_TRUE(save_unet(local_files(), unet, folder_.path("model/unet")).is_ok());
    ASSERT_TRUE(save_model_index(local_files(), folder_.path("model"), find_preset("tiny")->scheduler).is_ok());
    write_latents();
  }
  static std::shared_ptr<arrow::Array> texts(const std::string& prefix) {
    arrow::StringBuilder builder;
    for (int64_t row = 0; row < kRows; ++row) {
      EXPECT_TRUE(builder.Append(prefix + std::to_string(row)).ok());
    }
    return *builder.Finish();
  }
  static std::shared_ptr<arrow::Array> noise(const std::vector<int64_t>& shape) {
    std::vector<int64_t> sizes = {kRows};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    torch::manual_seed(1);
    const auto values = torch::randn(sizes);
    return *make_tensor_column(TensorElement::kFloat32, shape,
                               {static_cast<const std::byte*>(values.data_ptr()), static_cast<size_t>(values.nbytes())});
  }
  void write_latents() {
    const auto latents = noise({4, 2, 2});
    const auto states = noise({77, kWidth});
    const auto schema =
        arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()),
                       arrow::field("image_latents_16", latents->type()), arrow::field("caption_embeddings", states->type())});
    auto writer = ShardWriter::open(local_files(), folder_.path("latents"), "part-000000.parquet", schema);
    ASSERT_TRUE(writer.is_ok()) << writer.status().to_string();
    ASSERT_TRUE((*writer)->write(*arrow::RecordBatch::Make(schema, kRows, {texts("key-"), texts("picture "), latents, states})).is_ok());
    ASSERT_TRUE((*writer)->finish({}).is_ok());
    ASSERT_TRUE(write_safetensors(local_files(), folder_.path("latents/_empty_caption.safetensors"),
                                  {{"caption_embeddings", torch::zeros({77, kWidth})}})
                    .is_ok());
    const nlohmann::json summary = {{"version", 2},
                                    {"job", "j"},
                                    {"rows_in", kRowsIn},
                                    {"rows_out", kRows},
                                    {"rows_by_error", {{"decode_failed", kRowsIn - kRows}}},
                                    {"parts", nlohmann::json::array()}};
    ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("latents/_summary.json"), summary.dump()).is_ok());
  }

  static constexpr int64_t kWidth = 8;

  TemporaryFolder folder_;
  int64_t parameters_ = 0;
};

}  // namespace darkroom
