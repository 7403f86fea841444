#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "darkroom/core/random.h"
#include "darkroom/core/verbosity.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/optim/train_step.h"
#include "darkroom/tensor/safetensors.h"
#include "darkroom/train/checkpoint.h"
#include "plain_config.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

// Bad numbers and damaged files, many of them: the short form belongs to every test run, the full one to the acceptance (docs/testing.md).
int64_t num_trials(int64_t short_form, int64_t full) {
  const char* form = std::getenv("DARKROOM_FAULTS");
  return form != nullptr && std::string_view(form) == "full" ? full : short_form;
}

/// A small network that learns a linear map, with all that trains it and what a checkpoint holds of it.
struct LearningRun {
  static constexpr double kRate = 1e-2;
  static constexpr double kClipNorm = 1.0;
  static constexpr double kDecay = 1e-2;
  static constexpr int64_t kBatch = 4;

  LearningRun() { parameters.values().copy_(torch::arange(parameters.size(), torch::kFloat32) / 10.0); }

  Result<StepReport> train(int64_t index) {
    torch::manual_seed(static_cast<uint64_t>(index));
    const torch::Tensor inputs = torch::randn({kBatch, 6});
    return step.run(index, kBatch, [&](int64_t first, int64_t count) {
      const torch::Tensor some = inputs.narrow(0, first, count);
      return (network->forward(some) - some.narrow(1, 0, 3)).square().mean(1);
    });
  }
  std::vector<torch::Tensor> held() const {
    return {parameters.values(), optimizer.first_moment(), optimizer.second_moment(), ema.weights()};
  }
  CheckpointRecord record(int64_t index) const {
    return {.step = index,
            .batch_number = index,
            .optimizer_updates = optimizer.num_updates(),
            .component = "unet",
            .index_hash = "hash",
            .recipe = "",
            .frozen_path = ""};
  }

  torch::nn::Linear network{6, 3};
  FlatParameters parameters{*network};
  AdamW optimizer{parameters, {.weight_decay = kDecay}};
  Ema ema{parameters, {}};
  TrainStep step{
      parameters, optimizer, &ema, {.micro_batch = 2, .max_grad_norm = kClipNorm, .schedule = {.peak = kRate, .warmup_steps = 0}}};
  TrainingState state{parameters, optimizer, ema, save_plain_config};
};

std::vector<torch::Tensor> copies(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copied;
  for (const torch::Tensor& tensor : tensors) {
    copied.push_back(tensor.clone());
  }
  return copied;
}

/// What one bad number in one gradient may be: a NaN, or any bit of the exponent the other way round.
float spoil(float value, const CounterRandom& random, uint64_t draw) {
  constexpr uint32_t kMantissaBits = 23, kExponentBits = 8;
  const uint32_t kind = random.below(draw, kExponentBits + 1);
  return kind == kExponentBits ? std::numeric_limits<float>::quiet_NaN()
                               : std::bit_cast<float>(std::bit_cast<uint32_t>(value) ^ 1U << (kMantissaBits + kind));
}

// What an update may do to a weight, whatever the gradients were: AdamW's own bound (Kingma and Ba 2015, section 2.1) and the decay.
void expect_update_of_bounded_size(const std::vector<torch::Tensor>& before, const std::vector<torch::Tensor>& after) {
  constexpr double kMostOfAdam = 3.17;  // (1 - beta1) / sqrt(1 - beta2).
  const torch::Tensor moved = (after[0] - before[0]).abs();
  const torch::Tensor bound = LearningRun::kRate * (kMostOfAdam * 1.01 + LearningRun::kDecay * before[0].abs());
  EXPECT_TRUE(moved.le(bound).all().item<bool>());
  // The moments take in a gradient whose norm was clipped: what a sound batch may bring as well.
  EXPECT_TRUE((after[1] - 0.9 * before[1]).abs().le(0.1 * LearningRun::kClipNorm * 1.001).all().item<bool>());
  EXPECT_TRUE((after[2] - 0.999 * before[2]).abs().le(0.001 * LearningRun::kClipNorm * 1.01 + 1e-6).all().item<bool>());
}

void expect_finite_checkpoint(const std::string& folder) {
  ASSERT_TRUE(read_checkpoint(local_files(), folder).is_ok());
  for (const char* name :
       {"unet/diffusion_pytorch_model.safetensors", "ema/diffusion_pytorch_model.safetensors", "optimizer-00000-of-00001.safetensors"}) {
    const auto file = SafetensorsFile::open(folder + "/" + name);
    ASSERT_TRUE(file.is_ok()) << file.status().to_string();
    for (const std::string& tensor : (*file)->names()) {
      EXPECT_TRUE((*file)->tensor(tensor)->isfinite().all().item<bool>()) << name << " " << tensor;
    }
  }
}

TEST(bad_bits, in_a_gradient_are_caught_or_harmless_and_in_no_checkpoint) {
  const TemporaryFolder folder;
  const CounterRandom random(7, Purpose::kSelect, 0, "gradient bits");
  LearningRun run;
  bool is_armed = false;
  uint64_t draw = 0;
  for (torch::Tensor parameter : run.parameters.parameters()) {
    parameter.register_hook([&, size = parameter.numel()](const torch::Tensor& gradient) {
      const auto element = static_cast<int64_t>(random.below(draw++, static_cast<uint32_t>(run.parameters.size())));
      if (!is_armed || element >= size) {
        return gradient;
      }
      is_armed = false;
      torch::Tensor spoilt = gradient.clone();
      float& value = spoilt.flatten().data_ptr<float>()[element];
      value = spoil(value, random, draw++);
      return spoilt;
    });
  }
  int64_t num_caught = 0, num_harmless = 0;
  const int64_t wanted = num_trials(50, 1'000);
  for (int64_t index = 0; num_caught + num_harmless < wanted; ++index) {
    const std::vector<torch::Tensor> before = copies(run.held());
    is_armed = true;
    const auto report = run.train(index);
    if (is_armed) {
      continue;  // The draws chose no element.
    }
    if (report.is_ok()) {
      ++num_harmless;
      expect_update_of_bounded_size(before, run.held());
    } else {
      ++num_caught;
      EXPECT_TRUE(run.step.was_not_finite()) << report.status().to_string();
    }
    for (size_t i = 0; i < before.size(); ++i) {
      const torch::Tensor now = run.held()[i];
      EXPECT_TRUE(report.is_ok() ? now.isfinite().all().item<bool>() : torch::equal(now, before[i])) << i;
    }
    if (index % 25 == 0) {
      ASSERT_TRUE(save_checkpoint(local_files(), folder.path("checkpoints"), run.record(index + 1), run.state).is_ok());
      expect_finite_checkpoint(folder.path("checkpoints") + "/" + checkpoint_name(index + 1));
    }
    ASSERT_LT(index, 100 * wanted);
  }
  EXPECT_GT(num_caught, 0);
  EXPECT_GT(num_harmless, 0);
  RecordProperty("caught", std::to_string(num_caught));
  RecordProperty("harmless", std::to_string(num_harmless));
}

/// Two checkpoints, of which the newer one is damaged again and again.
class DamagedCheckpoints : public testing::Test {
 protected:
  void SetUp() override {
    set_verbosity(Verbosity::kQuiet);
    for (const int64_t step : {1, 2}) {
      ASSERT_TRUE(run_.train(step).is_ok());
      ASSERT_TRUE(save_checkpoint(files_, "checkpoints", run_.record(step), run_.state).is_ok());
    }
    const auto listed = files_.list_tree(newest_);
    ASSERT_TRUE(listed.is_ok());
    for (const auto& file : *listed) {
      sound_.emplace_back(file.path, *read_file(files_, file.path));
      num_bytes_ += sound_.back().second.size();
    }
    ASSERT_GE(sound_.size(), 4U);
  }
  void TearDown() override { set_verbosity(Verbosity::kNormal); }

  /// Every byte of the checkpoint is as likely: its file, and its place there.
  std::pair<size_t, size_t> draw_byte(uint64_t draw) const {
    size_t at = random_.below(draw, static_cast<uint32_t>(num_bytes_)), file = 0;
    while (at >= sound_[file].second.size()) {
      at -= sound_[file++].second.size();
    }
    return {file, at};
  }
  void expect_refused(size_t file, const std::string& damaged) {
    const auto& [path, bytes] = sound_[file];
    ASSERT_TRUE(write_file_atomic(files_, path, damaged).is_ok());
    EXPECT_EQ(read_checkpoint(files_, newest_).status().code(), StatusCode::kCorruptData) << path;
    const auto found = find_newest_checkpoint(files_, "checkpoints");
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    ASSERT_TRUE(found->has_value());
    EXPECT_EQ((*found)->place.step, 1) << path;
    ASSERT_TRUE(files_.rename_no_replace("checkpoints/damaged-" + checkpoint_name(2), newest_).is_ok());
    ASSERT_TRUE(write_file_atomic(files_, path, bytes).is_ok());
  }

  MemoryFileSystem files_;
  LearningRun run_;
  const std::string newest_ = "checkpoints/" + checkpoint_name(2);
  std::vector<std::pair<std::string, std::string>> sound_;
  size_t num_bytes_ = 0;
  const CounterRandom random_{11, Purpose::kSelect, 0, "checkpoint bits"};
};

TEST_F(DamagedCheckpoints, any_flipped_bit_is_refused_and_the_one_before_is_taken) {
  const int64_t wanted = num_trials(300, 10'000);
  for (int64_t trial = 0; trial < wanted && !HasFatalFailure(); ++trial) {
    const auto [file, at] = draw_byte(2 * static_cast<uint64_t>(trial));
    std::string damaged = sound_[file].second;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << random_.below(2 * static_cast<uint64_t>(trial) + 1, 8));
    expect_refused(file, damaged);
  }
  EXPECT_TRUE(read_checkpoint(files_, newest_).is_ok());
}

TEST_F(DamagedCheckpoints, any_truncation_is_refused_and_the_one_before_is_taken) {
  const int64_t wanted = num_trials(50, 1'000);
  for (int64_t trial = 0; trial < wanted && !HasFatalFailure(); ++trial) {
    const auto [file, at] = draw_byte(static_cast<uint64_t>(trial));
    expect_refused(file, sound_[file].second.substr(0, at));
  }
  EXPECT_TRUE(read_checkpoint(files_, newest_).is_ok());
}

}  // namespace
}  // namespace darkroom
