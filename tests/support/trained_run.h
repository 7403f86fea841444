#pragma once

#include <arrow/api.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "darkroom/files/paths.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"
#include "darkroom/tables/tensor_column.h"
#include "darkroom/tensor/safetensors.h"
#include "darkroom/train/train_loop.h"
#include "support/put_shard.h"
#include "support/temporary_folder.h"

namespace darkroom {

// What tests of training train: a network of a few thousand parameters on latents of 16 px.

inline constexpr int64_t kSmallTextWidth = 8;

/// Writes the model folder.
inline void write_small_model(const std::string& folder) {
  UNet2DConditionModel unet(*UNetConfig::from_json({{"sample_size", 2},
                                                    {"block_out_channels", {8, 8}},
                                                    {"layers_per_block", 1},
                                                    {"down_block_types", {"CrossAttnDownBlock2D", "DownBlock2D"}},
                                                    {"up_block_types", {"UpBlock2D", "CrossAttnUpBlock2D"}},
                                                    {"attention_head_dim", 2},
                                                    {"cross_attention_dim", kSmallTextWidth},
                                                    {"norm_num_groups", 4}}));
  initialize_parameters(unet, 1);
  ASSERT_TRUE(save_unet(local_files(), unet, folder + "/unet").is_ok());
  ASSERT_TRUE(save_model_index(local_files(), folder, find_preset("tiny")->scheduler).is_ok());
}

inline std::shared_ptr<arrow::Array> noise_column(int64_t num_rows, const std::vector<int64_t>& shape, uint64_t seed) {
  std::vector<int64_t> sizes = {num_rows};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  torch::manual_seed(seed);
  const auto values = torch::randn(sizes);
  const auto column = make_tensor_column(TensorElement::kFloat32, shape,
                                         {static_cast<const std::byte*>(values.data_ptr()), static_cast<size_t>(values.nbytes())});
  EXPECT_TRUE(column.is_ok()) << column.status().to_string();
  return *column;
}

/// "PREFIX0", "PREFIX1", ...
inline std::shared_ptr<arrow::Array> numbered_texts(const std::string& prefix, int64_t num_rows) {
  arrow::StringBuilder builder;
  for (int64_t row = 0; row < num_rows; ++row) {
    EXPECT_TRUE(builder.Append(prefix + std::to_string(row)).ok());
  }
  return *builder.Finish();
}

/// One part of a latents dataset; each seed and key prefix another.
inline void write_latents_part(const std::string& path, int64_t num_rows, uint64_t seed, const std::string& key_prefix = "key-",
                               const KeyValues& footer = {}) {
  const auto latents = noise_column(num_rows, {4, 2, 2}, seed);
  const auto states = noise_column(num_rows, {77, kSmallTextWidth}, seed + 1);
  const auto schema =
      arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()),
                     arrow::field("image_latents_16", latents->type()), arrow::field("caption_embeddings", states->type())});
  const auto rows = arrow::RecordBatch::Make(schema, num_rows,
                                             {numbered_texts(key_prefix, num_rows), numbered_texts("picture ", num_rows), latents, states});
  const auto written = put_shard(local_files(), parent_folder(path), file_name(path), *rows, footer);
  ASSERT_TRUE(written.is_ok()) << written.status().to_string();
}

/// The states of the empty caption beside the parts of a dataset.
inline void write_empty_states(const std::string& folder) {
  const auto written = write_safetensors(local_files(), folder + "/_empty_caption.safetensors",
                                         {{"caption_embeddings", torch::zeros({77, kSmallTextWidth})}});
  ASSERT_TRUE(written.is_ok()) << written.to_string();
}

/// A run on them of six pictures per step, with a checkpoint every fourth.
inline TrainOptions small_training(const std::string& model, const std::string& latents, const std::string& output,
                                   int64_t max_steps = 12) {
  TrainOptions options;
  options.output = output;
  Recipe& recipe = options.recipe;
  recipe.model.path = model;
  recipe.data.path = latents;
  recipe.data.resolution = 16;
  recipe.objective.prediction = "v_prediction";
  recipe.batch = {.global = 6, .micro = 4};
  recipe.optimizer.lr = 1e-2;
  recipe.schedule = {.kind = "cosine", .max_steps = max_steps, .warmup_steps = 3};
  recipe.checkpoint = {.every_steps = 4, .keep_last = 2};
  recipe.samples.every_steps = 0;
  recipe.runtime.lanes = 2;
  return options;
}

/// A run folder as `darkroom train` leaves it, and the dataset with its job's summary: what the report reads is written by those who write
/// it.
class TrainedRun {
 public:
  static constexpr int64_t kRows = 40;
  static constexpr int64_t kRowsIn = 43;

  /// Trains `max_steps` steps of six pictures into folder/NAME; goes on where the run is there.
  void train(const std::string& name, int64_t max_steps, double lr = 1e-2, int64_t batch = 6) {
    write_inputs();
    TrainOptions options = small_training(folder_.path("model"), folder_.path("latents"), folder_.path(name), max_steps);
    Recipe& recipe = options.recipe;
    recipe.batch.global = batch;
    recipe.optimizer.lr = lr;
    recipe.schedule.kind = "constant";
    recipe.schedule.warmup_steps = 1;
    recipe.checkpoint = {};
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
    write_small_model(folder_.path("model"));
    write_latents_part(folder_.path("latents/part-000000.parquet"), kRows, 1);
    write_empty_states(folder_.path("latents"));
    const nlohmann::json summary = {{"version", 2},
                                    {"job", "j"},
                                    {"rows_in", kRowsIn},
                                    {"rows_out", kRows},
                                    {"rows_by_error", {{"decode_failed", kRowsIn - kRows}}},
                                    {"parts", nlohmann::json::array()}};
    write("latents/_summary.json", summary.dump());
  }

  TemporaryFolder folder_;
  int64_t parameters_ = 0;
};

}  // namespace darkroom
