#include "darkroom/optim/gradient_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "darkroom/core/check.h"
#include "darkroom/ops/adamw_update.h"
#include "darkroom/optim/train_step.h"
#include "support/rank_threads.h"

namespace darkroom {
namespace {

TEST(gradient_groups, ranks_take_nearly_equal_runs_that_make_up_the_batch) {
  for (const int64_t num_groups : {1, 2, 7, 8, 192}) {
    for (int64_t num_ranks = 1; num_ranks <= num_groups; ++num_ranks) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        const GroupSpan run = groups_of_rank(num_groups, rank, num_ranks);
        ASSERT_EQ(run.first, next);
        ASSERT_GE(run.count, num_groups / num_ranks);
        ASSERT_LE(run.count, (num_groups + num_ranks - 1) / num_ranks);
        next = run.end();
      }
      ASSERT_EQ(next, num_groups);
    }
  }
  EXPECT_THROW(groups_of_rank(2, 0, 3), CheckFailure);
}

TEST(gradient_groups, the_left_child_is_the_largest_power_of_two) {
  EXPECT_EQ(children_of({0, 8}), std::pair(GroupSpan({0, 4}), GroupSpan({4, 4})));
  EXPECT_EQ(children_of({0, 7}), std::pair(GroupSpan({0, 4}), GroupSpan({4, 3})));
  EXPECT_EQ(children_of({4, 3}), std::pair(GroupSpan({4, 2}), GroupSpan({6, 1})));
  EXPECT_TRUE(is_tree_node(7, {4, 3}));
  EXPECT_TRUE(is_tree_node(7, {6, 1}));
  EXPECT_FALSE(is_tree_node(7, {2, 4}));
  EXPECT_FALSE(is_tree_node(8, {4, 3}));
}

TEST(gradient_groups, a_run_is_made_up_of_nodes_and_no_two_of_them_are_one_nodes_children) {
  for (const int64_t num_groups : {1, 2, 3, 7, 8, 12}) {
    for (int64_t first = 0; first < num_groups; ++first) {
      for (int64_t count = 1; first + count <= num_groups; ++count) {
        int64_t next = first;
        const auto nodes = largest_subtrees(num_groups, {first, count});
        for (size_t i = 0; i < nodes.size(); ++i) {
          ASSERT_TRUE(is_tree_node(num_groups, nodes[i]));
          ASSERT_EQ(nodes[i].first, next);
          next = nodes[i].end();
          ASSERT_TRUE(i == 0 || !is_tree_node(num_groups, {nodes[i - 1].first, nodes[i - 1].count + nodes[i].count}));
        }
        ASSERT_EQ(next, first + count);
      }
    }
  }
}

TEST(gradient_groups, slices_are_whole_chunks_and_may_be_empty) {
  for (const int64_t size : {int64_t{1}, kNormChunk, kNormChunk + 1, 7 * kNormChunk - 1}) {
    for (const int64_t num_ranks : {1, 2, 3, 8}) {
      int64_t next = 0;
      for (int64_t rank = 0; rank < num_ranks; ++rank) {
        const FlatRange slice = slice_of_rank(size, rank, num_ranks);
        ASSERT_EQ(slice.first, next);
        ASSERT_TRUE(slice.first % kNormChunk == 0 || slice.count == 0);
        next += slice.count;
      }
      ASSERT_EQ(next, size);
    }
  }
}

TEST(gradient_groups, ranges_go_to_their_slices_and_come_back) {
  const int64_t size = 3 * kNormChunk + 5;
  const torch::Tensor flat = torch::arange(size, torch::kFloat32);
  for (const int64_t num_ranks : {1, 2, 3, 4}) {
    run_rank_threads(num_ranks, [&](Communicator& ranks) {
      const FlatRange own = slice_of_rank(size, ranks.rank(), ranks.size());
      const torch::Tensor slice = torch::zeros({own.count});
      const FlatRange ranges[] = {{0, 3}, {3, kNormChunk}, {kNormChunk + 3, size - kNormChunk - 3}};
      for (const FlatRange& range : ranges) {
        const torch::Tensor values = ranks.rank() == 0 ? range.of(flat) : torch::Tensor();
        ASSERT_TRUE(scatter_range(ranks, slices_of_ranks(size, ranks.size()), range, values, slice).is_ok());
      }
      EXPECT_TRUE(torch::equal(slice, own.of(flat)));
      for (const FlatRange& range : ranges) {
        const auto back = gather_range(ranks, slices_of_ranks(size, ranks.size()), range, slice);
        ASSERT_TRUE(back.is_ok());
        EXPECT_TRUE(ranks.rank() != 0 || torch::equal(*back, range.of(flat)));
      }
      const torch::Tensor gathered = torch::zeros({size});
      own.of(gathered).copy_(slice);
      ASSERT_TRUE(gather_slices(ranks, gathered).is_ok());
      EXPECT_TRUE(torch::equal(gathered, flat));
    });
  }
}

// Nine chunks of parameters, so that slices differ; a sample's loss depends on its number alone.
struct WideNetwork : torch::nn::Module {
  explicit WideNetwork(uint64_t seed = 11) {
    torch::manual_seed(seed);
    first = register_module("first", torch::nn::Linear(16, 256));
    second = register_module("second", torch::nn::Linear(256, 512));
  }
  torch::Tensor losses(int64_t begin, int64_t count, int64_t step) {
    const torch::Tensor numbers = torch::arange(begin, begin + count, torch::kFloat32).view({-1, 1}) + 0.1 * static_cast<double>(step);
    const torch::Tensor inputs = (numbers * torch::linspace(0.3, 1.7, 16)).sin().to(first->weight.scalar_type());
    return second->forward(torch::silu(first->forward(inputs))).to(torch::kFloat32).square().mean(1);
  }

  torch::nn::Linear first{nullptr};
  torch::nn::Linear second{nullptr};
};

struct RankResult {
  std::vector<double> losses, norms;
  torch::Tensor weights, averages;  // What the network computes with.
  torch::Tensor master, average;    // The rank's slices, float32.
  int64_t bytes_sent = 0;
};

struct RankedRun {
  int64_t batch_size = 16;
  int64_t steps = 3;
  torch::ScalarType type = torch::kFloat32;
  TrainStepOptions options{.micro_batch = 1, .gradient_groups = 8, .schedule = {.peak = 1e-2, .warmup_steps = 2}};
};

void train_rank(Communicator& ranks, WideNetwork& network, const RankedRun& run, RankResult& result) {
  FlatParameters flat(network, {.compute_type = run.type, .rank = ranks.rank(), .num_ranks = ranks.size()});
  const FlatRange slice = slice_of_rank(flat.size(), ranks.rank(), ranks.size());
  AdamW adamw(flat, {}, slice);
  Ema ema(flat, {.decay = 0.9}, slice);
  TrainStep step(flat, adamw, &ema, run.options, ranks);
  for (int64_t i = 0; i < run.steps; ++i) {
    const auto report = step.run(i, run.batch_size, [&](int64_t first, int64_t count) { return network.losses(first, count, i); });
    ASSERT_TRUE(report.is_ok()) << report.status().to_string();
    result.losses.push_back(report->loss);
    result.norms.push_back(report->grad_norm);
  }
  result.bytes_sent = ranks.bytes_sent();
  const torch::Tensor& computed_with = flat.compute_copy().defined() ? flat.compute_copy() : flat.values();
  result.weights = computed_with.clone();
  result.master = flat.values_of(slice).clone();
  result.average = ema.weights().clone();
  {
    const EmaScope averaged(flat, ema, ranks);
    ASSERT_TRUE(averaged.status().is_ok());
    result.averages = computed_with.clone();
    EXPECT_TRUE(torch::equal(flat.values_of(slice), result.average));
  }
  EXPECT_TRUE(torch::equal(computed_with, result.weights)) << "the trained weights are back";
  EXPECT_EQ(flat.values().numel(), run.type == torch::kFloat32 ? flat.size() : slice.count);
}

// What every rank has in the end.
std::vector<RankResult> train_with_ranks(int64_t num_ranks, const RankedRun& run = {}) {
  std::vector<std::unique_ptr<WideNetwork>> networks;  // Made one after the other: torch's generator is the process's.
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    networks.push_back(std::make_unique<WideNetwork>());
  }
  std::vector<RankResult> results(static_cast<size_t>(num_ranks));
  run_rank_threads(num_ranks, [&](Communicator& ranks) {
    const auto rank = static_cast<size_t>(ranks.rank());
    train_rank(ranks, *networks[rank], run, results[rank]);
  });
  return results;
}

void expect_same_bits(const RankResult& got, const RankResult& want, const std::string& where) {
  EXPECT_EQ(got.losses, want.losses) << where;
  EXPECT_EQ(got.norms, want.norms) << where;
  ASSERT_TRUE(got.weights.defined() && want.weights.defined()) << where;
  EXPECT_TRUE(torch::equal(got.weights, want.weights)) << where;
  EXPECT_TRUE(torch::equal(got.averages, want.averages)) << where;
}

TEST(ranked_step, any_number_of_ranks_has_the_bits_of_one) {
  const RankResult want = train_with_ranks(1)[0];
  for (const int64_t num_ranks : {2, 3, 4, 5, 6, 7, 8}) {
    for (const RankResult& got : train_with_ranks(num_ranks)) {
      expect_same_bits(got, want, std::to_string(num_ranks));
    }
  }
}

// All ranks' slices, one after the other.
torch::Tensor joined(const std::vector<RankResult>& results, torch::Tensor RankResult::*part) {
  std::vector<torch::Tensor> slices;
  for (const RankResult& result : results) {
    slices.push_back(result.*part);
  }
  return torch::cat(slices);
}

TEST(ranked_step, in_bfloat16_ranks_hold_float32_weights_of_their_slices_and_have_the_bits_of_one) {
  RankedRun run;
  run.type = torch::kBFloat16;
  const RankResult want = train_with_ranks(1, run)[0];
  EXPECT_FALSE(torch::equal(want.master.to(torch::kBFloat16).to(torch::kFloat32), want.master)) << "float32 has more bits";
  for (const int64_t num_ranks : {2, 3}) {
    const std::vector<RankResult> results = train_with_ranks(num_ranks, run);
    for (const RankResult& got : results) {
      expect_same_bits(got, want, std::to_string(num_ranks));
    }
    EXPECT_TRUE(torch::equal(joined(results, &RankResult::master), want.master)) << num_ranks;
    EXPECT_TRUE(torch::equal(joined(results, &RankResult::average), want.average)) << num_ranks;
  }
}

TEST(ranked_step, ranks_begin_with_the_weights_of_rank_0) {
  const WideNetwork first(1);
  for (const int64_t num_ranks : {1, 2, 3}) {
    std::vector<std::unique_ptr<WideNetwork>> networks;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      networks.push_back(std::make_unique<WideNetwork>(static_cast<uint64_t>(rank + 1)));
    }
    run_rank_threads(num_ranks, [&](Communicator& ranks) {
      WideNetwork& network = *networks[static_cast<size_t>(ranks.rank())];
      ASSERT_TRUE(share_parameters(ranks, network).is_ok());
      for (const auto& item : first.named_parameters()) {
        EXPECT_TRUE(torch::equal(network.named_parameters()[item.key()], item.value())) << item.key();
      }
    });
  }
}

TEST(ranked_step, networks_of_other_shapes_stay_as_they_are) {
  std::vector<torch::nn::Linear> networks = {torch::nn::Linear(2, 3), torch::nn::Linear(3, 3)};
  run_rank_threads(2, [&](Communicator& ranks) {
    torch::nn::Linear& network = networks[static_cast<size_t>(ranks.rank())];
    const torch::Tensor before = network->weight.detach().clone();
    ASSERT_TRUE(share_parameters(ranks, *network).is_ok());
    EXPECT_TRUE(torch::equal(network->weight, before));
  });
}

TEST(ranked_step, a_number_of_groups_that_is_no_power_of_two_has_one_result_too) {
  RankedRun run{.batch_size = 28};
  run.options.gradient_groups = 7;
  run.options.micro_batch = 2;
  const RankResult want = train_with_ranks(1, run)[0];
  for (const int64_t num_ranks : {2, 3, 5, 7}) {
    expect_same_bits(train_with_ranks(num_ranks, run).back(), want, std::to_string(num_ranks));
  }
}

TEST(ranked_step, workers_beside_ranks_change_no_bit) {
  const RankResult want = train_with_ranks(1)[0];
  RankedRun run;
  run.options.workers = 3;
  for (const int64_t num_ranks : {1, 2, 3}) {
    expect_same_bits(train_with_ranks(num_ranks, run)[0], want, std::to_string(num_ranks));
  }
}

TEST(ranked_step, bfloat16_on_the_wire_has_one_result_for_any_number_of_ranks) {
  for (const auto& [groups, batch_size] : {std::pair<int64_t, int64_t>{8, 16}, {7, 14}, {2, 4}}) {
    RankedRun run{.batch_size = batch_size};
    run.options.gradient_groups = groups;
    const RankResult in_float32 = train_with_ranks(1, run)[0];
    run.options.gradient_wire = torch::kBFloat16;
    const RankResult want = train_with_ranks(1, run)[0];
    EXPECT_FALSE(torch::equal(want.weights, in_float32.weights)) << groups;
    // A rounding of half an epsilon at the group and at each node below the root; twice that, because sums may be smaller than their parts.
    const double epsilon = std::numeric_limits<c10::BFloat16>::epsilon(), levels = std::ceil(std::log2(static_cast<double>(groups)));
    EXPECT_NEAR(want.norms[0], in_float32.norms[0], levels * epsilon * in_float32.norms[0]) << groups;
    for (int64_t num_ranks = 2; num_ranks <= std::min<int64_t>(groups, 4); ++num_ranks) {
      for (const RankResult& got : train_with_ranks(num_ranks, run)) {
        expect_same_bits(got, want, std::to_string(groups) + " groups, ranks: " + std::to_string(num_ranks));
      }
    }
  }
}

TEST(ranked_step, bfloat16_on_the_wire_sends_half_the_bytes_of_gradients) {
  RankedRun run;
  const int64_t size = FlatParameters(*std::make_unique<WideNetwork>()).size();
  for (const auto& [num_ranks, subtrees] : {std::pair<int64_t, int64_t>{2, 1}, {4, 1}}) {
    run.options.gradient_wire = torch::kFloat32;
    const std::vector<RankResult> wide = train_with_ranks(num_ranks, run);
    run.options.gradient_wire = torch::kBFloat16;
    const std::vector<RankResult> narrow = train_with_ranks(num_ranks, run);
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      const int64_t elements = run.steps * subtrees * (size - slice_of_rank(size, rank, num_ranks).count);
      const auto at = static_cast<size_t>(rank);
      EXPECT_EQ(wide[at].bytes_sent - narrow[at].bytes_sent, 2 * elements) << "rank " << rank << " of " << num_ranks;
      EXPECT_GT(narrow[at].bytes_sent, 2 * elements);
    }
  }
}

TEST(ranked_step, sending_while_the_backward_pass_goes_on_changes_no_bit) {
  struct Case {
    torch::ScalarType wire;
    int64_t bucket_elements;  // A parameter each, two, one for all.
    std::vector<int64_t> ranks;
  };
  for (const Case& one : {Case{torch::kFloat32, 1, {1, 2, 3, 4, 8}}, Case{torch::kFloat32, kNormChunk + 1, {3}},
                          Case{torch::kFloat32, int64_t{4} << 20, {2}}, Case{torch::kBFloat16, 1, {2, 3}}}) {
    RankedRun run;
    run.options.gradient_wire = one.wire;
    const RankResult want = train_with_ranks(1, run)[0];
    run.options.overlaps = true;
    run.options.bucket_elements = one.bucket_elements;
    for (const int64_t num_ranks : one.ranks) {
      for (const RankResult& got : train_with_ranks(num_ranks, run)) {
        expect_same_bits(got, want, std::to_string(num_ranks) + " ranks, pieces of " + std::to_string(one.bucket_elements));
      }
    }
  }
}

// Of three ranks and eight groups the first has two, the others three: with two workers the passes of some are side by side.
TEST(ranked_step, ranks_whose_passes_are_side_by_side_send_the_same_pieces_as_those_whose_are_not) {
  RankedRun run{.batch_size = 3, .steps = 4};
  run.options.gradient_groups = 3;
  const RankResult want = train_with_ranks(1, run)[0];
  run.options.overlaps = true;
  run.options.bucket_elements = 1;
  run.options.workers = 2;
  for (const RankResult& got : train_with_ranks(2, run)) {
    expect_same_bits(got, want, "one group and two");
  }
}

TEST(ranked_step, a_parameter_that_the_loss_does_not_depend_on_is_sent_as_zeros) {
  struct UnusedNetwork : WideNetwork {
    UnusedNetwork() { unused = register_module("between", torch::nn::Linear(64, 64)); }
    torch::nn::Linear unused{nullptr};
  };
  std::vector<std::unique_ptr<UnusedNetwork>> networks;
  for (int rank = 0; rank < 3; ++rank) {
    networks.push_back(std::make_unique<UnusedNetwork>());
  }
  RankedRun run;
  RankResult want;
  train_rank(lone_rank(), *networks[2], run, want);
  run.options.overlaps = true;
  run.options.bucket_elements = 1;
  std::vector<RankResult> results(2);
  run_rank_threads(2, [&](Communicator& ranks) {
    const auto rank = static_cast<size_t>(ranks.rank());
    train_rank(ranks, *networks[rank], run, results[rank]);
  });
  for (const RankResult& got : results) {
    expect_same_bits(got, want, "with a layer that is not used");
  }
}

// What a rank did before it left is not what the others wait for: its process ends, and so do their connections to it.
TEST(ranked_step, ranks_that_send_meanwhile_end_when_one_is_gone_in_the_middle_of_a_step) {
  std::vector<std::unique_ptr<WideNetwork>> networks;
  for (int rank = 0; rank < 3; ++rank) {
    networks.push_back(std::make_unique<WideNetwork>());
  }
  const int64_t port = free_loopback_port();
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      const auto ranks = join_gloo(loopback_rank(rank, 3, port));
      ASSERT_TRUE(ranks.is_ok()) << ranks.status().to_string();
      WideNetwork& network = *networks[static_cast<size_t>(rank)];
      FlatParameters flat(network);
      AdamW adamw(flat, {}, slice_of_rank(flat.size(), rank, 3));
      TrainStepOptions options = RankedRun().options;
      options.overlaps = true;
      options.bucket_elements = 1;
      TrainStep step(flat, adamw, nullptr, options, **ranks);
      const auto losses = [&](int64_t first, int64_t count) {
        torch::Tensor lost = network.losses(first, count, 0);
        if (step.report().step == 1 && first == 15) {  // The last pass: half of its gradients come, then an exception.
          network.second->weight.register_hook([](const torch::Tensor& gradient) -> torch::Tensor {
            DARKROOM_CHECK(false, "a pass that does not come to its end:", gradient.numel());
            return gradient;
          });
          lost = network.losses(first, count, 0);
        }
        return lost;
      };
      EXPECT_TRUE(step.run(0, 16, losses).is_ok());
      if (rank == 2) {
        EXPECT_THROW(static_cast<void>(step.run(1, 16, losses)), std::exception);
      } else {
        EXPECT_EQ(step.run(1, 16, losses).status().code(), StatusCode::kUnavailable);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(ranked_step, refuses_what_cannot_be_sent) {
  EXPECT_EQ((TrainStepOptions{.gradient_wire = torch::kFloat16, .schedule = {}}).validate().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ((TrainStepOptions{.fast_reduction = true, .gradient_wire = torch::kBFloat16, .schedule = {}}).validate().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ((TrainStepOptions{.bucket_elements = 0, .schedule = {}}).validate().code(), StatusCode::kInvalidArgument);
}

TEST(ranked_step, groups_round_otherwise_but_mean_the_same) {
  RankedRun whole;
  whole.options.gradient_groups = 1;
  const RankResult in_order = train_with_ranks(1, whole)[0], in_groups = train_with_ranks(1)[0];
  EXPECT_FALSE(torch::equal(in_order.weights, in_groups.weights));
  EXPECT_NEAR(in_order.norms[0], in_groups.norms[0], 64 * std::numeric_limits<float>::epsilon() * in_order.norms[0]);
}

TEST(ranked_step, the_fast_reduction_means_the_same) {
  RankedRun fast;
  fast.options.fast_reduction = true;
  const RankResult want = train_with_ranks(1)[0];
  for (const int64_t num_ranks : {1, 2, 3}) {
    for (const RankResult& got : train_with_ranks(num_ranks, fast)) {
      EXPECT_NEAR(got.norms[0], want.norms[0], 64 * std::numeric_limits<float>::epsilon() * want.norms[0]);
      EXPECT_NEAR(got.losses[2], want.losses[2], 1e-5 * want.losses[2]);
    }
  }
}

TEST(ranked_step, all_ranks_leave_out_a_step_that_is_not_finite_and_know_the_sample) {
  std::vector<std::unique_ptr<WideNetwork>> networks;
  for (int i = 0; i < 3; ++i) {
    networks.push_back(std::make_unique<WideNetwork>());
  }
  run_rank_threads(3, [&](Communicator& ranks) {
    WideNetwork& network = *networks[static_cast<size_t>(ranks.rank())];
    FlatParameters flat(network);
    const FlatRange slice = slice_of_rank(flat.size(), ranks.rank(), ranks.size());
    AdamW adamw(flat, {}, slice);
    TrainStep step(flat, adamw, nullptr, RankedRun().options, ranks);
    const torch::Tensor before = flat.values().clone();
    const auto bad = step.run(0, 16, [&](int64_t first, int64_t count) {
      const torch::Tensor losses = network.losses(first, count, 0);
      return first == 13 ? losses / 0.0 : losses;  // The last rank's.
    });
    EXPECT_EQ(bad.status().code(), StatusCode::kFailedPrecondition);
    EXPECT_TRUE(step.was_not_finite());
    EXPECT_EQ(step.non_finite_samples(), std::vector<int64_t>{13});
    EXPECT_TRUE(torch::equal(flat.values(), before));
    EXPECT_EQ(adamw.num_updates(), 0);
    const auto good = step.run(1, 16, [&](int64_t first, int64_t count) { return network.losses(first, count, 1); });
    EXPECT_TRUE(good.is_ok());
    EXPECT_FALSE(step.was_not_finite());
    EXPECT_FALSE(torch::equal(flat.values(), before));
  });
}

TEST(ranked_step, one_ranks_wish_to_stop_is_known_to_all_after_the_step) {
  std::vector<std::unique_ptr<WideNetwork>> networks;
  for (int i = 0; i < 2; ++i) {
    networks.push_back(std::make_unique<WideNetwork>());
  }
  run_rank_threads(2, [&](Communicator& ranks) {
    WideNetwork& network = *networks[static_cast<size_t>(ranks.rank())];
    FlatParameters flat(network);
    AdamW adamw(flat, {}, slice_of_rank(flat.size(), ranks.rank(), 2));
    TrainStep step(flat, adamw, nullptr, RankedRun().options, ranks);
    const auto losses = [&](int64_t first, int64_t count) { return network.losses(first, count, 0); };
    EXPECT_FALSE(step.run(0, 16, losses, false)->wants_stop);
    EXPECT_TRUE(step.run(1, 16, losses, ranks.rank() == 1)->wants_stop);
    EXPECT_FALSE(step.run(2, 16, losses, false)->wants_stop);
  });
}

TEST(ranked_step, more_ranks_than_groups_and_unequal_groups_are_refused) {
  WideNetwork network;
  FlatParameters flat(network);
  AdamW adamw(flat, {});
  TrainStep step(flat, adamw, nullptr, {.gradient_groups = 3, .schedule = {}});
  EXPECT_THROW(static_cast<void>(step.run(0, 16, [&](int64_t first, int64_t count) { return network.losses(first, count, 0); })),
               CheckFailure);
  EXPECT_EQ((TrainStepOptions{.gradient_groups = 0, .schedule = {}}).validate().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace darkroom
