#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "darkroom/core/sha256.h"
#include "darkroom/files/fault_files.h"
#include "darkroom/optim/gradient_groups.h"
#include "darkroom/tensor/safetensors.h"
#include "darkroom/train/checkpoint.h"
#include "plain_config.h"
#include "support/counted_memory.h"
#include "support/forwarding_files.h"
#include "support/rank_threads.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

/// One rank's share of a network of five chunks.
struct RankShare {
  RankShare(torch::nn::Linear& network, Communicator& ranks, const EmaOptions& ema_options = {}, torch::ScalarType type = torch::kFloat32)
      : parameters(*network, {.compute_type = type, .rank = ranks.rank(), .num_ranks = ranks.size()}),
        slice(slice_of_rank(parameters.size(), ranks.rank(), ranks.size())),
        optimizer(parameters, {}, slice),
        ema(parameters, ema_options, slice),
        ranks_(ranks) {
    parameters.values().copy_(parameters.master_range().of(torch::arange(parameters.size(), torch::kFloat32) / 1000.0));
    ema.restart(parameters);
    state.max_moments_file_bytes = 200'000;  // Several files, cut elsewhere than the slices.
    state.ranks = &ranks;
  }

  void update() {
    parameters.gradients().copy_(torch::arange(parameters.size(), torch::kFloat32).sin());
    optimizer.update(0.1, 1.0, &ema);
    ASSERT_TRUE(gather_weights(ranks_, parameters).is_ok());
  }
  CheckpointRecord record() const {
    return {.step = 2,
            .batch_number = 2,
            .optimizer_updates = optimizer.num_updates(),
            .component = "unet",
            .index_hash = "hash",
            .recipe = "",
            .frozen_path = ""};
  }
  /// Of this rank, in a save by all.
  Status save(FileSystem& files, const std::string& folder) {
    return ranks_.rank() == 0 ? save_checkpoint(files, folder, record(), state) : hand_in_training_state(state);
  }

  FlatParameters parameters;
  FlatRange slice;
  AdamW optimizer;
  Ema ema;
  TrainingState state{parameters, optimizer, ema, save_plain_config};
  Communicator& ranks_;
};

/// Runs `body` at every rank with its share, after two updates.
void with_shares(int64_t num_ranks, const std::function<void(RankShare&, Communicator&)>& body, torch::ScalarType type = torch::kFloat32) {
  std::vector<torch::nn::Linear> networks;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    networks.emplace_back(300, 250);
  }
  run_rank_threads(num_ranks, [&](Communicator& ranks) {
    RankShare share(networks[static_cast<size_t>(ranks.rank())], ranks, {}, type);
    share.update();
    share.update();
    body(share, ranks);
  });
}

void save_with_ranks(int64_t num_ranks, const std::string& folder, FileSystem& files = local_files(),
                     torch::ScalarType type = torch::kFloat32) {
  const auto save = [&](RankShare& share, Communicator&) {
    const Status saved = share.save(files, folder);
    EXPECT_TRUE(saved.is_ok()) << saved.to_string();
  };
  with_shares(num_ranks, save, type);
}

/// A folder that rank 0 alone can write: ranges are written in this machine's own files only.
struct FarFiles final : ForwardingFiles {
  FarFiles() : ForwardingFiles(local_files()) {}
};

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
    const std::string name = std::to_string(num_ranks) + (num_ranks == 2 ? "\xff" : "");  // A path need not be UTF-8.
    save_with_ranks(num_ranks, folder.path(name));
    EXPECT_EQ(contents(folder.path(name)), want) << name;
    FarFiles far;
    save_with_ranks(num_ranks, folder.path("far" + name), far);
    EXPECT_EQ(contents(folder.path("far" + name)), want) << name;
  }
}

TEST(ranked_checkpoint, in_bfloat16_has_the_float32_weights_that_no_rank_holds_whole) {
  const TemporaryFolder folder;
  save_with_ranks(1, folder.path("1"), local_files(), torch::kBFloat16);
  const auto want = contents(folder.path("1"));
  const auto weights = SafetensorsFile::open(folder.path("1") + "/" + checkpoint_name(2) + "/unet/diffusion_pytorch_model.safetensors");
  ASSERT_TRUE(weights.is_ok()) << weights.status().to_string();
  const torch::Tensor stored = *(*weights)->tensor("weight");
  EXPECT_FALSE(torch::equal(stored.to(torch::kBFloat16).to(torch::kFloat32), stored));
  FarFiles far;
  for (const auto& [name, num_ranks, files] :
       std::vector<std::tuple<std::string, int64_t, FileSystem*>>{{"2", 2, &local_files()}, {"3", 3, &local_files()}, {"far", 3, &far}}) {
    save_with_ranks(num_ranks, folder.path(name), *files, torch::kBFloat16);
    EXPECT_EQ(contents(folder.path(name)), want) << name;
  }
}

TEST(ranked_checkpoint, a_snapshot_is_saved_by_another_thread_while_the_values_at_hand_change) {
  const TemporaryFolder folder;
  FarFiles far;
  for (const torch::ScalarType type : {torch::kFloat32, torch::kBFloat16}) {
    const std::string want = folder.path("want-") + c10::toString(type);
    save_with_ranks(1, want, local_files(), type);
    for (const auto& [name, num_ranks, files] :
         std::vector<std::tuple<std::string, int64_t, FileSystem*>>{{"1", 1, &local_files()}, {"3", 3, &local_files()}, {"far", 3, &far}}) {
      const std::string place = folder.path(name) + c10::toString(type);
      with_shares(
          num_ranks,
          [&, files = files](RankShare& share, Communicator& ranks) {
            auto twin = ranks.twin("saving");
            ASSERT_TRUE(twin.is_ok()) << twin.status().to_string();
            StateSnapshot snapshot;
            TrainingState saved = share.state;
            saved.ranks = twin->get();
            saved.snapshot = &snapshot.values();
            ASSERT_TRUE(snapshot.take(share.state).is_ok());
            const CheckpointRecord record = share.record();
            auto saving = std::async(std::launch::async, [&] {
              return ranks.rank() == 0 ? save_checkpoint(*files, place, record, saved) : hand_in_training_state(saved);
            });
            for (int i = 0; i < 5; ++i) {
              share.update();
            }
            const Status status = saving.get();
            EXPECT_TRUE(status.is_ok()) << status.to_string();
          },
          type);
      EXPECT_EQ(contents(place), contents(want)) << name;
    }
  }
}

TEST(ranked_checkpoint, a_snapshot_takes_the_planned_memory_once_and_none_for_an_average_that_is_the_weights) {
  for (const double decay : {0.9, 0.0}) {
    torch::nn::Linear network(300, 250);
    RankShare share(network, lone_rank(), {.decay = decay});
    CountedMemory counted;
    const int64_t before = counted.held();
    StateSnapshot snapshot;
    ASSERT_TRUE(snapshot.take(share.state).is_ok());
    ASSERT_TRUE(snapshot.take(share.state).is_ok());
    EXPECT_EQ(counted.held() - before, (decay > 0 ? 16 : 12) * share.parameters.size());
  }
}

TEST(ranked_checkpoint, rank_0_holds_one_piece_of_what_the_others_have) {
  constexpr int64_t kPiece = 4096, kFigures = 2048;  // A network of 301,000 bytes; what ranks tell each other.
  FarFiles far;
  for (FileSystem* files : {&local_files(), static_cast<FileSystem*>(&far)}) {
    const TemporaryFolder folder;
    with_shares(3, [&](RankShare& share, Communicator& ranks) {
      share.state.max_piece_bytes = kPiece;
      CountedMemory counted;
      const int64_t before = counted.held();
      counted.restart_peak();
      const Status saved = share.save(*files, folder.path("saved"));
      EXPECT_TRUE(saved.is_ok()) << saved.to_string();
      EXPECT_LE(counted.peak() - before, (files == &far && ranks.rank() == 0 ? kPiece : 0) + kFigures) << "rank " << ranks.rank();
    });
  }
}

TEST(ranked_checkpoint, a_failure_at_rank_0_leaves_nothing_visible_and_ends_the_others_or_comes_after_their_part) {
  const TemporaryFolder folder;
  int64_t num_calls = 0;
  {
    FaultInjectingFileSystem counting(local_files());
    save_with_ranks(2, folder.path("counted"), counting);
    num_calls = counting.num_calls();
  }
  constexpr int64_t kTries = 6;
  for (int64_t i = 0; i < kTries; ++i) {
    const std::string place = folder.path(std::to_string(i));
    FaultInjectingFileSystem faulty(local_files());
    faulty.fail_call(num_calls * i / kTries, Fault::kNoSpace);
    with_shares(2, [&](RankShare& share, Communicator& ranks) {
      const Status saved = share.save(faulty, place);
      EXPECT_TRUE(saved.code() == StatusCode::kResourceExhausted || (saved.is_ok() && ranks.rank() != 0)) << saved.to_string();
    });
    const auto there = list_checkpoints(local_files(), place);
    EXPECT_TRUE(there.is_ok() && there->empty()) << i;
  }
}

TEST(ranked_checkpoint, files_have_their_whole_size_before_another_rank_writes) {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, uintmax_t>> seen;
  with_shares(2, [&](RankShare& share, Communicator& ranks) {
    if (ranks.rank() == 1) {
      share.state.open_shared = [&](const std::string& path) {
        seen.emplace_back(std::filesystem::path(path).filename().string(), std::filesystem::file_size(path));
        return SharedOutput::open(path);
      };
    }
    EXPECT_TRUE(share.save(local_files(), folder.path("saved")).is_ok());
  });
  ASSERT_GE(seen.size(), 4U) << "weights, average and several files of moments";
  for (const auto& [name, size] : seen) {
    uintmax_t same = 0;  // The weights and their average have one name and one size.
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path("saved"))) {
      same += entry.path().filename() == name && entry.file_size() == size ? 1 : 0;
    }
    EXPECT_GE(same, 1U) << name << " had " << size << " bytes";
  }
}

TEST(ranked_checkpoint, one_rank_that_does_not_see_the_files_has_all_send_theirs_to_rank_0) {
  const TemporaryFolder folder;
  save_with_ranks(1, folder.path("1"));
  with_shares(3, [&](RankShare& share, Communicator& ranks) {
    if (ranks.rank() == 2) {
      share.state.open_shared = [](const std::string& path) -> Result<SharedOutput> { return Status::not_found("not here:", path); };
    }
    const Status saved = share.save(local_files(), folder.path("3"));
    EXPECT_TRUE(saved.is_ok()) << saved.to_string();
  });
  EXPECT_EQ(contents(folder.path("3")), contents(folder.path("1")));
}

TEST(ranked_checkpoint, a_full_disk_at_one_rank_ends_all_and_leaves_nothing_visible) {
  for (const int64_t full_rank : {0, 1, 2}) {
    const TemporaryFolder folder;
    with_shares(3, [&](RankShare& share, Communicator& ranks) {
      if (ranks.rank() == full_rank) {
        share.state.open_shared = [](const std::string&) { return SharedOutput::open("/dev/full"); };
      }
      const Status saved = share.save(local_files(), folder.path("saved"));
      EXPECT_EQ(saved.code(), StatusCode::kResourceExhausted) << "rank " << ranks.rank() << ": " << saved.to_string();
    });
    const auto there = list_checkpoints(local_files(), folder.path("saved"));
    EXPECT_TRUE(there.is_ok() && there->empty()) << full_rank;
  }
}

TEST(ranked_checkpoint, every_rank_hears_that_a_valid_one_is_there_and_it_stays) {
  const TemporaryFolder folder;
  save_with_ranks(2, folder.path("saved"));
  const auto before = contents(folder.path("saved"));
  with_shares(2, [&](RankShare& share, Communicator&) {
    EXPECT_EQ(share.save(local_files(), folder.path("saved")).code(), StatusCode::kAlreadyExists);
  });
  EXPECT_EQ(contents(folder.path("saved")), before);
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
