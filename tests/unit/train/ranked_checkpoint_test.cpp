#include <gtest/gtest.h>

#include <filesystem>

#include "darkroom/core/sha256.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/tensor/safetensors.h"
#include "darkroom/train/checkpoint.h"
#include "saved_parameters.h"
#include "support/rank_threads.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

/// One rank's share of a network of five chunks.
struct RankShare {
  RankShare(torch::nn::Linear& network, Communicator& ranks, const EmaOptions& ema_options = {})
      : parameters(*network),
        slice(slice_of_rank(parameters.size(), ranks.rank(), ranks.size())),
        optimizer(parameters, {}, slice),
        ema(parameters, ema_options, slice),
        ranks_(ranks) {
    parameters.values().copy_(torch::arange(parameters.size(), torch::kFloat32) / 1000.0);
    ema.restart(parameters);
    state.max_moments_file_bytes = 200'000;  // Several files, cut elsewhere than the slices.
    state.ranks = &ranks;
  }

  void update() {
    parameters.gradients().copy_(torch::arange(parameters.size(), torch::kFloat32).sin());
    optimizer.update(0.1, 1.0, &ema);
    ASSERT_TRUE(gather_slices(ranks_, parameters.values()).is_ok());
  }
  CheckpointRecord record() const {
    return {.step = 2,
            .optimizer_updates = optimizer.num_updates(),
            .component = "unet",
            .index_hash = "hash",
            .recipe = "",
            .frozen_path = ""};
  }
  Status save(FileSystem& files, const std::string& folder) const { return save_parameters(files, folder, parameters); }

  FlatParameters parameters;
  FlatRange slice;
  AdamW optimizer;
  Ema ema;
  TrainingState state{parameters, optimizer, ema, [this](FileSystem& files, const std::string& folder) { return save(files, folder); }};
  Communicator& ranks_;
};

void save_with_ranks(int64_t num_ranks, const std::string& folder) {
  std::vector<torch::nn::Linear> networks;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    networks.emplace_back(300, 250);
  }
  run_rank_threads(num_ranks, [&](Communicator& ranks) {
    RankShare share(networks[static_cast<size_t>(ranks.rank())], ranks);
    share.update();
    share.update();
    const Status saved =
        ranks.rank() == 0 ? save_checkpoint(local_files(), folder, share.record(), share.state) : hand_in_training_state(share.state);
    EXPECT_TRUE(saved.is_ok()) << saved.to_string();
  });
}

// SHA-256 of every file, by its name.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      found[entry.path().lexically_relative(folder).string()] = sha256_hex(*read_file(local_files(), entry.path().string()));
    }
  }
  return found;
}

TEST(ranked_checkpoint, has_the_same_bytes_for_any_number_of_ranks) {
  const TemporaryFolder folder;
  save_with_ranks(1, folder.path("1"));
  const auto want = contents(folder.path("1"));
  EXPECT_GE(want.size(), 6U) << "weights, average, record and several files of moments";
  for (const int64_t num_ranks : {2, 3, 7}) {
    const std::string name = std::to_string(num_ranks);
    save_with_ranks(num_ranks, folder.path(name));
    EXPECT_EQ(contents(folder.path(name)), want) << name;
  }
}

TEST(ranked_checkpoint, any_number_of_ranks_reads_that_of_any_other) {
  const TemporaryFolder folder;
  save_with_ranks(3, folder.path("saved"));
  const std::string path = folder.path("saved") + "/" + checkpoint_name(2);
  torch::nn::Linear whole_network(300, 250);
  RankShare whole(whole_network, lone_rank());
  whole.update();
  whole.update();
  const int64_t num_files = count_moments_files(path).value();
  for (const int64_t num_ranks : {1, 2, 4}) {
    std::vector<torch::nn::Linear> networks;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      networks.emplace_back(300, 250);
    }
    run_rank_threads(num_ranks, [&](Communicator& ranks) {
      RankShare share(networks[static_cast<size_t>(ranks.rank())], ranks);
      const Status taken = ranks.rank() == 0 ? restore_training_state(path, *read_checkpoint(local_files(), path), share.state)
                                             : take_training_state(share.state, num_files);
      ASSERT_TRUE(taken.is_ok()) << taken.to_string();
      EXPECT_TRUE(torch::equal(share.optimizer.first_moment(), share.slice.of(whole.optimizer.first_moment())));
      EXPECT_TRUE(torch::equal(share.optimizer.second_moment(), share.slice.of(whole.optimizer.second_moment())));
      EXPECT_TRUE(torch::equal(share.ema.weights(), share.slice.of(whole.ema.weights())));
    });
  }
}

TEST(ranked_checkpoint, without_an_average_that_of_before_does_not_take_the_place_of_the_weights) {
  const TemporaryFolder folder;
  save_with_ranks(1, folder.path("saved"));
  const std::string path = folder.path("saved") + "/" + checkpoint_name(2);
  const int64_t num_files = count_moments_files(path).value();
  for (const int64_t num_ranks : {1, 2}) {
    std::vector<torch::nn::Linear> networks;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      networks.emplace_back(300, 250);
    }
    run_rank_threads(num_ranks, [&](Communicator& ranks) {
      RankShare share(networks[static_cast<size_t>(ranks.rank())], ranks, {.decay = 0.0});
      const torch::Tensor weights = share.parameters.values().clone();
      const Status taken = ranks.rank() == 0 ? restore_training_state(path, *read_checkpoint(local_files(), path), share.state)
                                             : take_training_state(share.state, num_files);
      ASSERT_TRUE(taken.is_ok()) << taken.to_string();
      EXPECT_TRUE(torch::equal(share.parameters.values(), weights));
    });
  }
}

}  // namespace
}  // namespace darkroom
