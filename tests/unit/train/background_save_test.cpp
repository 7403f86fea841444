#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "darkroom/core/sha256.h"
#include "darkroom/files/fault_files.h"
#include "darkroom/files/paths.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/train/checkpoint.h"
#include "support/forwarding_files.h"
#include "support/rank_threads.h"
#include "support/temporary_folder.h"
#include "support/trained_run.h"
#include "train/training_run.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

/// The machine's files; something happens before the record of the first checkpoint is written, and the lines of metrics are counted.
class WatchedFiles final : public ForwardingFiles {
 public:
  explicit WatchedFiles(std::function<Status(WatchedFiles&)> before_record)
      : ForwardingFiles(local_files()), before_record_(std::move(before_record)) {}

  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override {
    if (file_name(path) == kCheckpointRecordFile && !has_seen_one_.exchange(true)) {
      DARKROOM_RETURN_IF_ERROR(before_record_(*this));
    }
    return ForwardingFiles::create(path);
  }
  Result<std::unique_ptr<OutputFile>> open_append(const std::string& path) override {
    DARKROOM_ASSIGN_OR_RETURN(auto file, ForwardingFiles::open_append(path));
    return std::unique_ptr<OutputFile>(std::make_unique<CountedFile>(*this, std::move(file)));
  }

  /// Whether so many steps are logged at last.
  bool wait_for_steps(int64_t count) {
    std::unique_lock lock(mutex_);
    return logged_.wait_for(lock, std::chrono::minutes(2), [&] { return num_lines_ >= count; });
  }

 private:
  class CountedFile final : public OutputFile {
   public:
    CountedFile(WatchedFiles& files, std::unique_ptr<OutputFile> file) : files_(files), file_(std::move(file)) {}
    const std::string& path() const override { return file_->path(); }
    Status write(std::span<const std::byte> bytes) override {
      const Status written = file_->write(bytes);
      if (file_name(path()) == "metrics.jsonl") {
        const std::lock_guard lock(files_.mutex_);
        files_.num_lines_ += 1;
        files_.logged_.notify_all();
      }
      return written;
    }
    Status sync() override { return file_->sync(); }
    Status close() override { return file_->close(); }

   private:
    WatchedFiles& files_;
    std::unique_ptr<OutputFile> file_;
  };

  std::function<Status(WatchedFiles&)> before_record_;
  std::atomic<bool> has_seen_one_ = false;
  std::mutex mutex_;
  std::condition_variable logged_;
  int64_t num_lines_ = 0;
};

/// Runs of twelve steps with a checkpoint at every fourth.
class BackgroundSaveTest : public testing::Test {
 protected:
  void SetUp() override {
    write_small_model(folder_.path("model"));
    write_latents_part(folder_.path("latents/part-000000.parquet"), 40, 1);
    write_empty_states(folder_.path("latents"));
  }

  TrainOptions options(const std::string& output) const {
    TrainOptions options = small_training(folder_.path("model"), folder_.path("latents"), folder_.path(output));
    options.recipe.checkpoint.keep_last = 3;
    return options;
  }
  Status train(FileSystem& files, const TrainOptions& options) {
    StoreSet stores({}, system_clock(), metrics_);
    const auto run = TrainingRun::create(files, stores, options);
    return run.is_ok() ? (*run)->run({}) : run.status();
  }
  std::string checkpoints(const std::string& run) const { return folder_.path(run) + "/checkpoints"; }
  std::vector<int64_t> valid_steps(const std::string& run) const {
    std::vector<int64_t> steps;
    const auto places = list_checkpoints(local_files(), checkpoints(run));
    EXPECT_TRUE(places.is_ok()) << places.status().to_string();
    for (const auto& place : *places) {
      EXPECT_TRUE(read_checkpoint(local_files(), place.path).is_ok()) << place.path;
      steps.push_back(place.step);
    }
    return steps;
  }
  /// SHA-256 of every file of a checkpoint, by its name.
  std::map<std::string, std::string> contents(const std::string& run, int64_t step) const {
    const std::filesystem::path root = checkpoints(run) + "/" + checkpoint_name(step);
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.is_regular_file()) {
        found[entry.path().lexically_relative(root).string()] = sha256_hex(*read_file(local_files(), entry.path().string()));
      }
    }
    return found;
  }

  MetricsRegistry metrics_;
  TemporaryFolder folder_;
};

TEST_F(BackgroundSaveTest, training_goes_on_while_a_checkpoint_is_written_and_its_bytes_are_those_of_its_step) {
  bool went_on = false;
  std::vector<int64_t> visible;
  WatchedFiles files([&](WatchedFiles& watched) {
    went_on = watched.wait_for_steps(7);
    visible = valid_steps("run");
    return Status::ok();
  });
  const Status trained = train(files, options("run"));
  ASSERT_TRUE(trained.is_ok()) << trained.to_string();
  EXPECT_TRUE(went_on) << "the step after a save does not wait for it";
  EXPECT_TRUE(visible.empty()) << "nothing is visible before its record";
  EXPECT_EQ(valid_steps("run"), (std::vector<int64_t>{4, 8, 12}));
  for (const int64_t step : {4, 8, 12}) {
    TrainOptions until = options("until-" + std::to_string(step));
    until.stop_at = step;  // The checkpoint of an end is written at once.
    ASSERT_TRUE(train(local_files(), until).is_ok());
    EXPECT_EQ(contents("run", step), contents("until-" + std::to_string(step), step)) << step;
  }
}

TEST_F(BackgroundSaveTest, a_recipe_can_have_all_checkpoints_written_at_once) {
  bool went_on = true;
  WatchedFiles files([&](WatchedFiles& /*watched*/) {
    const auto text = read_file(local_files(), folder_.path("run") + "/metrics.jsonl");
    went_on = std::count(text->begin(), text->end(), '\n') != 4;
    return Status::ok();
  });
  TrainOptions at_once = options("run");
  at_once.recipe.runtime.background_saves = false;
  ASSERT_TRUE(train(files, at_once).is_ok());
  EXPECT_FALSE(went_on);
  ASSERT_TRUE(train(local_files(), options("other")).is_ok());
  auto with = contents("other", 8), without = contents("run", 8);
  EXPECT_NE(with.at("state.json"), without.at("state.json")) << "which has the recipe";
  with.erase("state.json");
  without.erase("state.json");
  EXPECT_EQ(with, without);
}

TEST_F(BackgroundSaveTest, a_failure_ends_the_run_as_that_of_a_save_does_and_leaves_nothing_visible) {
  for (const Status& failure : {Status::resource_exhausted("no space left on device"), Status::unavailable("input/output error")}) {
    const std::string name = failure.code() == StatusCode::kUnavailable ? "broken" : "full";
    WatchedFiles files([&](WatchedFiles& /*watched*/) { return failure; });
    const Status ended = train(files, options(name));
    EXPECT_EQ(ended.code(), failure.code()) << ended.to_string();
    EXPECT_THAT(ended.message(), HasSubstr(failure.message()));
    EXPECT_TRUE(valid_steps(name).empty());
    ASSERT_TRUE(train(local_files(), options(name)).is_ok());
    EXPECT_EQ(valid_steps(name), (std::vector<int64_t>{4, 8, 12}));
  }
}

TEST_F(BackgroundSaveTest, a_run_whose_folder_goes_while_a_checkpoint_is_written_saves_into_a_new_one) {
  constexpr const char* kWeights = "unet/diffusion_pytorch_model.safetensors";
  for (const int64_t last : {12, 7}) {  // At 7 the run is over before the save is.
    const std::string name = "until-" + std::to_string(last);
    WatchedFiles files([&](WatchedFiles& watched) {
      EXPECT_TRUE(watched.wait_for_steps(last == 7 ? 7 : 5));
      std::filesystem::remove_all(folder_.path(name));
      return Status::ok();
    });
    TrainOptions until = options(name);
    until.stop_at = last;
    const Status trained = train(files, until);
    EXPECT_TRUE(trained.is_ok()) << trained.to_string();
    EXPECT_THAT(valid_steps(name), testing::Contains(last));
    ASSERT_TRUE(train(local_files(), options(name)).is_ok()) << "it goes on";
    ASSERT_TRUE(train(local_files(), options("undisturbed")).is_ok());
    EXPECT_EQ(contents(name, 12).at(kWeights), contents("undisturbed", 12).at(kWeights));
  }
}

/// The machine's files, of which one checkpoint cannot be removed.
class UnremovableFiles final : public ForwardingFiles {
 public:
  UnremovableFiles(std::string kept, Status failure)
      : ForwardingFiles(local_files()), kept_(std::move(kept)), failure_(std::move(failure)) {}

  Status remove_file(const std::string& path) override { return path.starts_with(kept_) ? failure_ : ForwardingFiles::remove_file(path); }
  Status remove_tree(const std::string& path) override { return path.starts_with(kept_) ? failure_ : ForwardingFiles::remove_tree(path); }
  Status rename_no_replace(const std::string& from, const std::string& to) override {
    return from.starts_with(kept_) ? failure_ : ForwardingFiles::rename_no_replace(from, to);
  }

 private:
  const std::string kept_;
  const Status failure_;
};

TEST_F(BackgroundSaveTest, a_checkpoint_that_cannot_be_removed_costs_no_step) {
  for (const Status& failure : {Status::unavailable("stale file handle"), Status::not_found("no such file")}) {
    for (const bool is_background : {true, false}) {
      const std::string name = std::string(status_code_name(failure.code())) + (is_background ? "-behind" : "-at-once");
      TrainOptions few = options(name);
      few.recipe.checkpoint.keep_last = 1;
      few.recipe.runtime.background_saves = is_background;
      UnremovableFiles files(checkpoints(name) + "/" + checkpoint_name(4), failure);
      testing::internal::CaptureStderr();
      const Status trained = train(files, few);
      const std::string said = testing::internal::GetCapturedStderr();
      EXPECT_TRUE(trained.is_ok()) << trained.to_string();
      EXPECT_EQ(valid_steps(name), (std::vector<int64_t>{4, 12})) << "the others go";
      const bool is_told = said.find("checkpoints that need not be kept are there still: stale file handle") != std::string::npos;
      EXPECT_EQ(is_told, failure.code() == StatusCode::kUnavailable) << said;
    }
  }
}

// The run is over before the save is: its failure is the run's.
TEST_F(BackgroundSaveTest, a_failure_is_not_lost_when_the_run_ends_meanwhile) {
  WatchedFiles files([&](WatchedFiles& watched) {
    EXPECT_TRUE(watched.wait_for_steps(7));
    return Status::resource_exhausted("no space left on device");
  });
  TrainOptions until = options("run");
  until.stop_at = 7;
  EXPECT_EQ(train(files, until).code(), StatusCode::kResourceExhausted);
}

TEST_F(BackgroundSaveTest, a_death_at_any_call_leaves_valid_checkpoints_from_which_the_run_ends_with_the_same_bits) {
  ASSERT_TRUE(train(local_files(), options("whole")).is_ok());
  FaultInjectingFileSystem counting(local_files());
  ASSERT_TRUE(train(counting, options("counted")).is_ok());
  const int64_t num_calls = counting.num_calls();
  constexpr int64_t kDeaths = 12;
  for (int64_t i = 1; i < kDeaths; ++i) {
    const std::string name = "dead" + std::to_string(i);
    FaultInjectingFileSystem dying(local_files());
    dying.fail_call(num_calls * i / kDeaths, Fault::kDeath);
    EXPECT_FALSE(train(dying, options(name)).is_ok()) << i;
    valid_steps(name);  // All that are visible.
    const Status ended = train(local_files(), options(name));
    ASSERT_TRUE(ended.is_ok()) << i << ": " << ended.to_string();
    EXPECT_EQ(contents(name, 12), contents("whole", 12)) << i;
  }
}

TEST_F(BackgroundSaveTest, ranks_save_by_their_own_connections_and_all_end_with_the_failure_of_one) {
  const auto train_two = [&](const std::string& output, FileSystem& first_files) {
    std::vector<Status> ended(2);
    run_rank_threads(2, [&](Communicator& ranks) {
      TrainOptions one = options(output);
      one.recipe.runtime.gradient_groups = 2;
      one.recipe.batch.micro = 3;
      one.ranks = &ranks;
      ended[static_cast<size_t>(ranks.rank())] = train(ranks.rank() == 0 ? first_files : local_files(), one);
    });
    return ended;
  };
  bool went_on = false;
  WatchedFiles held([&](WatchedFiles& watched) {
    went_on = watched.wait_for_steps(7);
    return Status::ok();
  });
  for (const Status& ended : train_two("two", held)) {
    EXPECT_TRUE(ended.is_ok()) << ended.to_string();
  }
  EXPECT_TRUE(went_on);
  TrainOptions lone = options("one");
  lone.recipe.runtime.gradient_groups = 2;
  lone.recipe.batch.micro = 3;
  ASSERT_TRUE(train(local_files(), lone).is_ok());
  for (const int64_t step : {4, 8, 12}) {
    EXPECT_EQ(contents("two", step), contents("one", step)) << step;
  }
  WatchedFiles full([&](WatchedFiles& watched) {
    EXPECT_TRUE(watched.wait_for_steps(6));
    return Status::resource_exhausted("no space left on device");
  });
  for (const Status& ended : train_two("full", full)) {
    EXPECT_EQ(ended.code(), StatusCode::kResourceExhausted) << ended.to_string();
  }
  EXPECT_TRUE(valid_steps("full").empty());
}

}  // namespace
}  // namespace darkroom
