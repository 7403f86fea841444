#include "darkroom/train/train_loop.h"

#include <arrow/api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "darkroom/core/sha256.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/image/png.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/tables/tensor_forms.h"
#include "darkroom/tensor/safetensors.h"
#include "darkroom/train/checkpoint.h"
#include "darkroom/train/training_plan.h"
#include "support/error_bound.h"
#include "support/put_shard.h"
#include "support/rank_threads.h"
#include "support/simulated_rank.h"
#include "support/source_path.h"
#include "support/temporary_folder.h"
#include "support/trained_run.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

constexpr int64_t kRows = 40;

nlohmann::json small_vae_config() {
  return {{"sample_size", 16},
          {"block_out_channels", {4, 4}},
          {"layers_per_block", 1},
          {"norm_num_groups", 2},
          {"down_block_types", {"DownEncoderBlock2D", "DownEncoderBlock2D"}},
          {"up_block_types", {"UpDecoderBlock2D", "UpDecoderBlock2D"}}};
}

/// A model folder with the small network and what paints with it: a VAE of the latents' factor, a text encoder of their states' width.
void write_painting_model(const std::string& folder) {
  write_small_model(folder);
  AutoencoderKL vae(*VaeConfig::from_json({{"sample_size", 16},
                                           {"block_out_channels", {4, 4, 4, 4}},
                                           {"layers_per_block", 1},
                                           {"norm_num_groups", 2},
                                           {"down_block_types", std::vector<std::string>(4, "DownEncoderBlock2D")},
                                           {"up_block_types", std::vector<std::string>(4, "UpDecoderBlock2D")}}));
  ClipTextModel text_encoder(
      ClipTextConfig{.hidden_size = kSmallTextWidth, .intermediate_size = 8, .num_hidden_layers = 1, .num_attention_heads = 2});
  initialize_parameters(vae, 1);
  initialize_parameters(text_encoder, 1);
  ASSERT_TRUE(save_vae(local_files(), vae, folder + "/vae").is_ok());
  ASSERT_TRUE(save_text_encoder(local_files(), text_encoder, folder + "/text_encoder").is_ok());
  std::filesystem::create_directory_symlink(std::filesystem::absolute(source_path("models/tiny/tokenizer")), folder + "/tokenizer");
}

/// A model folder with a small network, and datasets of 16 px for it.
class TrainLoopTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = new TemporaryFolder();
    write_small_model(shared_->path("model"));
    AutoencoderKL vae(*VaeConfig::from_json(small_vae_config()));
    initialize_parameters(vae, 1);
    ASSERT_TRUE(save_vae(local_files(), vae, shared_->path("model/vae")).is_ok());
    write_latents_part(shared_->path("latents/part-000000.parquet"), kRows, 1);
    write_empty_states(shared_->path("latents"));
    write_images(shared_->path("images"));
  }
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }
  /// `marked` is put before the bytes of row 7.
  static void write_images(const std::string& folder, const std::string& marked = "") {
    arrow::BinaryBuilder images;
    for (int64_t row = 0; row < kRows; ++row) {
      Image image = Image::filled(16, 18, 3, static_cast<uint8_t>(row * 5));
      image.pixels[static_cast<size_t>(row)] = 255;
      ASSERT_TRUE(images.Append((row == 7 ? marked : "") + encode_png(image)).ok());
    }
    const auto schema =
        arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()), arrow::field("image", arrow::binary())});
    const auto rows =
        arrow::RecordBatch::Make(schema, kRows, {numbered_texts("key-", kRows), numbered_texts("picture ", kRows), *images.Finish()});
    const auto written = put_shard(local_files(), folder, "part-000000.parquet", *rows);
    ASSERT_TRUE(written.is_ok()) << written.status().to_string();
  }

  TrainOptions options(const std::string& output, int64_t max_steps = 12) const {
    return small_training(shared_->path("model"), shared_->path("latents"), folder_.path(output), max_steps);
  }
  TrainOptions autoencoder_options(const std::string& output) const {
    TrainOptions options = this->options(output);
    options.recipe.data.path.clear();
    options.recipe.data.raw_path = shared_->path("images");
    options.recipe.objective.kind = "autoencoder";
    return options;
  }
  static TrainSummary train(const TrainOptions& options) {
    const auto summary = run_training(options, {});
    EXPECT_TRUE(summary.is_ok()) << summary.status().to_string();
    return summary.is_ok() ? *summary : TrainSummary{};
  }
  static Status failure_of(const TrainOptions& options) { return run_training(options, {}).status(); }

  std::string file(const std::string& run, const std::string& name) const {
    const auto text = read_file(local_files(), folder_.path(run) + "/" + name);
    EXPECT_TRUE(text.is_ok()) << text.status().to_string();
    return text.is_ok() ? *text : "";
  }
  std::string weights_path(const std::string& run, int64_t step, const std::string& part = "unet") const {
    return folder_.path(run) + "/checkpoints/" + checkpoint_name(step) + "/" + part + "/diffusion_pytorch_model.safetensors";
  }
  /// SHA-256: what a failed comparison prints.
  std::string weights(const std::string& run, int64_t step, const std::string& part = "unet") const {
    const auto bytes = read_file(local_files(), weights_path(run, step, part));
    EXPECT_TRUE(bytes.is_ok()) << bytes.status().to_string();
    return bytes.is_ok() ? sha256_hex(*bytes) : "";
  }
  /// A bit of the weights is another one, and the record says so.
  void damage(const std::string& run, int64_t step) const {
    std::string bytes = *read_file(local_files(), weights_path(run, step));
    bytes[bytes.size() / 2] ^= 1;
    ASSERT_TRUE(write_file_atomic(local_files(), weights_path(run, step), bytes).is_ok());
  }
  std::vector<nlohmann::json> metrics(const std::string& run) const {
    std::vector<nlohmann::json> steps;
    std::istringstream lines(file(run, "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      steps.push_back(nlohmann::json::parse(line));
    }
    return steps;
  }
  std::vector<double> logged_seconds(const std::string& run) const {
    std::vector<double> seconds;
    for (const nlohmann::json& step : metrics(run)) {
      seconds.push_back(step["seconds"].get<double>());
    }
    return seconds;
  }
  std::vector<std::pair<int64_t, double>> losses(const std::string& run) const {
    std::vector<std::pair<int64_t, double>> found;
    for (const nlohmann::json& step : metrics(run)) {
      found.emplace_back(step["step"].get<int64_t>(), step["loss"].get<double>());
    }
    return found;
  }
  std::vector<int64_t> checkpoint_steps(const std::string& run) const {
    std::vector<int64_t> steps;
    const auto places = list_checkpoints(local_files(), folder_.path(run) + "/checkpoints");
    EXPECT_TRUE(places.is_ok());
    for (const auto& place : *places) {
      steps.push_back(place.step);
    }
    return steps;
  }

  static TemporaryFolder* shared_;
  TemporaryFolder folder_;
};

TemporaryFolder* TrainLoopTest::shared_ = nullptr;

TEST_F(TrainLoopTest, trains_to_the_last_step_and_writes_the_run_folder) {
  const TrainSummary summary = train(options("run"));
  EXPECT_EQ(summary.steps, 12);
  EXPECT_EQ(summary.samples, 72);
  EXPECT_EQ(summary.rows, kRows);
  EXPECT_GT(summary.parameters, 1000);
  EXPECT_GT(summary.images_per_second, 0);
  EXPECT_EQ(losses("run").size(), 12U);
  EXPECT_EQ(checkpoint_steps("run"), (std::vector<int64_t>{8, 12}));
  EXPECT_TRUE(parse_recipe(file("run", "recipe.toml"), "recipe.toml").is_ok());
  EXPECT_TRUE(DatasetIndex::from_json(file("run", "index.json")).is_ok());
  EXPECT_FALSE(file("run", "events.out.tfevents.0000000000.darkroom").empty());
}

TEST_F(TrainLoopTest, records_what_trains_where_and_for_how_long) {
  const TrainSummary summary = train(options("run", 4));
  const auto facts = nlohmann::json::parse(file("run", "run.json"));
  EXPECT_EQ(facts["format_version"], 1);
  EXPECT_EQ(facts["component"], "unet");
  EXPECT_EQ(facts["parameters"], summary.parameters);
  EXPECT_EQ(facts["step"], 4);
  const std::vector<double> logged = logged_seconds("run");
  ASSERT_EQ(logged.size(), 4U);
  EXPECT_GT(logged.front(), 0);
  EXPECT_GE(facts["seconds"].get<double>(), logged.back());  // By the same clock, and written later.
  EXPECT_EQ(facts["recipe"]["batch"]["global"], 6);
  EXPECT_EQ(facts["recipe"]["schedule"]["kind"], "cosine");
  ASSERT_EQ(facts["starts"].size(), 1U);
  EXPECT_EQ(facts["starts"][0]["step"], 0);
  EXPECT_EQ(facts["starts"][0]["device"], "cpu");
  EXPECT_GE(facts["starts"][0]["cores"].get<int64_t>(), 1);
  EXPECT_THAT(facts["starts"][0]["started"].get<std::string>(), testing::MatchesRegex("20..-..-..T..:..:..Z"));
}

TEST_F(TrainLoopTest, tells_what_its_steps_reach_where_that_is_known) {
  train(options("unknown", 2));
  for (const nlohmann::json& line : metrics("unknown")) {
    EXPECT_GT(line["peak_memory_bytes"], 0);
    EXPECT_GE(line["ms"]["device_wait"], 0);
    EXPECT_FALSE(line.contains("tflops") || line.contains("mfu"));
  }
  TrainOptions known = options("known", 3);
  known.counts_work = true;
  train(known);
  MetricsRegistry registry;
  StoreSet stores({}, system_clock(), registry);
  const double picture_flop = count_step_flop(stores, known.recipe).value() / static_cast<double>(known.recipe.batch.global);
  known.recipe.schedule.max_steps = 4;
  known.rank_tflops = 2;
  train(known);
  const std::vector<nlohmann::json> lines = metrics("known");
  ASSERT_EQ(lines.size(), 4U);
  for (const nlohmann::json& line : lines) {
    const double rate = line["images_per_second"].get<double>();
    EXPECT_TRUE(is_near(line["tflops"].get<double>(), rate * picture_flop * 1e-12, 1e-9 * line["tflops"].get<double>()));
  }
  EXPECT_EQ(lines[3]["mfu"].get<double>(), lines[3]["tflops"].get<double>() / 2);
  // The starts before were told of no peak and measured it.
  const auto starts = nlohmann::json::parse(file("known", "run.json"))["starts"];
  ASSERT_EQ(starts.size(), 2U);
  EXPECT_TRUE(starts[0]["rank_peak_is_measured"].get<bool>());
  const double measured = starts[0]["rank_peak_tflops"].get<double>();
  EXPECT_GT(measured, 0);
  EXPECT_TRUE(is_near(lines[2]["mfu"].get<double>(), lines[2]["tflops"].get<double>() / measured, 1e-9 * lines[2]["mfu"].get<double>()));
  EXPECT_FALSE(starts[1]["rank_peak_is_measured"].get<bool>());
  EXPECT_EQ(starts[1]["rank_peak_tflops"], 2);
}

// Two passes of a step are all that there are.
TEST_F(TrainLoopTest, the_peak_is_that_of_all_threads_that_compute_a_step) {
  for (const auto& [workers, threads] : {std::pair(1, 1), std::pair(2, 2), std::pair(64, 2)}) {
    TrainOptions known = options(fmt::format("workers-{}", workers), 1);
    known.counts_work = true;
    known.recipe.runtime.workers = workers;
    testing::internal::CaptureStderr();
    train(known);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::HasSubstr(fmt::format(" by {} threads, of which MFU is the share", threads)));
    EXPECT_EQ(at::get_num_threads(), known.recipe.runtime.threads);
  }
}

TEST_F(TrainLoopTest, the_wall_time_goes_on_where_a_run_goes_on) {
  constexpr double kEarlier = 5000;
  const auto longer = [&](int64_t max_steps) {
    TrainOptions options = this->options("run", max_steps);
    options.recipe.schedule.kind = "constant";
    return options;
  };
  const auto rewrite = [&](int64_t step) {
    auto facts = nlohmann::json::parse(file("run", "run.json"));
    facts["seconds"] = kEarlier;
    facts["step"] = step;
    ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("run/run.json"), facts.dump()).is_ok());
  };
  train(longer(4));
  rewrite(4);
  train(longer(6));
  EXPECT_GT(logged_seconds("run")[4], kEarlier) << "from the last save";
  EXPECT_LT(logged_seconds("run")[3], kEarlier);
  EXPECT_EQ(nlohmann::json::parse(file("run", "run.json"))["starts"].size(), 2U);
  // Killed between a checkpoint and its record: the metrics know.
  rewrite(4);
  const double logged = logged_seconds("run")[5];
  train(longer(8));
  EXPECT_GT(logged_seconds("run")[6], logged);
  EXPECT_LT(logged_seconds("run")[7], 2 * kEarlier);
  // Steps that are repeated count once, and the start that did them is forgotten.
  std::filesystem::remove_all(folder_.path("run/checkpoints/step-00000008"));
  train(longer(8));
  const auto starts = nlohmann::json::parse(file("run", "run.json"))["starts"];
  ASSERT_EQ(starts.size(), 3U);
  EXPECT_EQ(starts[2]["step"], 6);
}

TEST_F(TrainLoopTest, the_ledger_of_all_starts_adds_up_to_the_wall_time) {
  train(options("run", 8));
  // As after a kill in step 7: the checkpoint of step 8 does not exist, and the ledger knows of no end.
  std::filesystem::remove_all(folder_.path("run/checkpoints/step-00000008"));
  std::string ledger = file("run", "goodput.jsonl");
  ledger.resize(ledger.rfind("\n", ledger.size() - 2) + 1);
  ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("run/goodput.jsonl"), ledger).is_ok());
  train(options("run", 8));
  std::istringstream lines(file("run", "goodput.jsonl"));
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);) {
    last = nlohmann::json::parse(line);
  }
  EXPECT_EQ(last["event"], "end");
  EXPECT_EQ(last["step"], 8);
  double sum = 0;
  for (const char* part : {"training", "data_wait", "saving", "looking", "lost", "starting", "away"}) {
    sum += last[part].get<double>();
  }
  const double wall = last["time"].get<double>() - last["began"].get<double>();
  EXPECT_NEAR(sum, wall, 0.005 * wall);
  for (const char* part : {"training", "data_wait", "saving", "lost", "starting"}) {
    EXPECT_GT(last[part].get<double>(), 0) << part;
  }
  EXPECT_EQ(last["away"].get<double>(), 0);
  EXPECT_GT(metrics("run").back()["goodput"].get<double>(), 0);
  EXPECT_LT(metrics("run").back()["goodput"].get<double>(), 1);
}

TEST_F(TrainLoopTest, does_not_start_over_where_checkpoints_were_lost) {
  train(options("run", 8));
  std::filesystem::remove_all(folder_.path("run/checkpoints"));
  const Status failure = failure_of(options("run", 8));
  EXPECT_EQ(failure.code(), StatusCode::kFailedPrecondition) << failure.to_string();
  EXPECT_THAT(failure.message(), HasSubstr("put checkpoints/ back"));
  EXPECT_EQ(losses("run").size(), 8U) << "what is left of the run is as it was";
  TrainOptions over = options("run", 8);
  over.resume = "none";
  EXPECT_EQ(train(over).steps, 8);
}

TEST_F(TrainLoopTest, refuses_damaged_facts_of_the_run) {
  train(options("run", 4));
  for (const char* damaged : {"{\"step\":4", "[]", "{\"step\":4,\"seconds\":1}", "{\"step\":4,\"seconds\":\"1\",\"starts\":[]}"}) {
    ASSERT_TRUE(write_file_atomic(local_files(), folder_.path("run/run.json"), damaged).is_ok());
    const Status failure = failure_of(options("run", 4));
    EXPECT_EQ(failure.code(), StatusCode::kCorruptData) << damaged;
    EXPECT_THAT(failure.message(), HasSubstr("run/run.json"));
  }
}

TEST_F(TrainLoopTest, the_same_run_again_has_the_same_bits) {
  train(options("one"));
  train(options("two"));
  EXPECT_EQ(losses("one"), losses("two"));
  EXPECT_EQ(weights("one", 12), weights("two", 12));
  EXPECT_EQ(weights("one", 12, "ema"), weights("two", 12, "ema"));
}

TEST_F(TrainLoopTest, a_deterministic_run_asks_cublas_for_a_workspace_of_a_fixed_size) {
  constexpr const char* kVariable = "CUBLAS_WORKSPACE_CONFIG";
  unsetenv(kVariable);
  TrainOptions options = this->options("free", 1);
  train(options);
  EXPECT_EQ(getenv(kVariable), nullptr);
  options.output = folder_.path("strict");
  options.deterministic = true;
  train(options);
  EXPECT_STREQ(getenv(kVariable), ":4096:8");
  setenv(kVariable, ":16:8", 1);
  options.output = folder_.path("as-set");
  train(options);
  EXPECT_STREQ(getenv(kVariable), ":16:8");
  unsetenv(kVariable);
  train(this->options("after", 1));  // The libraries are the process's: the tests that follow find them as they were.
}

TEST_F(TrainLoopTest, goes_on_bit_identically_after_steps_that_no_checkpoint_holds) {
  train(options("undisturbed"));
  train(options("resumed"));
  // As after a kill in step 11: the checkpoint of step 12 does not exist, metrics know later steps.
  std::filesystem::remove_all(folder_.path("resumed/checkpoints/step-00000012"));
  train(options("resumed"));
  EXPECT_EQ(losses("resumed"), losses("undisturbed"));
  for (const char* part : {"unet", "ema"}) {
    EXPECT_EQ(weights("resumed", 12, part), weights("undisturbed", 12, part));
  }
  const std::string moments = "checkpoints/step-00000012/optimizer-00000-of-00001.safetensors";
  EXPECT_EQ(sha256_hex(file("resumed", moments)), sha256_hex(file("undisturbed", moments)));
}

TEST_F(TrainLoopTest, a_stop_request_saves_and_the_same_command_goes_on) {
  train(options("undisturbed"));
  std::stop_source stop;
  stop.request_stop();
  const auto stopped = run_training(options("stopped"), stop.get_token());
  EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(checkpoint_steps("stopped"), std::vector<int64_t>{0});
  train(options("stopped"));
  EXPECT_EQ(losses("stopped"), losses("undisturbed"));
  EXPECT_EQ(weights("stopped", 12), weights("undisturbed", 12));
}

TEST_F(TrainLoopTest, a_stopped_run_says_which_command_goes_on) {
  std::stop_source stop;
  stop.request_stop();
  const auto stopped = [&](const TrainOptions& options) { return run_training(options, stop.get_token()).status().message(); };
  EXPECT_THAT(stopped(options("run")), HasSubstr("the same command goes on from the checkpoint of step"));
  TrainOptions afresh = options("other");
  afresh.resume = "none";
  EXPECT_THAT(stopped(afresh), HasSubstr("--resume auto goes on from the checkpoint of step"));
  EXPECT_THAT(failure_of(afresh).message(), HasSubstr("take --resume auto")) << "the same command does not go on";
  TrainOptions named = options("branch");
  named.resume = folder_.path("other/checkpoints/step-00000000");
  EXPECT_THAT(stopped(named), HasSubstr("--resume auto goes on from the checkpoint of step"));
}

TEST_F(TrainLoopTest, what_fails_in_the_middle_of_a_run_is_no_fault_of_its_flags) {
  SilentRanks alone(0, 1);
  alone.finished = Status::invalid_argument("a width of", 7);
  TrainOptions options = this->options("run", 1);
  options.ranks = &alone;
  const Status failure = failure_of(options);
  EXPECT_EQ(failure.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(failure.message(), "a width of 7");
}

TEST_F(TrainLoopTest, a_finished_run_stays_as_it_is) {
  train(options("run"));
  const std::string metrics = file("run", "metrics.jsonl");
  EXPECT_EQ(train(options("run")).steps, 12);
  EXPECT_EQ(file("run", "metrics.jsonl"), metrics);
}

TEST_F(TrainLoopTest, a_damaged_newest_checkpoint_is_passed_over_and_an_explicit_one_fails) {
  train(options("undisturbed"));
  train(options("run"));
  const std::string path = folder_.path("run/checkpoints/step-00000012");
  damage("run", 12);
  TrainOptions explicit_path = options("run");
  explicit_path.resume = path;
  const Status failure = failure_of(explicit_path);
  EXPECT_EQ(failure.code(), StatusCode::kCorruptData);
  EXPECT_THAT(failure.message(), HasSubstr("step-00000012"));
  train(options("run"));
  EXPECT_EQ(weights("run", 12), weights("undisturbed", 12));
}

TEST_F(TrainLoopTest, an_explicit_checkpoint_must_be_the_newest_of_its_folder) {
  train(options("run"));
  TrainOptions older = options("run");
  older.resume = folder_.path("run/checkpoints/step-00000008");
  EXPECT_THAT(failure_of(older).message(), HasSubstr("newer checkpoints"));
  older.output = folder_.path("branch");
  train(older);
  EXPECT_EQ(weights("branch", 12), weights("run", 12));
}

TEST_F(TrainLoopTest, a_checkpoint_of_the_folder_that_is_damaged_is_not_the_one_named) {
  train(options("good", 4));
  train(options("run", 4));
  damage("run", 4);
  TrainOptions named = options("run", 4);
  named.resume = folder_.path("good/checkpoints/step-00000004");
  train(named);
  EXPECT_EQ(weights("run", 4), weights("good", 4));
  EXPECT_TRUE(read_checkpoint(local_files(), folder_.path("run/checkpoints/step-00000004")).is_ok());
  EXPECT_TRUE(local_files().exists(folder_.path("run/checkpoints/damaged-step-00000004")).value());
}

TEST_F(TrainLoopTest, a_checkpoint_of_the_folder_that_is_another_is_not_the_one_named) {
  TrainOptions other = options("other", 4);
  other.recipe.optimizer.lr = 1e-3;
  train(other);
  train(options("run", 4));
  const std::string own = weights("run", 4);
  TrainOptions named = options("run", 4);
  named.resume = folder_.path("other/checkpoints/step-00000004");
  const Status failure = failure_of(named);
  EXPECT_EQ(failure.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failure.message(), testing::AllOf(HasSubstr("take --resume auto"), HasSubstr("run/checkpoints/step-00000004")));
  EXPECT_EQ(weights("run", 4), own);
  std::filesystem::remove_all(folder_.path("copy"));
  std::filesystem::copy(folder_.path("run/checkpoints/step-00000004"), folder_.path("copy"), std::filesystem::copy_options::recursive);
  named.resume = folder_.path("copy");
  train(named);  // The same one, in another place.
  EXPECT_EQ(checkpoint_steps("run"), std::vector<int64_t>{4});
}

TEST_F(TrainLoopTest, a_restart_goes_on_from_checkpoints_newer_than_what_resume_names) {
  const auto constant = [&](const std::string& output, int64_t max_steps) {
    TrainOptions options = this->options(output, max_steps);
    options.recipe.schedule.kind = "constant";
    return options;
  };
  train(constant("undisturbed", 12));
  TrainOptions begun = constant("run", 4);
  begun.resume = "none";
  begun.is_restart = true;  // It was lost before its first checkpoint.
  train(begun);
  const std::string first = folder_.path("run/checkpoints/step-00000004");
  begun.recipe.schedule.max_steps = 8;
  train(begun);
  begun.resume = first;
  begun.recipe.schedule.max_steps = 12;
  train(begun);
  EXPECT_EQ(weights("run", 12), weights("undisturbed", 12));
  TrainOptions branch = constant("branch", 12);
  branch.resume = folder_.path("run/checkpoints/step-00000008");
  branch.is_restart = true;
  train(branch);
  EXPECT_EQ(weights("branch", 12), weights("undisturbed", 12));
  EXPECT_FALSE(local_files().exists(folder_.path("branch/checkpoints/step-00000004")).value());
}

TEST_F(TrainLoopTest, a_restart_goes_on_though_what_resume_names_is_gone_or_damaged) {
  train(options("run"));
  TrainOptions restart = options("run");
  restart.resume = folder_.path("run/checkpoints/step-00000004");
  ASSERT_FALSE(local_files().exists(restart.resume).value()) << "the run has pruned it";
  EXPECT_EQ(failure_of(restart).code(), StatusCode::kNotFound);
  restart.is_restart = true;
  train(restart);
  EXPECT_EQ(checkpoint_steps("run"), (std::vector<int64_t>{8, 12}));
  const std::string undisturbed = weights("run", 12);
  damage("run", 12);
  restart.resume = folder_.path("run/checkpoints/step-00000012");
  train(restart);  // From step 8.
  EXPECT_EQ(weights("run", 12), undisturbed);
  restart.output = folder_.path("nothing");
  restart.resume = folder_.path("run/checkpoints/step-00000004");
  EXPECT_EQ(failure_of(restart).code(), StatusCode::kNotFound) << "a run without checkpoints has none to go on from";
}

TEST_F(TrainLoopTest, refuses_another_runs_folder_with_the_fields_named) {
  train(options("run"));
  TrainOptions other = options("run", 16);
  other.recipe.runtime.seed = 1;
  const Status failure = failure_of(other);
  EXPECT_EQ(failure.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failure.message(), HasSubstr("runtime.seed (was 2024, is 1)"));
  TrainOptions afresh = options("run");
  afresh.resume = "none";
  EXPECT_EQ(failure_of(afresh).code(), StatusCode::kFailedPrecondition);
}

TEST_F(TrainLoopTest, what_becomes_of_pictures_may_change_where_a_run_reads_latents_alone) {
  train(options("latents", 1));
  TrainOptions goes_on = options("latents", 2);
  goes_on.recipe.data.crop = "random";
  goes_on.recipe.data.tokenizer_dialect = "open_clip";
  train(goes_on);
  TrainOptions pictures = autoencoder_options("pictures");
  pictures.recipe.schedule.max_steps = 1;
  train(pictures);
  pictures.recipe.schedule.max_steps = 2;
  pictures.recipe.data.crop = "random";
  const Status failure = failure_of(pictures);
  EXPECT_EQ(failure.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failure.message(), HasSubstr("data.crop (was \"center\", is \"random\")"));
}

TEST_F(TrainLoopTest, refuses_a_dataset_that_changed_since_the_run_began) {
  const std::string copy = folder_.path("latents");
  std::filesystem::copy(shared_->path("latents"), copy, std::filesystem::copy_options::recursive);
  TrainOptions grown = options("run");
  grown.recipe.data.path = copy;
  train(grown);
  std::filesystem::copy(copy + "/part-000000.parquet", copy + "/part-000001.parquet");
  grown.recipe.schedule.max_steps = 16;
  EXPECT_THAT(failure_of(grown).message(), HasSubstr("the dataset is not the one"));
}

TEST_F(TrainLoopTest, starts_from_the_weights_of_a_checkpoint_at_step_0) {
  train(options("first"));
  TrainOptions second = options("second", 4);
  second.init_from = folder_.path("first/checkpoints/step-00000012");
  second.recipe.optimizer.lr = 1e-30;  // Too small to change a weight.
  train(second);
  EXPECT_EQ(weights("second", 4), weights("first", 12));
  EXPECT_EQ(losses("second").front().first, 1);
  second.init_from = folder_.path("nowhere");
  second.output = folder_.path("third");
  EXPECT_EQ(failure_of(second).code(), StatusCode::kNotFound);
}

TEST_F(TrainLoopTest, micro_batches_change_the_result_by_rounding_only) {
  TrainOptions whole = options("whole", 1);
  whole.recipe.batch.micro = 6;
  train(whole);
  train(options("split", 1));
  EXPECT_TRUE(is_near(losses("whole")[0].second, losses("split")[0].second, 1e-5));
}

TEST_F(TrainLoopTest, names_the_rows_whose_loss_is_not_finite_and_saves_nothing) {
  TrainOptions exploding = options("run", 50);
  exploding.recipe.optimizer.lr = 1e30;
  exploding.recipe.optimizer.clip_norm = 0;
  exploding.recipe.checkpoint.every_steps = 0;
  const Status failure = failure_of(exploding);
  EXPECT_EQ(failure.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failure.message(), HasSubstr("part-000000.parquet, row"));
  EXPECT_TRUE(checkpoint_steps("run").empty());
}

TEST_F(TrainLoopTest, leaves_out_as_many_steps_that_are_not_finite_as_it_may) {
  TrainOptions exploding = options("run", 50);
  exploding.recipe.optimizer.lr = 1e30;
  exploding.recipe.optimizer.clip_norm = 0;
  exploding.recipe.checkpoint.every_steps = 0;
  exploding.recipe.optimizer.max_skipped = 3;
  EXPECT_THAT(failure_of(exploding).message(), HasSubstr("optimizer.max_skipped allows were left out (3)"));
  const auto lines = metrics("run");
  ASSERT_GE(lines.size(), 3U);
  EXPECT_EQ(lines.back()["skipped"], 3);
  EXPECT_FALSE(lines.back().contains("loss"));
  TrainOptions patient = exploding;
  patient.output = folder_.path("patient");
  patient.recipe.optimizer.max_skipped = 50;
  const TrainSummary summary = train(patient);
  EXPECT_EQ(summary.steps, 50);
  EXPECT_GE(summary.skipped, 40);
  const auto record = read_checkpoint(local_files(), folder_.path("patient") + "/checkpoints/" + checkpoint_name(50));
  ASSERT_TRUE(record.is_ok());
  EXPECT_EQ(record->optimizer_updates, 50 - summary.skipped);
}

TEST_F(TrainLoopTest, gradient_groups_are_fixed_for_a_run_and_round_otherwise) {
  TrainOptions grouped = options("run", 2);
  grouped.recipe.batch.micro = 2;
  grouped.recipe.runtime.gradient_groups = 3;
  train(grouped);
  TrainOptions in_order = options("other", 2);
  in_order.recipe.batch.micro = 2;
  train(in_order);
  EXPECT_TRUE(is_near(losses("run")[1].second, losses("other")[1].second, 1e-5));
  grouped.recipe.runtime.gradient_groups = 1;
  grouped.recipe.schedule.max_steps = 3;
  EXPECT_THAT(failure_of(grouped).message(), HasSubstr("runtime.gradient_groups (was 3, is 1)"));
}

TEST_F(TrainLoopTest, validation_scores_the_same_rows_with_the_same_draws) {
  TrainOptions validated = options("run", 4);
  validated.recipe.optimizer.lr = 1e-30;
  validated.recipe.validation = {.path = shared_->path("latents"), .every_steps = 2, .num_rows = 10};
  train(validated);
  std::vector<double> scores;
  std::istringstream lines(file("run", "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto parsed = nlohmann::json::parse(line);
    if (parsed.contains("validation_loss")) {
      scores.push_back(parsed["validation_loss"].get<double>());
    }
  }
  ASSERT_EQ(scores.size(), 2U);
  EXPECT_EQ(scores[0], scores[1]);
}

TEST_F(TrainLoopTest, validation_takes_no_notice_of_min_snr_so_that_runs_compare) {
  const auto last_line = [&](const std::string& run, double gamma) {
    TrainOptions validated = options(run, 2);
    validated.recipe.optimizer.lr = 1e-30;
    validated.recipe.objective.min_snr_gamma = gamma;
    validated.recipe.validation = {.path = shared_->path("latents"), .every_steps = 2, .num_rows = 10};
    train(validated);
    return metrics(run).back();
  };
  const nlohmann::json plain = last_line("plain", 0);
  const nlohmann::json weighted = last_line("weighted", 5);
  EXPECT_NE(weighted["loss"], plain["loss"]);
  EXPECT_EQ(weighted["validation_loss"], plain["validation_loss"]);
}

TEST_F(TrainLoopTest, refuses_a_validation_set_that_other_frozen_parts_made) {
  const auto write = [&](const std::string& name, const nlohmann::json& made_by) {
    write_latents_part(folder_.path(name + "/part-000000.parquet"), kRows, 1, "key-", {{kLatentsFooterKey, made_by.dump()}});
    write_empty_states(folder_.path(name));
  };
  const auto validated = [&](const std::string& run, const std::string& held_out) {
    TrainOptions options = this->options(run, 1);  // Without previews nothing loads the parts themselves.
    options.recipe.data.path = folder_.path("latents");
    options.recipe.validation = {.path = folder_.path(held_out), .every_steps = 1, .num_rows = 10};
    return options;
  };
  const nlohmann::json made_by = {{"vae_fingerprint", "aaa"}, {"text_encoder_fingerprint", "bbb"}, {"tokenizer_dialect", "hf"}};
  write("latents", made_by);
  write("same", made_by);
  write("unknown", nlohmann::json::object());
  train(validated("run-same", "same"));
  train(validated("run-unknown", "unknown"));
  for (const auto& [field, named] :
       {std::pair("vae_fingerprint", "another VAE"), std::pair("text_encoder_fingerprint", "another text encoder"),
        std::pair("tokenizer_dialect", "another tokenizer dialect")}) {
    nlohmann::json other = made_by;
    other[field] = "open_clip";
    write(field, other);
    const Status refused = failure_of(validated(std::string("run-") + field, field));
    EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition) << field;
    EXPECT_THAT(refused.message(), testing::AllOf(HasSubstr(named), HasSubstr(folder_.path(field)), HasSubstr("open_clip"))) << field;
  }
}

TEST_F(TrainLoopTest, refuses_a_scheduler_that_says_otherwise_than_the_recipe) {
  TrainOptions epsilon = options("run");
  epsilon.recipe.objective.prediction = "epsilon";
  EXPECT_THAT(failure_of(epsilon).message(), HasSubstr("objective.prediction"));
}

TEST_F(TrainLoopTest, traces_its_first_steps) {
  TrainOptions traced = options("run", 5);
  traced.trace_path = folder_.path("trace.safetensors");
  traced.trace_steps = 2;
  train(traced);
  const auto trace = SafetensorsFile::open(traced.trace_path);
  ASSERT_TRUE(trace.is_ok()) << trace.status().to_string();
  for (const char* name : {"key_row", "latents", "caption_states", "timestep", "noise", "dropped", "loss", "grad_norm"}) {
    EXPECT_TRUE((*trace)->contains(std::string("step.1.") + name)) << name;
  }
  EXPECT_FALSE((*trace)->contains("step.2.loss"));
  EXPECT_EQ((*trace)->tensor("step.0.key_row")->scalar_type(), torch::kInt64);
  EXPECT_TRUE(is_near((*trace)->tensor("step.1.loss")->item<double>(), losses("run")[1].second, 1e-6));
  const auto initial = *load_unet(shared_->path("model/unet"));
  EXPECT_TRUE((*trace)->contains("initial.weights.conv_in.weight"));
  EXPECT_EQ((*trace)->tensor("step.1.weights.conv_in.weight")->sizes(), initial->named_parameters()["conv_in.weight"].sizes());
  EXPECT_EQ(failure_of(traced).code(), StatusCode::kAlreadyExists);
}

TEST_F(TrainLoopTest, trains_an_autoencoder_on_pictures_and_shows_reconstructions) {
  TrainOptions options = autoencoder_options("vae");
  options.recipe.samples.every_steps = 12;
  options.recipe.validation = {.path = shared_->path("images"), .every_steps = 12, .num_rows = 10};
  train(options);
  EXPECT_FALSE(file("vae", "samples/step-00000012/sheet.png").empty());
  EXPECT_THAT(file("vae", "metrics.jsonl"), HasSubstr("validation_psnr"));
  EXPECT_TRUE(load_vae(folder_.path("vae/checkpoints/step-00000012/ema")).is_ok());
  const std::string undisturbed = weights("vae", 12, "vae");
  std::filesystem::remove_all(folder_.path("vae/checkpoints/step-00000012"));
  train(options);
  EXPECT_EQ(weights("vae", 12, "vae"), undisturbed);
}

TEST_F(TrainLoopTest, raw_pictures_are_decoded_locked_in_and_a_crash_costs_its_row_alone) {
  write_images(folder_.path("marked"), "PLANT:crash\n");
  TrainOptions here = autoencoder_options("here");
  here.recipe.data.raw_path = folder_.path("marked");
  here.recipe.validation = {.path = folder_.path("marked"), .every_steps = 12, .num_rows = 10};
  train(here);  // To libpng the mark is no picture.
  TrainOptions locked_in = here;
  locked_in.output = folder_.path("locked_in");
  locked_in.decoder_program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "planted_decoder";
  train(locked_in);
  EXPECT_EQ(losses("locked_in"), losses("here"));
  EXPECT_EQ(weights("locked_in", 12, "vae"), weights("here", 12, "vae"));
}

TEST_F(TrainLoopTest, a_run_of_any_number_of_ranks_goes_on_after_its_dataset_was_retried) {
  for (const int64_t num_ranks : {1, 2}) {
    const std::string run = "run-" + std::to_string(num_ranks);
    const std::string images = folder_.path("images-" + std::to_string(num_ranks));
    write_images(images);
    const auto train_all = [&] {
      run_rank_threads(num_ranks, [&](Communicator& ranks) {
        TrainOptions options = autoencoder_options(run);
        options.recipe.data.raw_path = images;
        options.recipe.batch.micro = 3;
        options.recipe.runtime.gradient_groups = 2;
        options.ranks = &ranks;
        train(options);
      });
    };
    train_all();
    const std::string undisturbed = weights(run, 12, "vae");
    std::filesystem::remove_all(folder_.path(run + "/checkpoints/step-00000012"));
    // As download --retry-failed leaves it.
    write_images(folder_.path("better"), "other bytes");
    std::filesystem::create_directory(images + "/_superseded");
    std::filesystem::rename(images + "/part-000000.parquet", images + "/_superseded/part-000000.parquet");
    std::filesystem::rename(folder_.path("better/part-000000.parquet"), images + "/part-000000-g1.parquet");
    train_all();
    EXPECT_EQ(weights(run, 12, "vae"), undisturbed);
  }
}

TEST_F(TrainLoopTest, a_decoder_that_is_not_there_ends_a_run_before_it_begins) {
  TrainOptions options = autoencoder_options("none");
  options.decoder_program = folder_.path("no-decoder");
  EXPECT_EQ(failure_of(options).code(), StatusCode::kNotFound);
  EXPECT_FALSE(std::filesystem::exists(folder_.path("none")));
  options = this->options("latents");  // Which hold no picture.
  options.decoder_program = folder_.path("no-decoder");
  train(options);
}

TEST_F(TrainLoopTest, previews_that_cannot_be_painted_are_refused_before_anything_is_written) {
  write_painting_model(folder_.path("model"));
  TrainOptions options = this->options("painted", 2);
  options.recipe.model.path = folder_.path("model");
  options.recipe.samples = {.every_steps = 2, .prompts = {"a dot"}, .steps = 2};
  train(options);
  EXPECT_FALSE(file("painted", "samples/step-00000002/prompt-000.png").empty());
  options.output = folder_.path("run");
  options.recipe.samples.steps = options.recipe.noise.num_timesteps + 1;
  const Status failure = failure_of(options);
  EXPECT_EQ(failure.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(failure.message(), testing::AllOf(HasSubstr("samples"), HasSubstr("1001")));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("run")));
}

TEST_F(TrainLoopTest, two_processes_cannot_train_in_one_folder) {
  ASSERT_TRUE(local_files().create_folders(folder_.path("run")).is_ok());
  const auto lock = local_files().try_lock(folder_.path("run"));
  ASSERT_TRUE(lock.is_ok());
  EXPECT_THAT(failure_of(options("run")).message(), HasSubstr("another process"));
}

TEST_F(TrainLoopTest, options_are_checked_before_anything_is_written) {
  TrainOptions wrong = options("run");
  wrong.trace_path = "x";
  wrong.trace_steps = 0;
  EXPECT_EQ(failure_of(wrong).code(), StatusCode::kInvalidArgument);
  wrong = options("run");
  wrong.recipe.data.path.clear();
  EXPECT_EQ(failure_of(wrong).code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(*local_files().exists(folder_.path("run")));
}

}  // namespace
}  // namespace darkroom
