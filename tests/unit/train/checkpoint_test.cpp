#include "darkroom/train/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "darkroom/core/random.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/fault_files.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/files/publication.h"
#include "darkroom/tensor/safetensors.h"
#include "plain_config.h"
#include "support/crash_everywhere.h"
#include "support/foreign_checkpoint.h"
#include "support/forwarding_files.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

/// A small network with its optimizer: what a run would checkpoint.
struct SmallRun {
  torch::nn::Linear network{3, 2};
  FlatParameters parameters{*network};
  AdamW optimizer{parameters, {}};
  Ema ema{parameters, {}};
  TrainingState state{parameters, optimizer, ema, save_plain_config};

  explicit SmallRun(float start = 0) { parameters.values().copy_(torch::arange(parameters.size(), torch::kFloat32) + start); }

  void update(int64_t times) {
    for (int64_t i = 0; i < times; ++i) {
      parameters.gradients().fill_(0.5F);
      optimizer.update(0.1, 1.0, &ema);
    }
  }
  CheckpointRecord record() const {
    return {.step = optimizer.num_updates(),
            .samples = 4 * optimizer.num_updates(),
            .batch_number = optimizer.num_updates(),
            .optimizer_updates = optimizer.num_updates(),
            .component = "unet",
            .index_hash = "hash",
            .recipe = "[batch]\nglobal = 4\n",
            .frozen_path = "model",
            .frozen_fingerprints = {{"vae", "abc"}}};
  }
};

class CheckpointTest : public testing::Test {
 protected:
  /// Checkpoints of steps 1 .. count.
  void save_steps(SmallRun& run, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      run.update(1);
      ASSERT_TRUE(save_checkpoint(files, folder, run.record(), run.state).is_ok());
    }
  }
  std::string path(int64_t step) const { return folder + "/" + checkpoint_name(step); }
  std::vector<int64_t> steps() {
    std::vector<int64_t> found;
    const auto places = list_checkpoints(files, folder);
    EXPECT_TRUE(places.is_ok());
    for (const auto& place : *places) {
      found.push_back(place.step);
    }
    return found;
  }
  /// As another program would have written it, its own digest included.
  void rewrite_record(int64_t step, const std::function<void(nlohmann::json&)>& change) {
    const std::string file = path(step) + "/state.json";
    auto state = nlohmann::json::parse(*read_file(files, file));
    change(state);
    ASSERT_TRUE(write_file_atomic(files, file, signed_checkpoint_record(state)).is_ok());
  }
  void flip_bit(const std::string& file, size_t bit) {
    std::string bytes = *read_file(files, file);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    ASSERT_TRUE(write_file_atomic(files, file, bytes).is_ok());
  }

  TemporaryFolder temporary;
  FileSystem& files = local_files();
  std::string folder = temporary.path("checkpoints");
};

TEST_F(CheckpointTest, gives_back_weights_moments_average_and_record) {
  SmallRun run;
  save_steps(run, 3);
  const auto record = read_checkpoint(files, path(3));
  ASSERT_TRUE(record.is_ok()) << record.status().to_string();
  EXPECT_EQ(record->step, 3);
  EXPECT_EQ(record->samples, 12);
  EXPECT_EQ(record->recipe, run.record().recipe);
  EXPECT_EQ(record->frozen_fingerprints, run.record().frozen_fingerprints);
  SmallRun other(100);
  other.parameters.values().copy_(run.parameters.values());
  ASSERT_TRUE(restore_training_state(path(3), *record, other.state).is_ok());
  EXPECT_TRUE(torch::equal(other.optimizer.first_moment(), run.optimizer.first_moment()));
  EXPECT_TRUE(torch::equal(other.optimizer.second_moment(), run.optimizer.second_moment()));
  EXPECT_TRUE(torch::equal(other.ema.weights(), run.ema.weights()));
  run.update(2);
  other.update(2);
  EXPECT_TRUE(torch::equal(other.parameters.values(), run.parameters.values()));
}

TEST_F(CheckpointTest, moments_are_cut_into_files_that_a_store_copies) {
  SmallRun run;
  run.state.max_moments_file_bytes = 3 * 8;  // Of 8 parameters three.
  save_steps(run, 1);
  EXPECT_TRUE(*files.exists(path(1) + "/optimizer-00002-of-00003.safetensors"));
  EXPECT_FALSE(*files.exists(path(1) + "/optimizer-00003-of-00003.safetensors"));
  const auto record = read_checkpoint(files, path(1));
  ASSERT_TRUE(record.is_ok()) << record.status().to_string();
  SmallRun other(100);
  ASSERT_TRUE(restore_training_state(path(1), *record, other.state).is_ok());
  EXPECT_TRUE(torch::equal(other.optimizer.first_moment(), run.optimizer.first_moment()));
  EXPECT_TRUE(torch::equal(other.optimizer.second_moment(), run.optimizer.second_moment()));
}

TEST_F(CheckpointTest, saving_leaves_the_training_state_as_it_was) {
  SmallRun run;
  run.update(2);
  const auto weights = run.parameters.values().clone();
  const auto average = run.ema.weights().clone();
  ASSERT_TRUE(save_checkpoint(files, folder, run.record(), run.state).is_ok());
  EXPECT_TRUE(torch::equal(run.parameters.values(), weights));
  EXPECT_TRUE(torch::equal(run.ema.weights(), average));
}

TEST_F(CheckpointTest, a_path_that_is_no_utf8_can_be_recorded) {
  SmallRun run;
  run.update(1);
  CheckpointRecord record = run.record();
  record.frozen_path = "m\xff";
  record.recipe = "[model]\npath = \"m\xff\"\n";
  ASSERT_TRUE(save_checkpoint(files, folder, record, run.state).is_ok());
  const auto read = read_checkpoint(files, path(1));
  ASSERT_TRUE(read.is_ok()) << read.status().to_string();
  EXPECT_EQ(read->frozen_path, "m\uFFFD");
}

TEST_F(CheckpointTest, a_valid_checkpoint_is_never_overwritten) {
  SmallRun run;
  save_steps(run, 1);
  EXPECT_EQ(save_checkpoint(files, folder, run.record(), run.state).code(), StatusCode::kAlreadyExists);
}

TEST_F(CheckpointTest, a_damaged_checkpoint_is_set_aside_when_its_step_comes_again) {
  SmallRun run;
  save_steps(run, 1);
  flip_bit(path(1) + "/unet/diffusion_pytorch_model.safetensors", 900);
  ASSERT_TRUE(save_checkpoint(files, folder, run.record(), run.state).is_ok());
  EXPECT_TRUE(read_checkpoint(files, path(1)).is_ok());
}

TEST_F(CheckpointTest, any_flipped_bit_and_any_truncation_is_noticed) {
  SmallRun run;
  save_steps(run, 1);
  const CounterRandom random(1, Purpose::kSelect, 0, "flips");
  uint64_t draw = 0;
  const auto listed = files.list_tree(path(1));
  ASSERT_TRUE(listed.is_ok());
  for (const auto& file : *listed) {
    const std::string bytes = *read_file(files, file.path);
    for (int i = 0; i < 6; ++i) {
      flip_bit(file.path, random.below(draw++, static_cast<uint32_t>(bytes.size() * 8)));
      EXPECT_EQ(read_checkpoint(files, path(1)).status().code(), StatusCode::kCorruptData) << file.path;
      ASSERT_TRUE(write_file_atomic(files, file.path, bytes.substr(0, random.below(draw++, static_cast<uint32_t>(bytes.size())))).is_ok());
      EXPECT_EQ(read_checkpoint(files, path(1)).status().code(), StatusCode::kCorruptData) << file.path;
      ASSERT_TRUE(write_file_atomic(files, file.path, bytes).is_ok());
    }
  }
  EXPECT_TRUE(read_checkpoint(files, path(1)).is_ok());
}

TEST_F(CheckpointTest, a_missing_file_is_damage_and_a_missing_state_is_no_checkpoint) {
  SmallRun run;
  save_steps(run, 2);
  ASSERT_TRUE(files.remove_tree(path(2) + "/ema").is_ok());
  EXPECT_EQ(read_checkpoint(files, path(2)).status().code(), StatusCode::kCorruptData);
  ASSERT_TRUE(files.remove_file(path(1) + "/state.json").is_ok());
  EXPECT_EQ(read_checkpoint(files, path(1)).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(steps(), std::vector<int64_t>{2});
}

TEST_F(CheckpointTest, auto_takes_the_newest_valid_one_and_sets_damaged_ones_aside) {
  SmallRun run;
  save_steps(run, 3);
  flip_bit(path(3) + "/optimizer-00000-of-00001.safetensors", 1000);
  const auto found = find_newest_checkpoint(files, folder);
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ((*found)->place.step, 2);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(*files.exists(folder + "/damaged-step-00000003"));
}

/// One file of a checkpoint cannot be opened, so often.
class UnopenedFile final : public ForwardingFiles {
 public:
  UnopenedFile(std::string path, int num_times, Status failure)
      : ForwardingFiles(local_files()), path_(std::move(path)), num_left_(num_times), failure_(std::move(failure)) {}

  Result<std::unique_ptr<InputFile>> open_input(const std::string& path) override {
    if (path == path_ && num_left_-- > 0) {
      return failure_;
    }
    return ForwardingFiles::open_input(path);
  }

 private:
  const std::string path_;
  int num_left_;
  const Status failure_;
};

TEST_F(CheckpointTest, one_that_cannot_be_read_just_now_is_no_damaged_one) {
  SmallRun run;
  save_steps(run, 2);
  for (const Status& failure : {Status::resource_exhausted("too many open files"), Status::failed_precondition("permission denied"),
                                Status::unavailable("stale file handle")}) {
    for (const char* name : {"state.json", "unet/diffusion_pytorch_model.safetensors", "optimizer-00000-of-00001.safetensors"}) {
      UnopenedFile once(path(2) + "/" + name, 1, failure);
      EXPECT_EQ(find_newest_checkpoint(once, folder).status().code(), failure.code()) << name;
      EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2}));
      const auto found = find_newest_checkpoint(once, folder);
      ASSERT_TRUE(found.is_ok()) << found.status().to_string();
      EXPECT_EQ((*found)->place.step, 2);
      UnopenedFile again(path(2) + "/" + name, 1, failure);
      EXPECT_EQ(save_checkpoint(again, folder, run.record(), run.state).code(), failure.code()) << name;
      EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2}));
    }
  }
}

TEST_F(CheckpointTest, one_that_is_read_wrongly_once_is_no_damaged_one) {
  SmallRun run;
  save_steps(run, 2);
  UnopenedFile once(path(2) + "/ema/diffusion_pytorch_model.safetensors", 1, Status::not_found("no such file"));
  const auto found = find_newest_checkpoint(once, folder);
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_EQ((*found)->place.step, 2);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2}));
}

TEST_F(CheckpointTest, auto_fails_when_every_checkpoint_is_damaged) {
  SmallRun run;
  save_steps(run, 1);
  flip_bit(path(1) + "/state.json", 300);
  EXPECT_EQ(find_newest_checkpoint(files, folder).status().code(), StatusCode::kCorruptData);
}

TEST_F(CheckpointTest, auto_finds_nothing_in_a_new_run) {
  const auto found = find_newest_checkpoint(files, folder);
  ASSERT_TRUE(found.is_ok());
  EXPECT_FALSE(found->has_value());
}

TEST_F(CheckpointTest, refuses_a_later_format_version) {
  SmallRun run;
  save_steps(run, 1);
  rewrite_record(1, [](nlohmann::json& state) { state["format_version"] = 2; });
  EXPECT_EQ(read_checkpoint(files, path(1)).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(CheckpointTest, one_of_a_later_format_version_keeps_its_name) {
  SmallRun run;
  save_steps(run, 1);
  rewrite_record(1, [](nlohmann::json& state) { state["format_version"] = 2; });
  const std::string record = *read_file(files, path(1) + "/state.json");
  EXPECT_EQ(save_checkpoint(files, folder, run.record(), run.state).code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(*read_file(files, path(1) + "/state.json"), record);
}

TEST_F(CheckpointTest, moments_are_those_of_the_record_whatever_lies_beside_them) {
  SmallRun run;
  save_steps(run, 1);
  ASSERT_TRUE(write_file_atomic(files, path(1) + "/optimizer-copy.safetensors", "not of this checkpoint").is_ok());
  const auto record = read_checkpoint(files, path(1));
  ASSERT_TRUE(record.is_ok()) << record.status().to_string();
  SmallRun other(100);
  const Status restored = restore_training_state(path(1), *record, other.state);
  ASSERT_TRUE(restored.is_ok()) << restored.to_string();
  EXPECT_TRUE(torch::equal(other.optimizer.first_moment(), run.optimizer.first_moment()));
}

// Which would be read without an end.
TEST_F(CheckpointTest, a_file_that_is_a_pipe_a_device_or_longer_than_recorded_is_damage) {
  SmallRun run;
  save_steps(run, 1);
  const std::string weights = path(1) + "/ema/diffusion_pytorch_model.safetensors";
  const auto expect_damaged = [&] {
    const Status refused = read_checkpoint(files, path(1)).status();
    EXPECT_EQ(refused.code(), StatusCode::kCorruptData) << refused.to_string();
    EXPECT_THAT(refused.message(), HasSubstr(weights));
  };
  std::filesystem::resize_file(weights, uintmax_t{1} << 40);  // A hole, which takes long to read.
  expect_damaged();
  rewrite_record(1, [](nlohmann::json& state) {
    state["files"]["ema/diffusion_pytorch_model.safetensors"] = {{"size_bytes", 0}, {"sha256", sha256_hex("")}};
  });
  std::filesystem::remove(weights);
  std::filesystem::create_symlink("/dev/zero", weights);
  expect_damaged();
  std::filesystem::remove(weights);
  ASSERT_EQ(::mkfifo(weights.c_str(), 0600), 0);
  expect_damaged();
}

TEST_F(CheckpointTest, refuses_the_state_of_another_network) {
  SmallRun run;
  save_steps(run, 1);
  torch::nn::Linear larger(5, 2);
  FlatParameters parameters(*larger);
  AdamW optimizer(parameters, {});
  Ema ema(parameters, {});
  TrainingState state{parameters, optimizer, ema, {}};
  EXPECT_EQ(restore_training_state(path(1), *read_checkpoint(files, path(1)), state).code(), StatusCode::kFailedPrecondition);
}

TEST_F(CheckpointTest, keeps_the_last_ones_and_every_mth) {
  SmallRun run;
  save_steps(run, 9);
  ASSERT_TRUE(prune_checkpoints(files, folder, 2, 3).is_ok());
  EXPECT_EQ(steps(), (std::vector<int64_t>{3, 6, 8, 9}));
  ASSERT_TRUE(prune_checkpoints(files, folder, 1, 0).is_ok());
  EXPECT_EQ(steps(), std::vector<int64_t>{9});
  ASSERT_TRUE(prune_checkpoints(files, folder, 5, 0).is_ok());
  EXPECT_EQ(steps(), std::vector<int64_t>{9});
}

// What a start finds: checkpoints that are whole, and nothing else once it has swept.
TEST(checkpoint_faults, a_death_at_any_call_of_a_removal_leaves_whole_checkpoints_and_no_remains) {
  const auto prepare = [](FileSystem& files) {
    SmallRun run;
    for (int64_t i = 0; i < 4; ++i) {
      run.update(1);
      ASSERT_TRUE(save_checkpoint(files, "checkpoints", run.record(), run.state).is_ok());
    }
  };
  const auto prune = [](FileSystem& files) { return prune_checkpoints(files, "checkpoints", 1, 0); };
  crash_everywhere(prepare, prune, [](FileSystem& files, bool acknowledged) {
    ASSERT_TRUE(sweep_unpublished(files, "checkpoints").is_ok());
    const auto entries = files.list("checkpoints");
    ASSERT_TRUE(entries.is_ok());
    int64_t num_checkpoints = 0;
    for (const FileInfo& entry : *entries) {
      if (entry.path == "checkpoints/_tmp") {
        EXPECT_TRUE(files.list(entry.path)->empty());
      } else {
        ++num_checkpoints;
        EXPECT_TRUE(read_checkpoint(files, entry.path).is_ok()) << entry.path;
      }
    }
    EXPECT_TRUE(*files.exists("checkpoints/step-00000004"));
    EXPECT_TRUE(!acknowledged || num_checkpoints == 1);
  });
}

/// What must hold after a save of step 2 ended in whatever way: step 1 is there and valid, and step 2 is whole or absent.
void expect_whole_checkpoints(FileSystem& files, const std::string& folder) {
  const auto places = list_checkpoints(files, folder);
  ASSERT_TRUE(places.is_ok());
  ASSERT_FALSE(places->empty());
  EXPECT_EQ(places->front().step, 1);
  for (const auto& place : *places) {
    EXPECT_TRUE(read_checkpoint(files, place.path).is_ok()) << place.path;
  }
}

TEST(checkpoint_faults, a_full_disk_or_a_death_at_any_call_costs_no_committed_checkpoint) {
  for (const Fault fault : {Fault::kNoSpace, Fault::kInputOutput, Fault::kShortWrite, Fault::kDeath}) {
    bool save_succeeded = false;
    for (int64_t call = 0; !save_succeeded; ++call) {
      MemoryFileSystem memory;
      SmallRun run;
      run.update(1);
      ASSERT_TRUE(save_checkpoint(memory, "checkpoints", run.record(), run.state).is_ok());
      run.update(1);
      {
        FaultInjectingFileSystem faulty(memory);
        faulty.fail_call(call, fault);
        save_succeeded = save_checkpoint(faulty, "checkpoints", run.record(), run.state).is_ok();
      }
      expect_whole_checkpoints(memory, "checkpoints");
      ASSERT_LT(call, 200) << "the save never succeeds";
    }
  }
}

TEST(checkpoint_faults, a_power_loss_after_the_save_keeps_it_and_one_before_keeps_the_earlier_one) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    MemoryFileSystem memory;
    SmallRun run;
    run.update(1);
    ASSERT_TRUE(save_checkpoint(memory, "checkpoints", run.record(), run.state).is_ok());
    memory.crash(seed);
    expect_whole_checkpoints(memory, "checkpoints");
    run.update(1);
    {
      FaultInjectingFileSystem faulty(memory);
      faulty.fail_call(static_cast<int64_t>(seed), Fault::kDeath);
      (void)save_checkpoint(faulty, "checkpoints", run.record(), run.state);
    }
    memory.crash(seed);
    expect_whole_checkpoints(memory, "checkpoints");
  }
}

}  // namespace
}  // namespace darkroom
