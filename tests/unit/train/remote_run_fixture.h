#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/sha256.h"
#include "darkroom/feed/stored_run.h"
#include "darkroom/train/checkpoint.h"
#include "darkroom/train/train_loop.h"
#include "support/fake_s3_stores.h"
#include "support/temporary_folder.h"
#include "support/trained_run.h"

namespace darkroom {

/// A small model and latents for it (support/trained_run.h), here and on a fake S3 server, and an undisturbed local run of 12 steps.
class RemoteRunTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    inputs_ = new TemporaryFolder();
    std::filesystem::create_directory(inputs_->path("tmp"));
    setenv("TMPDIR", inputs_->path("tmp").c_str(), 1);  // For checkpoints that a store did not take.
    write_small_model(inputs_->path("model"));
    for (const int part : {0, 1}) {
      write_latents_part(inputs_->path(fmt::format("latents/part-{:06}.parquet", part)), 20, static_cast<uint64_t>(2 * part + 1),
                         fmt::format("key-{}-", part));
    }
    write_empty_states(inputs_->path("latents"));
    undisturbed_ = new TemporaryFolder();
    const TrainOptions local = small_training(inputs_->path("model"), inputs_->path("latents"), undisturbed_->path("run"));
    ASSERT_TRUE(run_training(local, {}).is_ok());
  }
  static void TearDownTestSuite() {
    unsetenv("TMPDIR");
    delete inputs_;
    delete undisturbed_;
  }
  void SetUp() override {
    ASSERT_TRUE(s3_.upload(inputs_->path("model"), "model").is_ok());
    ASSERT_TRUE(s3_.upload(inputs_->path("latents"), "latents").is_ok());
  }

  static TrainOptions options(const std::string& output = FakeS3Stores::uri("run"), int64_t max_steps = 12) {
    TrainOptions options = small_training(FakeS3Stores::uri("model"), FakeS3Stores::uri("latents"), output, max_steps);
    options.recipe.runtime.background_saves = false;  // What happens at a step is to happen there; background_save_test has the others.
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

  /// Trains to the end, though the store answers nothing for this long from the first call that touches `key` on.
  void train_while_store_is_gone(const std::string& key, std::chrono::minutes duration, const TrainOptions& trained = options()) {
    std::atomic<bool> has_begun = false;
    Clock::Instant back = {};
    s3_.fake.fault = [&](const FakeS3::Call& call) {
      if (call.key == key && !has_begun.exchange(true)) {
        back = s3_.clock.now() + duration;
      }
      return has_begun && s3_.clock.now() < back ? FakeS3::Fault::kReset : FakeS3::Fault::kNone;
    };
    expect_trained(trained);
    s3_.fake.fault = [](const FakeS3::Call&) { return FakeS3::Fault::kNone; };
    ASSERT_TRUE(has_begun);
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
    EXPECT_THAT(steps(), testing::ElementsAre(8, 12));
    expect_same_checkpoint(12);
    for (const std::string& key : s3_.fake.keys_below("run/")) {
      EXPECT_THAT(key, testing::Not(testing::HasSubstr("_tmp"))) << "a leftover";
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

  static inline TemporaryFolder* inputs_ = nullptr;
  static inline TemporaryFolder* undisturbed_ = nullptr;
  FakeS3Stores s3_;
};

}  // namespace darkroom
