#include <arrow/api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <limits>
#include <sstream>
#include <tuple>

#include "darkroom/core/sha256.h"
#include "darkroom/feed/stored_run.h"
#include "darkroom/files/claim.h"
#include "darkroom/nn/init.h"
#include "darkroom/nn/model_folder.h"
#include "darkroom/nn/presets.h"
#include "darkroom/tables/shard_writer.h"
#include "darkroom/tables/tensor_column.h"
#include "darkroom/tensor/safetensors.h"
#include "darkroom/train/checkpoint.h"
#include "darkroom/train/train_loop.h"
#include "support/fake_s3_stores.h"
#include "support/temporary_folder.h"
#include "train/remote_run.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kRemoteRows = 40;
constexpr int64_t kRemoteWidth = 8;

/// A model folder with a network of a few thousand parameters and latents of 16 px for it, here and on a fake S3 server, and a run of 12
/// steps with a checkpoint every fourth.
class RemoteRunTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    inputs_ = new TemporaryFolder();
    UNet2DConditionModel unet(*UNetConfig::from_json({{"sample_size", 2},
                                                      {"block_out_channels", {8, 8}},
                                                      {"layers_per_block", 1},
                                                      {"down_block_types", {"CrossAttnDownBlock2D", "DownBlock2D"}},
                                                      {"up_block_types", {"UpBlock2D", "CrossAttnUpBlock2D"}},
                                                      {"attention_head_dim", 2},
                                                      {"cross_attention_dim", kRemoteWidth},
                                                      {"norm_num_groups", 4}}));
    initialize_parameters(unet, 1);
    ASSERT_TRUE(save_unet(local_files(), unet, inputs_->path("model/unet")).is_ok());
    ASSERT_TRUE(save_model_index(local_files(), inputs_->path("model"), find_preset("tiny")->scheduler).is_ok());
    for (const int part : {0, 1}) {
      write_shard(part);
    }
    ASSERT_TRUE(write_safetensors(local_files(), inputs_->path("latents/_empty_caption.safetensors"),
                                  {{"caption_embeddings", torch::zeros({77, kRemoteWidth})}})
                    .is_ok());
    undisturbed_ = new TemporaryFolder();
    TrainOptions local = options(undisturbed_->path("run"));
    local.recipe.model.path = inputs_->path("model");
    local.recipe.data.path = inputs_->path("latents");
    ASSERT_TRUE(run_training(local, {}).is_ok());
  }
  static void TearDownTestSuite() {
    delete inputs_;
    delete undisturbed_;
  }
  void SetUp() override {
    ASSERT_TRUE(s3_.upload(inputs_->path("model"), "model").is_ok());
    ASSERT_TRUE(s3_.upload(inputs_->path("latents"), "latents").is_ok());
  }

  static std::shared_ptr<arrow::Array> noise(const std::vector<int64_t>& shape, int seed) {
    std::vector<int64_t> sizes = {kRemoteRows / 2};
    sizes.insert(sizes.end(), shape.begin(), shape.end());
    torch::manual_seed(static_cast<uint64_t>(seed));
    const auto values = torch::randn(sizes);
    return *make_tensor_column(TensorElement::kFloat32, shape,
                               {static_cast<const std::byte*>(values.data_ptr()), static_cast<size_t>(values.nbytes())});
  }
  static void write_shard(int part) {
    arrow::StringBuilder keys;
    for (int64_t row = 0; row < kRemoteRows / 2; ++row) {
      ASSERT_TRUE(keys.Append(fmt::format("key-{}-{}", part, row)).ok());
    }
    const auto latents = noise({4, 2, 2}, 2 * part + 1);
    const auto states = noise({77, kRemoteWidth}, 2 * part + 2);
    const auto schema = arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("image_latents_16", latents->type()),
                                       arrow::field("caption_embeddings", states->type())});
    auto writer = ShardWriter::open(local_files(), inputs_->path("latents"), fmt::format("part-{:06}.parquet", part), schema);
    ASSERT_TRUE(writer.is_ok()) << writer.status().to_string();
    ASSERT_TRUE((*writer)->write(*arrow::RecordBatch::Make(schema, kRemoteRows / 2, {*keys.Finish(), latents, states})).is_ok());
    ASSERT_TRUE((*writer)->finish({}).is_ok());
  }

  static TrainOptions options(const std::string& output = FakeS3Stores::uri("run"), int64_t max_steps = 12) {
    TrainOptions options;
    options.output = output;
    Recipe& recipe = options.recipe;
    recipe.model.path = FakeS3Stores::uri("model");
    recipe.data.path = FakeS3Stores::uri("latents");
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
  Status train(TrainOptions options) {
    TrainSummary summary;
    options.clock = &s3_.clock;
    return run_training(s3_.set, options, {}, summary);
  }
  void expect_trained(const TrainOptions& options) {
    const Status status = train(options);
    EXPECT_TRUE(status.is_ok()) << status.to_string();
  }

  static std::vector<std::pair<int64_t, double>> losses_in(const std::string& metrics) {
    std::vector<std::pair<int64_t, double>> found;
    std::istringstream lines(metrics);
    for (std::string line; std::getline(lines, line);) {
      const auto step = nlohmann::json::parse(line);
      found.emplace_back(step["step"].get<int64_t>(), step["loss"].get<double>());
    }
    return found;
  }
  static std::vector<std::pair<int64_t, double>> undisturbed_losses() {
    return losses_in(*read_file(local_files(), undisturbed_->path("run/metrics.jsonl")));
  }
  std::vector<std::pair<int64_t, double>> losses() {
    const TemporaryFolder copy;
    const Status fetched = fetch_run_files(s3_.place("run"), copy.path("run"), std::numeric_limits<int64_t>::max());
    EXPECT_TRUE(fetched.is_ok()) << fetched.to_string();
    return losses_in(*read_file(local_files(), copy.path("run/metrics.jsonl")));
  }
  /// The bytes of checkpoints are those of the undisturbed local run.
  void expect_same_checkpoint(int64_t step) {
    for (const char* name : {"unet/diffusion_pytorch_model.safetensors", "unet/config.json", "ema/diffusion_pytorch_model.safetensors",
                             "optimizer-00000-of-00001.safetensors"}) {
      const std::string within = "checkpoints/" + checkpoint_name(step) + "/" + name;
      const auto here = read_file(local_files(), undisturbed_->path("run/" + within));
      const auto there = s3_.fake.bytes_of("run/" + within);
      ASSERT_TRUE(there.has_value()) << within;
      EXPECT_EQ(sha256_hex(*there), sha256_hex(*here)) << within;
    }
  }
  void expect_undisturbed_result() {
    EXPECT_EQ(losses(), undisturbed_losses());
    EXPECT_THAT(steps(), ElementsAre(8, 12));
    expect_same_checkpoint(12);
    for (const std::string& key : s3_.fake.keys_below("run/")) {
      EXPECT_THAT(key, Not(HasSubstr("_tmp"))) << "a leftover";
    }
    EXPECT_EQ(s3_.fake.num_uploads(), 0U);
  }
  std::vector<int64_t> steps() {
    std::vector<int64_t> found;
    const auto places = list_checkpoints(s3_.place("run/checkpoints"));
    EXPECT_TRUE(places.is_ok()) << places.status().to_string();
    for (const auto& place : *places) {
      found.push_back(place.step);
    }
    return found;
  }
  /// As after ten minutes.
  void let_claim_expire() {
    s3_.fake.with_state([](FakeS3Objects& state) { state.objects.erase("run/_claims/000000"); });
  }

  static TemporaryFolder* inputs_;
  static TemporaryFolder* undisturbed_;
  FakeS3Stores s3_;
};

TemporaryFolder* RemoteRunTest::inputs_ = nullptr;
TemporaryFolder* RemoteRunTest::undisturbed_ = nullptr;

TEST_F(RemoteRunTest, a_run_on_s3_has_the_losses_and_bytes_of_a_local_one) {
  expect_trained(options());
  expect_undisturbed_result();
  expect_same_checkpoint(8);
  std::vector<std::string> names;
  for (const std::string& key : s3_.fake.keys_below("run/")) {
    if (const std::string name = key.substr(4); !name.starts_with("checkpoints/")) {
      names.push_back(name);
    }
  }
  EXPECT_THAT(names, ElementsAre("events.out.tfevents.0000000000.darkroom.0000000004", "events.out.tfevents.0000000000.darkroom.0000000008",
                                 "events.out.tfevents.0000000000.darkroom.0000000012", "index.json", "metrics-0000000004.jsonl",
                                 "metrics-0000000008.jsonl", "metrics-0000000012.jsonl", "recipe.toml", "run.json"));
  EXPECT_EQ(s3_.fake.bytes_of("run/index.json"), *read_file(local_files(), undisturbed_->path("run/index.json")));
  const auto recipe = parse_recipe(*s3_.fake.bytes_of("run/recipe.toml"), "recipe.toml");
  ASSERT_TRUE(recipe.is_ok());
  EXPECT_EQ(recipe->data.path, FakeS3Stores::uri("latents"));
  EXPECT_EQ(recipe->model.path, FakeS3Stores::uri("model"));
  const auto record = read_checkpoint_record(s3_.place("run/checkpoints/step-00000012"));
  ASSERT_TRUE(record.is_ok()) << record.status().to_string();
  EXPECT_EQ(record->record.frozen_path, FakeS3Stores::uri("model"));
}

TEST_F(RemoteRunTest, the_parts_of_events_are_the_local_file_in_pieces) {
  expect_trained(options());
  std::string whole;
  for (const std::string& key : s3_.fake.keys_below("run/events")) {
    whole += *s3_.fake.bytes_of(key);
  }
  // Frames: length, its check, data, its check; the times within differ from run to run, the sizes do not.
  EXPECT_EQ(whole.size(), read_file(local_files(), undisturbed_->path("run/events.out.tfevents.0000000000.darkroom"))->size());
}

TEST_F(RemoteRunTest, a_finished_run_stays_as_it_is_and_a_longer_one_goes_on) {
  TrainOptions constant = options();
  constant.recipe.schedule.kind = "constant";
  expect_trained(constant);
  const auto first = losses();
  expect_trained(constant);
  EXPECT_EQ(losses(), first);
  constant.recipe.schedule.max_steps = 14;
  expect_trained(constant);
  EXPECT_EQ(losses().size(), 14U);
  EXPECT_THAT(steps(), ElementsAre(12, 14));
}

/// Kills the way to the store at the first call that touches such a key, of all operations or one; then goes on.
TEST_F(RemoteRunTest, goes_on_bit_identically_wherever_a_run_was_cut_off) {
  struct Cut {
    const char* operation;
    const char* key;
    bool is_done;  // The store carried the call out, and nobody heard of it.
  };
  for (const Cut& cut : std::initializer_list<Cut>{{"put", "run/metrics-0000000008.jsonl", false},
                                                   {"put", "run/metrics-0000000008.jsonl", true},
                                                   {"put", "run/events.out.tfevents.0000000000.darkroom.0000000008", false},
                                                   {"put", "_tmp.step-00000008", false},
                                                   {"put", "ema/diffusion_pytorch_model.safetensors", true},
                                                   {"copy", "run/checkpoints/step-00000008/", false},
                                                   {"copy", "run/checkpoints/step-00000008/unet/", true},
                                                   {"put", "run/checkpoints/step-00000008/state.json", false},
                                                   {"put", "run/checkpoints/step-00000008/state.json", true},
                                                   {"remove", "run/checkpoints/step-00000004/state.json", true},
                                                   {"put", "run/run.json", true}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", cut.operation, cut.key, cut.is_done));
    std::atomic<bool> is_dead = false;
    s3_.fake.fault = [&](const FakeS3::Call& call) {
      const bool is_here = call.operation == cut.operation && call.key.find(cut.key) != std::string::npos;
      if (is_here && !is_dead.exchange(true) && cut.is_done) {
        return FakeS3::Fault::kLostReply;
      }
      return is_dead ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
    };
    const bool is_over = std::string_view(cut.operation) == "remove";  // All is stored.
    EXPECT_EQ(train(options()).code(), is_over ? StatusCode::kOk : StatusCode::kUnavailable);
    ASSERT_TRUE(is_dead);
    s3_.fake.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
    EXPECT_THAT(train(options()).message(), HasSubstr("another process is training"));
    let_claim_expire();
    expect_trained(options());
    EXPECT_EQ(losses(), undisturbed_losses());
    EXPECT_THAT(steps(), ElementsAre(8, 12));
    EXPECT_TRUE(s3_.fake.keys_below("run/checkpoints/step-00000004").empty());
    EXPECT_TRUE(s3_.fake.keys_below("run/checkpoints/_tmp").empty());
    expect_same_checkpoint(12);
    ASSERT_TRUE(s3_.place("run").store->remove_tree(s3_.place("run").path).is_ok());
  }
}

TEST_F(RemoteRunTest, a_store_that_is_gone_for_a_while_costs_no_step) {
  using Fault = FakeS3::Fault;
  constexpr int kCalls = 20;
  for (const auto& [operation, key, first] : std::initializer_list<std::tuple<std::string, std::string, Fault>>{
           {"put", "run/metrics-0000000008.jsonl", Fault::kReset},
           {"put", "ema/diffusion_pytorch_model.safetensors", Fault::kReset},
           {"copy", "run/checkpoints/step-00000008/", Fault::kReset},
           {"copy", "run/checkpoints/step-00000008/unet/", Fault::kLostReply},
           {"put", "run/checkpoints/step-00000008/state.json", Fault::kLostReply},
           {"remove", "run/checkpoints/step-00000004/state.json", Fault::kReset}}) {
    SCOPED_TRACE(operation + " " + key);
    std::atomic<int> num_failed = 0;
    s3_.fake.fault = [&, operation = operation, key = key, first = first](const FakeS3::Call& call) {
      const bool begins = num_failed == 0 && call.operation == operation && call.key.find(key) != std::string::npos;
      const bool fails = begins || (num_failed > 0 && num_failed < kCalls);
      num_failed += fails ? 1 : 0;
      return begins ? first : fails ? Fault::kReset : Fault::kNone;
    };
    expect_trained(options());
    EXPECT_GE(num_failed.load(), operation == "remove" ? 1 : kCalls);
    EXPECT_EQ(losses(), undisturbed_losses());
    EXPECT_THAT(steps(), testing::IsSupersetOf({8, 12}));
    expect_same_checkpoint(8);
    expect_same_checkpoint(12);
    s3_.fake.fault = [](const FakeS3::Call&) { return Fault::kNone; };
    ASSERT_TRUE(s3_.place("run").store->remove_tree(s3_.place("run").path).is_ok());
  }
}

TEST_F(RemoteRunTest, a_stop_ends_the_waiting_for_a_store) {
  std::stop_source stop;
  std::atomic<int> num_failed = 0;
  s3_.fake.fault = [&](const FakeS3::Call& call) {
    const bool fails = num_failed > 0 || call.key == "run/metrics-0000000008.jsonl";
    if (num_failed += fails ? 1 : 0; num_failed == 20) {
      stop.request_stop();
    }
    return fails ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
  };
  TrainOptions stopped = options();
  stopped.clock = &s3_.clock;
  TrainSummary summary;
  EXPECT_EQ(run_training(s3_.set, stopped, stop.get_token(), summary).code(), StatusCode::kUnavailable);
  EXPECT_LT(num_failed.load(), 60);
}

TEST_F(RemoteRunTest, previews_that_a_store_did_not_take_come_with_the_next_checkpoint) {
  auto run = RemoteRun::open(s3_.place("run"), s3_.clock, {});
  ASSERT_TRUE(run.is_ok()) << run.status().to_string();
  std::filesystem::copy(undisturbed_->path("run"), (*run)->spool(),
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  const std::string sheet = "samples/step-00000012/sheet.png";
  ASSERT_TRUE(write_file_atomic(local_files(), (*run)->spool() + "/" + sheet, "pixels").is_ok());
  ASSERT_TRUE((*run)->begin(8, "events.out.tfevents.0000000000.darkroom").is_ok());
  s3_.fake.fault = [](const FakeS3::Call& call) {
    return call.key.find("samples/") != std::string::npos ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
  };
  (*run)->store_folder("samples/step-00000012");
  EXPECT_FALSE(s3_.fake.bytes_of("run/" + sheet).has_value());
  s3_.fake.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
  ASSERT_TRUE((*run)->store_checkpoint(12, {.keep_last = 2}).is_ok());
  EXPECT_EQ(s3_.fake.bytes_of("run/" + sheet), "pixels");
}

TEST_F(RemoteRunTest, saves_before_it_ends_when_the_dataset_cannot_be_read_any_more) {
  s3_.fake.with_state([](FakeS3Objects& state) {  // More than what is read at once.
    for (int part = 2; part < 8; ++part) {
      state.objects[fmt::format("latents/part-{:06}.parquet", part)] =
          state.objects.at(fmt::format("latents/part-{:06}.parquet", part % 2));
    }
  });
  TrainOptions far = options();
  far.clock = &s3_.clock;
  far.recipe.data.window_blocks = 1;
  far.recipe.data.batches_ahead = 1;
  TrainOptions whole = far;
  whole.output = FakeS3Stores::uri("whole");
  expect_trained(whole);
  std::atomic<bool> is_gone = false;
  s3_.fake.fault = [&](const FakeS3::Call& call) {
    is_gone = is_gone || call.key == "run/metrics-0000000004.jsonl";
    return is_gone && call.key.starts_with("latents/") ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
  };
  TrainSummary summary;
  const Status failed = run_training(s3_.set, far, {}, summary);
  EXPECT_EQ(failed.code(), StatusCode::kUnavailable);
  EXPECT_THAT(failed.message(), HasSubstr(fmt::format("the checkpoint of step {}", summary.steps)));
  EXPECT_GT(summary.steps, 4);
  EXPECT_LT(summary.steps, 12);
  EXPECT_EQ(steps().back(), summary.steps);
  s3_.fake.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
  expect_trained(far);
  const std::string weights = "/checkpoints/step-00000012/ema/diffusion_pytorch_model.safetensors";
  EXPECT_EQ(sha256_hex(*s3_.fake.bytes_of("run" + weights)), sha256_hex(*s3_.fake.bytes_of("whole" + weights)));
}

TEST_F(RemoteRunTest, a_stop_request_saves_and_the_same_command_goes_on) {
  std::stop_source stop;
  // At the first byte of step 4's metrics: the run is in the middle.
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.key == "run/metrics-0000000004.jsonl") {
      stop.request_stop();
    }
  };
  TrainSummary summary;
  EXPECT_EQ(run_training(s3_.set, options(), stop.get_token(), summary).code(), StatusCode::kCancelled);
  EXPECT_THAT(steps(), ElementsAre(4));
  s3_.fake.before = [](const FakeS3::Call&) {};
  expect_trained(options());
  expect_undisturbed_result();
}

TEST_F(RemoteRunTest, a_damaged_newest_checkpoint_is_passed_over_and_set_aside) {
  expect_trained(options());
  s3_.fake.with_state([](FakeS3Objects& state) {
    state.objects.at("run/checkpoints/step-00000012/ema/diffusion_pytorch_model.safetensors").bytes.back() ^= 1;
  });
  expect_trained(options());
  EXPECT_EQ(losses(), undisturbed_losses());
  expect_same_checkpoint(12);
  EXPECT_TRUE(s3_.fake.bytes_of("run/checkpoints/damaged-step-00000012/state.json").has_value());
  EXPECT_TRUE(s3_.fake.bytes_of("run/checkpoints/damaged-step-00000012/ema/config.json").has_value());
}

TEST_F(RemoteRunTest, a_checkpoint_without_its_record_does_not_exist) {
  expect_trained(options());
  s3_.fake.with_state([](FakeS3Objects& state) { state.objects.erase("run/checkpoints/step-00000012/state.json"); });
  EXPECT_THAT(steps(), ElementsAre(8));
  expect_trained(options());
  EXPECT_EQ(losses(), undisturbed_losses());
  expect_same_checkpoint(12);
}

TEST_F(RemoteRunTest, remains_of_removed_checkpoints_go_and_what_a_user_put_aside_stays) {
  expect_trained(options());
  s3_.fake.with_state([](FakeS3Objects& state) {
    const std::string record = state.objects.at("run/checkpoints/step-00000008/state.json").bytes;
    for (const char* name : {"step-00000004/unet/config.json", "step-00000004-good/state.json", "step-00000004-good/unet/config.json",
                             "step-00000008.keep/unet/config.json", "step-000000008/notes.txt", "step-/notes.txt"}) {
      state.put(std::string("run/checkpoints/") + name, record, "", false);
    }
  });
  expect_trained(options());
  for (const char* name : {"step-00000004-good/state.json", "step-00000004-good/unet/config.json", "step-00000008.keep/unet/config.json",
                           "step-000000008/notes.txt", "step-/notes.txt", "step-00000008/state.json"}) {
    EXPECT_TRUE(s3_.fake.bytes_of(std::string("run/checkpoints/") + name).has_value()) << name;
  }
  EXPECT_TRUE(s3_.fake.keys_below("run/checkpoints/step-00000004/").empty());
}

TEST_F(RemoteRunTest, fails_when_every_checkpoint_is_damaged) {
  expect_trained(options());
  s3_.fake.with_state([](FakeS3Objects& state) {
    for (const char* step : {"08", "12"}) {
      state.objects.erase(fmt::format("run/checkpoints/step-000000{}/unet/config.json", step));
    }
  });
  const Status failed = train(options());
  EXPECT_EQ(failed.code(), StatusCode::kCorruptData);
  EXPECT_THAT(failed.message(), HasSubstr("s3://pictures/run/checkpoints/step-00000008/unet/config.json"));
  EXPECT_THAT(failed.message(), Not(HasSubstr("darkroom-scratch")));
}

TEST_F(RemoteRunTest, of_two_processes_the_second_is_refused) {
  const Location claim = s3_.place("run/_claims/000000");
  ASSERT_TRUE(take_claim(claim, "another-one", system_clock().wall()).is_ok());
  const Status refused = train(options());
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("another process is training in this run folder"));
  ASSERT_TRUE(release_claim(claim, "another-one").is_ok());
  expect_trained(options());
}

TEST_F(RemoteRunTest, a_run_that_was_taken_over_stores_no_checkpoint) {
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.key == "run/metrics-0000000004.jsonl") {
      s3_.fake.with_state([](FakeS3Objects& state) {
        auto& claim = state.objects.at("run/_claims/000000").bytes;
        auto fields = nlohmann::json::parse(claim);
        fields["owner"] = "another-one";
        claim = fields.dump();
      });
    }
  };
  const Status failed = train(options());
  EXPECT_EQ(failed.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failed.message(), HasSubstr("taken over"));
  EXPECT_THAT(steps(), ElementsAre(4)) << "which it was about to store";
  EXPECT_FALSE(s3_.fake.bytes_of("run/metrics-0000000008.jsonl").has_value());
}

TEST_F(RemoteRunTest, a_claim_that_is_gone_is_taken_again) {
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.key == "run/metrics-0000000004.jsonl") {
      let_claim_expire();
    }
  };
  expect_trained(options());
  expect_undisturbed_result();
}

TEST_F(RemoteRunTest, a_run_that_was_taken_over_by_one_that_has_ended_stores_nothing_more) {
  s3_.fake.before = [&](const FakeS3::Call& call) {
    if (call.key == "run/run.json" && s3_.fake.bytes_of("run/checkpoints/step-00000004/state.json")) {  // Just stored.
      let_claim_expire();
      s3_.fake.with_state([](FakeS3Objects& state) {
        state.objects["run/checkpoints/step-00000006/state.json"] = state.objects.at("run/checkpoints/step-00000004/state.json");
      });
    }
  };
  const Status failed = train(options());
  EXPECT_EQ(failed.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failed.message(), AllOf(HasSubstr("taken over"), HasSubstr("step-00000006")));
  EXPECT_THAT(steps(), ElementsAre(4, 6));
  EXPECT_FALSE(s3_.fake.bytes_of("run/metrics-0000000008.jsonl").has_value());
  EXPECT_FALSE(s3_.fake.bytes_of("run/_claims/000000").has_value());
}

TEST_F(RemoteRunTest, what_a_failing_run_logged_is_stored) {
  TrainOptions exploding = options(FakeS3Stores::uri("run"), 50);
  exploding.recipe.optimizer.lr = 1e30;
  exploding.recipe.optimizer.clip_norm = 0;
  exploding.recipe.checkpoint.every_steps = 0;
  const Status failed = train(exploding);
  EXPECT_EQ(failed.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(failed.message(), HasSubstr("s3://pictures/latents/part-00000"));
  EXPECT_FALSE(s3_.fake.keys_below("run/metrics-").empty());
  EXPECT_TRUE(steps().empty());
}

TEST_F(RemoteRunTest, a_local_run_that_was_copied_to_a_store_goes_on_there_with_its_metrics) {
  ASSERT_TRUE(s3_.upload(undisturbed_->path("run"), "run").is_ok());
  EXPECT_EQ(losses(), undisturbed_losses());
  const Location last = s3_.place("run/checkpoints/step-00000012");
  ASSERT_TRUE(last.store->remove_tree(last.path).is_ok());
  expect_trained(options());  // Steps 9 to 12, which metrics.jsonl tells of already.
  EXPECT_EQ(losses(), undisturbed_losses());
  EXPECT_EQ(losses_in(*s3_.fake.bytes_of("run/metrics-0000000012.jsonl")).size(), 4U);
  expect_same_checkpoint(12);
}

TEST_F(RemoteRunTest, keeps_every_mth_checkpoint) {
  TrainOptions kept = options();
  kept.recipe.checkpoint = {.every_steps = 2, .keep_last = 1, .keep_every = 6};
  expect_trained(kept);
  EXPECT_THAT(steps(), ElementsAre(6, 12));
}

TEST_F(RemoteRunTest, resume_none_and_older_checkpoints_are_refused) {
  expect_trained(options());
  TrainOptions afresh = options();
  afresh.resume = "none";
  EXPECT_THAT(train(afresh).message(), HasSubstr("--resume none would start over"));
  TrainOptions older = options();
  older.resume = FakeS3Stores::uri("run/checkpoints/step-00000008");
  EXPECT_THAT(train(older).message(), HasSubstr("newer checkpoints"));
  TemporaryFolder folder;
  older.output = folder.path("branch");
  expect_trained(older);
  const auto branch = read_file(local_files(), folder.path("branch/checkpoints/step-00000012/unet/diffusion_pytorch_model.safetensors"));
  EXPECT_EQ(sha256_hex(*branch), sha256_hex(*s3_.fake.bytes_of("run/checkpoints/step-00000012/unet/diffusion_pytorch_model.safetensors")));
  TrainOptions other = options(FakeS3Stores::uri("run"), 16);
  other.recipe.runtime.seed = 1;
  EXPECT_THAT(train(other).message(), HasSubstr("runtime.seed (was 2024, is 1)"));
}

TEST_F(RemoteRunTest, starts_from_the_weights_of_a_remote_checkpoint) {
  expect_trained(options());
  TrainOptions second = options(FakeS3Stores::uri("second"), 4);
  second.init_from = FakeS3Stores::uri("run/checkpoints/step-00000012");
  second.recipe.optimizer.lr = 1e-30;  // Too small to change a weight.
  expect_trained(second);
  EXPECT_EQ(s3_.fake.bytes_of("second/checkpoints/step-00000004/unet/diffusion_pytorch_model.safetensors"),
            s3_.fake.bytes_of("run/checkpoints/step-00000012/unet/diffusion_pytorch_model.safetensors"));
}

TEST_F(RemoteRunTest, a_dataset_that_changed_is_refused_and_a_missing_one_is_named) {
  expect_trained(options());
  s3_.fake.with_state(
      [](FakeS3Objects& state) { state.objects["latents/part-000002.parquet"] = state.objects.at("latents/part-000001.parquet"); });
  EXPECT_THAT(train(options(FakeS3Stores::uri("run"), 16)).message(), HasSubstr("the dataset is not the one"));
  TrainOptions missing = options(FakeS3Stores::uri("other"));
  missing.recipe.data.path = FakeS3Stores::uri("nowhere");
  const Status failed = train(missing);
  EXPECT_EQ(failed.code(), StatusCode::kNotFound);
  EXPECT_THAT(failed.message(), HasSubstr("s3://pictures/nowhere"));
  EXPECT_TRUE(s3_.fake.keys_below("other/").empty()) << "a start that failed leaves nothing";
}

TEST_F(RemoteRunTest, a_store_without_conditions_on_uploads_gets_the_same_run) {
  for (const auto conditions : {FakeS3::Conditions::kPutOnly, FakeS3::Conditions::kNone}) {
    FakeS3Stores other(conditions, 16 << 10);
    ASSERT_TRUE(other.upload(inputs_->path("model"), "model").is_ok());
    ASSERT_TRUE(other.upload(inputs_->path("latents"), "latents").is_ok());
    TrainSummary summary;
    const Status trained = run_training(other.set, options(FakeS3Stores::uri("run"), 12), {}, summary);
    ASSERT_TRUE(trained.is_ok()) << trained.to_string();
    const std::string within = "checkpoints/step-00000012/ema/diffusion_pytorch_model.safetensors";
    EXPECT_EQ(sha256_hex(*other.fake.bytes_of("run/" + within)),
              sha256_hex(*read_file(local_files(), undisturbed_->path("run/" + within))));
    EXPECT_EQ(other.fake.num_uploads(), 0U);
  }
}

TEST_F(RemoteRunTest, no_key_is_in_any_file_of_the_run) {
  expect_trained(options());
  for (const std::string& key : s3_.fake.keys_below("run/")) {
    const std::string bytes = *s3_.fake.bytes_of(key);
    for (const std::string& secret : {s3_.fake.keys.id, s3_.fake.keys.secret}) {
      EXPECT_EQ(bytes.find(secret), std::string::npos) << key;
    }
  }
}

}  // namespace
}  // namespace darkroom
