#include "train/training_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "darkroom/tables/tensor_forms.h"
#include "support/forwarding_files.h"
#include "support/temporary_folder.h"
#include "support/trained_run.h"
#include "support/watched_rank.h"
#include "train/resume_point.h"
#include "train/run_data.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using LockResult = Result<std::unique_ptr<FileLock>>;

/// The machine's files, but for what becomes of a lock.
class FilesWithLocks final : public ForwardingFiles {
 public:
  explicit FilesWithLocks(std::function<LockResult()> lock) : ForwardingFiles(local_files()), lock_(std::move(lock)) {}

  LockResult try_lock(const std::string& /*path*/) override { return lock_(); }

 private:
  std::function<LockResult()> lock_;
};

/// Starts that fail once the folder is theirs: there is no model.
class TrainingRunTest : public testing::Test {
 protected:
  TrainOptions options() const {
    TrainOptions options;
    options.output = run_;
    options.recipe.model.path = folder_.path("missing-model");
    options.recipe.data.path = folder_.path("missing-latents");
    return options;
  }
  Status start(FileSystem& files) {
    StoreSet stores({}, system_clock(), metrics_);
    return TrainingRun::create(files, stores, options()).status();
  }
  bool is_there(const std::string& name) const { return *local_files().exists(run_ + name); }

  MetricsRegistry metrics_;
  TemporaryFolder folder_;
  const std::string run_ = folder_.path("run");
};

TEST_F(TrainingRunTest, a_start_that_fails_leaves_no_folder_that_it_made) {
  EXPECT_THAT(start(local_files()).message(), HasSubstr("missing-model"));
  EXPECT_FALSE(is_there(""));
  ASSERT_TRUE(local_files().create_folders(run_).is_ok());
  EXPECT_THAT(start(local_files()).message(), HasSubstr("missing-model"));
  EXPECT_TRUE(is_there(""));
}

// The other start made the folder after this one looked for it, and is loading its model.
TEST_F(TrainingRunTest, a_start_that_finds_the_folder_held_removes_nothing) {
  FilesWithLocks held([]() -> LockResult { return std::unique_ptr<FileLock>(); });
  EXPECT_THAT(start(held).message(), HasSubstr("another process"));
  EXPECT_TRUE(is_there("/checkpoints"));
}

TEST_F(TrainingRunTest, goes_on_unlocked_only_where_there_are_no_locks) {
  FilesWithLocks without([]() -> LockResult { return Status::failed_precondition("no locks here"); });
  EXPECT_THAT(start(without).message(), HasSubstr("missing-model"));
  FilesWithLocks failing([]() -> LockResult { return Status::resource_exhausted("too many open files"); });
  EXPECT_EQ(start(failing).code(), StatusCode::kResourceExhausted);
}

/// As an NFS: only files can be locked.
class FilesWithoutFolderLocks final : public ForwardingFiles {
 public:
  FilesWithoutFolderLocks() : ForwardingFiles(local_files()) {}

  Result<std::unique_ptr<FileLock>> try_lock(const std::string& path) override {
    return std::filesystem::is_directory(path) ? LockResult(Status::failed_precondition("no locks here")) : ForwardingFiles::try_lock(path);
  }
};

TEST_F(TrainingRunTest, a_second_process_is_refused_where_only_files_can_be_locked) {
  FilesWithoutFolderLocks files;
  EXPECT_THAT(start(files).message(), HasSubstr("missing-model"));
  EXPECT_FALSE(is_there("")) << "of a start that failed nothing is left";
  ASSERT_TRUE(write_file_atomic(local_files(), run_ + "/_lock", "").is_ok());
  auto held = local_files().try_lock(run_ + "/_lock");
  ASSERT_TRUE(held.is_ok());
  EXPECT_THAT(start(files).message(), HasSubstr("another process is training in this run folder"));
  held->reset();
  EXPECT_THAT(start(files).message(), HasSubstr("missing-model"));
}

TEST_F(TrainingRunTest, removes_what_a_killed_start_left_half_written) {
  ASSERT_TRUE(write_file_atomic(local_files(), run_ + "/_tmp.run.json.1-2-3", "{").is_ok());
  ASSERT_TRUE(write_file_atomic(local_files(), run_ + "/notes.txt", "mine").is_ok());
  EXPECT_THAT(start(local_files()).message(), HasSubstr("missing-model"));
  EXPECT_FALSE(is_there("/_tmp.run.json.1-2-3"));
  EXPECT_TRUE(is_there("/notes.txt"));
}

/// The machine's files; at the second checkpoint somebody removes something of the run folder.
class FilesThatVanish final : public ForwardingFiles {
 public:
  FilesThatVanish(std::string run, std::function<void()> remove)
      : ForwardingFiles(local_files()), run_(std::move(run)), remove_(std::move(remove)) {}

  Result<FileInfo> stat(const std::string& path) override {
    if (path == run_ + "/run.json" && !has_vanished && num_logged_steps() > 4) {
      has_vanished = true;
      remove_();
    }
    return ForwardingFiles::stat(path);
  }

  bool has_vanished = false;

 private:
  int64_t num_logged_steps() const {
    std::ifstream metrics(run_ + "/metrics.jsonl");
    return std::count(std::istreambuf_iterator<char>(metrics), {}, '\n');
  }

  std::string run_;
  std::function<void()> remove_;
};

class LostFolderTest : public TrainingRunTest {
 protected:
  /// Twelve steps, a checkpoint every four, with `remove` at the second one.
  void train_while(const std::function<void()>& remove) {
    write_small_model(folder_.path("model"));
    write_latents_part(folder_.path("latents/part-000000.parquet"), 40, 1);
    write_empty_states(folder_.path("latents"));
    StoreSet stores({}, system_clock(), metrics_);
    FilesThatVanish files(run_, remove);
    TrainOptions options = small_training(folder_.path("model"), folder_.path("latents"), run_);
    options.recipe.runtime.background_saves = false;  // Else the first save may be under way when something is removed.
    const auto run = TrainingRun::create(files, stores, options);
    ASSERT_TRUE(run.is_ok()) << run.status().to_string();
    const Status trained = (*run)->run({});
    EXPECT_TRUE(trained.is_ok()) << trained.to_string();
    EXPECT_TRUE(files.has_vanished);
    for (const char* name : {"/checkpoints/step-00000008/state.json", "/checkpoints/step-00000012/state.json", "/metrics.jsonl",
                             "/goodput.jsonl", "/recipe.toml", "/index.json", "/run.json"}) {
      EXPECT_TRUE(is_there(name)) << name;
    }
    EXPECT_FALSE(is_there("/checkpoints/step-00000004"));
    TrainSummary summary;
    EXPECT_TRUE((*run)->sum_up(summary).is_ok());
    const auto second = local_files().try_lock(run_);
    EXPECT_TRUE(second.is_ok() && *second == nullptr) << "the run holds its folder";
  }
  int64_t num_metrics() const {
    std::ifstream metrics(run_ + "/metrics.jsonl");
    return std::count(std::istreambuf_iterator<char>(metrics), {}, '\n');
  }
};

/// The machine's files; what a watch hears of a rank that hangs in one of these calls is written down.
class FilesThatHang final : public ForwardingFiles {
 public:
  explicit FilesThatHang(WatchedRank& rank) : ForwardingFiles(local_files()), rank_(rank) {}

  Result<std::unique_ptr<OutputFile>> create(const std::string& path) override {
    if (const std::string doing = rank_.doing(); !doing.empty()) {
      stalls[std::filesystem::path(path).filename()] = doing;
    }
    return ForwardingFiles::create(path);
  }

  std::map<std::string, std::string> stalls;  // The last one by the file's name.

 private:
  WatchedRank& rank_;
};

TEST_F(TrainingRunTest, a_run_whose_disk_hangs_while_it_saves_is_seen_to_hang_there_but_not_while_it_sets_up) {
  write_small_model(folder_.path("model"));
  write_latents_part(folder_.path("latents/part-000000.parquet"), 40, 1);
  write_empty_states(folder_.path("latents"));
  StoreSet stores({}, system_clock(), metrics_);
  WatchedRank alone;
  FilesThatHang files(alone);
  TrainOptions options = small_training(folder_.path("model"), folder_.path("latents"), run_);
  options.recipe.runtime.background_saves = false;
  options.ranks = &alone.ranks;
  const auto run = TrainingRun::create(files, stores, options);
  ASSERT_TRUE(run.is_ok()) << run.status().to_string();
  EXPECT_THAT(files.stalls, IsEmpty());
  const Status trained = (*run)->run({});
  ASSERT_TRUE(trained.is_ok()) << trained.to_string();
  EXPECT_EQ(files.stalls["state.json"], "12 steps done, saving a checkpoint");
}

TEST_F(LostFolderTest, a_run_whose_folder_is_lost_saves_into_a_new_one) {
  train_while([this] { std::filesystem::remove_all(run_); });
}

TEST_F(LostFolderTest, a_run_whose_folder_is_emptied_fills_it_anew) {
  train_while([this] {
    std::vector<std::filesystem::path> within;
    for (const auto& entry : std::filesystem::directory_iterator(run_)) {
      within.push_back(entry.path());
    }
    for (const auto& path : within) {
      std::filesystem::remove_all(path);
    }
  });
}

TEST_F(LostFolderTest, facts_that_are_gone_are_written_again_and_nothing_else_changes) {
  train_while([this] { std::filesystem::remove(run_ + "/run.json"); });
  EXPECT_EQ(num_metrics(), 12);
}

TEST_F(TrainingRunTest, saves_before_it_ends_where_its_validation_set_cannot_be_read) {
  write_small_model(folder_.path("model"));
  write_latents_part(folder_.path("latents/part-000000.parquet"), 40, 1);
  write_empty_states(folder_.path("latents"));
  const std::string part = folder_.path("held-out/part-000001.parquet");  // The first one is opened at the start.
  write_latents_part(folder_.path("held-out/part-000000.parquet"), 4, 3);
  write_empty_states(folder_.path("held-out"));
  StoreSet stores({}, system_clock(), metrics_);
  TrainOptions options = small_training(folder_.path("model"), folder_.path("latents"), run_);
  options.recipe.checkpoint.every_steps = 100;
  options.recipe.validation = {.path = folder_.path("held-out"), .every_steps = 4, .num_rows = 10};
  const auto expect_saved = [&](int64_t step, const std::function<void()>& spoil) {
    write_latents_part(part, 40, 5, "held-");
    const auto run = TrainingRun::create(local_files(), stores, options);
    ASSERT_TRUE(run.is_ok()) << run.status().to_string();
    spoil();
    const Status failure = (*run)->run({});
    EXPECT_FALSE(failure.is_ok());
    EXPECT_THAT(failure.message(), HasSubstr("part-000001.parquet"));
    EXPECT_THAT(failure.message(), HasSubstr(fmt::format("the checkpoint of step {}, where the same command goes on", step)));
    EXPECT_TRUE(is_there("/checkpoints/" + checkpoint_name(step) + "/state.json"));
    std::filesystem::remove(part);
  };
  expect_saved(4, [&] { std::filesystem::remove(part); });
  expect_saved(8, [&] {
    const auto size = std::filesystem::file_size(part);
    std::filesystem::remove(part);
    std::ofstream(part) << std::string(size, 'x');
  });
  write_latents_part(part, 40, 5, "held-");
  EXPECT_TRUE(run_training(options, {}).is_ok());
  std::ifstream lines(run_ + "/metrics.jsonl");
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(lines), {}, '\n'), 12);
}

TEST_F(TrainingRunTest, saves_before_it_ends_where_the_gpu_has_no_memory_for_a_validation) {
  write_small_model(folder_.path("model"));
  for (const char* set : {"latents", "held-out"}) {
    write_latents_part(folder_.path(std::string(set) + "/part-000000.parquet"), 40, 1);
    write_empty_states(folder_.path(set));
  }
  StoreSet stores({}, system_clock(), metrics_);
  TrainOptions options = small_training(folder_.path("model"), folder_.path("latents"), folder_.path("undisturbed"));
  options.recipe.checkpoint.every_steps = 100;
  options.recipe.validation = {.path = folder_.path("held-out"), .every_steps = 4, .num_rows = 10};
  options.stop_at = 4;
  TrainSummary summary;
  const Status undisturbed = run_training(stores, options, {}, summary);
  ASSERT_TRUE(undisturbed.is_ok()) << undisturbed.to_string();

  options.output = run_;
  options.stop_at = 0;
  WatchedRank alone;
  bool was_full = false;
  alone.ranks.on_progress = [&] {  // The next is the validation.
    if (!was_full && alone.doing() == "4 steps done, writing its logs") {
      was_full = true;
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2 GiB.");
    }
  };
  options.ranks = &alone.ranks;
  const Status failure = run_training(stores, options, {}, summary);
  EXPECT_EQ(failure.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(failure.message(), HasSubstr("the checkpoint of step 4, where the same command goes on"));
  for (const char* name : {"unet", "ema"}) {
    const std::string file = std::string("/checkpoints/step-00000004/") + name + "/diffusion_pytorch_model.safetensors";
    const auto saved = read_file(local_files(), run_ + file);
    ASSERT_TRUE(saved.is_ok()) << saved.status().to_string();
    EXPECT_TRUE(*saved == *read_file(local_files(), folder_.path("undisturbed") + file)) << name;
  }
}

TEST_F(TrainingRunTest, saves_before_it_ends_where_samples_are_damaged) {
  constexpr int kParts = 8;
  write_small_model(folder_.path("model"));
  const auto part = [&](int number) { return folder_.path(fmt::format("latents/part-{:06}.parquet", number)); };
  for (int number = 0; number < kParts; ++number) {
    write_latents_part(part(number), 20, static_cast<uint64_t>(2 * number + 1), fmt::format("key-{}-", number));
  }
  write_empty_states(folder_.path("latents"));
  WatchedRank alone;
  bool is_damaged = false;
  alone.ranks.on_progress = [&] {
    if (is_damaged || !alone.doing().starts_with("3 steps done")) {
      return;
    }
    is_damaged = true;
    for (int number = 0; number < kParts; ++number) {
      std::fstream(part(number), std::ios::in | std::ios::out) << std::string(std::filesystem::file_size(part(number)), 'x');
    }
  };
  TrainOptions options = small_training(folder_.path("model"), folder_.path("latents"), run_, 24);
  options.recipe.checkpoint.every_steps = 0;
  options.recipe.data.window_blocks = 1;
  options.recipe.data.batches_ahead = 1;
  options.ranks = &alone.ranks;
  StoreSet stores({}, system_clock(), metrics_);
  TrainSummary summary;
  const Status failure = run_training(stores, options, {}, summary);
  EXPECT_EQ(failure.code(), StatusCode::kCorruptData) << failure.to_string();
  EXPECT_GE(summary.steps, 3);
  EXPECT_THAT(failure.message(), HasSubstr(fmt::format("the checkpoint of step {}", summary.steps)));
  EXPECT_TRUE(is_there("/checkpoints/" + checkpoint_name(summary.steps) + "/state.json"));
}

TEST(check_continuation, wants_the_dialect_that_the_run_began_with_where_both_are_known) {
  CheckpointRecord before, now;
  before.tokenizer_dialect = "hf";
  now.tokenizer_dialect = "open_clip";
  const Status refused = check_continuation(before, now);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("another dialect"));
  EXPECT_TRUE(check_continuation(before, before).is_ok());
  now.tokenizer_dialect.clear();  // A dataset that another program wrote does not tell.
  EXPECT_TRUE(check_continuation(before, now).is_ok());
  EXPECT_TRUE(check_continuation(now, before).is_ok());
}

TEST(memory_of_rank, is_a_share_of_the_machines) {
  EXPECT_EQ(memory_of_rank(1 << 30, 1), 1 << 30);
  EXPECT_EQ(memory_of_rank(1 << 30, 4), 1 << 28);
  EXPECT_EQ(memory_of_rank(1 << 21, 4), 1 << 20) << "no rank has less than a recipe may ask for";
}

/// Latents of two parts as a run opens them.
class OpenedLatents : public testing::Test {
 protected:
  void write(const std::string& part, int64_t num_rows, const nlohmann::json& made_by) {
    write_latents_part(folder_.path("latents/" + part), num_rows, 1, "key-", {{kLatentsFooterKey, made_by.dump()}});
  }
  Result<RunData> open() {
    const TrainOptions options = small_training("model", folder_.path("latents"), "run");
    StoreSet stores({}, system_clock(), metrics_);
    return open_latents(stores, options.recipe, {.latents = {4, 2, 2}, .states = {77, kSmallTextWidth}}, nullptr);
  }

  MetricsRegistry metrics_;
  TemporaryFolder folder_;
};

TEST_F(OpenedLatents, of_two_text_encoders_are_unfit_to_begin_with) {
  write("a/part-000000.parquet", 3, {{"text_encoder_fingerprint", "one"}});
  write("b/part-000000.parquet", 3, {{"text_encoder_fingerprint", "two"}});
  write_empty_states(folder_.path("latents"));
  const auto data = open();
  ASSERT_TRUE(data.is_ok()) << data.status().to_string();
  EXPECT_EQ(data->unfit.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(data->unfit.message(), HasSubstr("a/part-000000.parquet"));
  EXPECT_THAT(data->unfit.message(), HasSubstr("b/part-000000.parquet"));
}

/// A run of 4 steps over a dataset of two parts whose records do not go together any more.
class BegunOnUnfitData : public OpenedLatents {
 protected:
  void SetUp() override {
    write_small_model(folder_.path("model"));
    write("a/part-000000.parquet", 40, {{"text_encoder_fingerprint", "one"}});
    write("b/part-000000.parquet", 40, {{"text_encoder_fingerprint", "one"}});
    write_empty_states(folder_.path("latents"));
    ASSERT_TRUE(run_training(options("run", 4), {}).is_ok());
    std::filesystem::remove(folder_.path("latents/b/part-000000.parquet"));
    write("b/part-000000.parquet", 40, {{"text_encoder_fingerprint", "two"}, {"empty_caption_sha256", "another"}});
  }
  TrainOptions options(const std::string& run, int64_t max_steps) const {
    return small_training(folder_.path("model"), folder_.path("latents"), folder_.path(run), max_steps);
  }
};

TEST_F(BegunOnUnfitData, goes_on_with_a_warning) {
  testing::internal::CaptureStderr();
  const auto summary = run_training(options("run", 6), {});
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
  EXPECT_THAT(said, HasSubstr("b/part-000000.parquet"));
  EXPECT_THAT(said, HasSubstr("the run has begun so, and goes on"));
  EXPECT_THAT(said, HasSubstr("_empty_caption.safetensors"));
}

TEST_F(BegunOnUnfitData, begins_no_other_run) {
  const Status refused = run_training(options("other", 4), {}).status();
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.message(), HasSubstr("b/part-000000.parquet"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path("other")));
}

TEST_F(BegunOnUnfitData, goes_on_with_a_validation_set_of_other_frozen_parts) {
  std::filesystem::rename(folder_.path("latents/b"), folder_.path("held-out"));
  write("b/part-000000.parquet", 40, {{"text_encoder_fingerprint", "one"}});
  TrainOptions validated = options("run", 6);
  validated.recipe.validation = {.path = folder_.path("held-out"), .every_steps = 2, .num_rows = 4};
  testing::internal::CaptureStderr();
  const auto summary = run_training(validated, {});
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
  EXPECT_THAT(said, HasSubstr("the validation set was made with another text encoder"));
}

TEST_F(OpenedLatents, tell_the_largest_row_group_of_all_parts) {
  write("a/part-000000.parquet", 3, nlohmann::json::object());
  write("b/part-000000.parquet", 300, nlohmann::json::object());
  write_empty_states(folder_.path("latents"));
  const auto data = open();
  ASSERT_TRUE(data.is_ok()) << data.status().to_string();
  EXPECT_EQ(data->row_groups.largest, 300);
}

}  // namespace
}  // namespace darkroom
