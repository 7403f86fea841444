#include "darkroom/optim/rank_memory.h"

#include <gtest/gtest.h>

#include "darkroom/optim/gradient_groups.h"
#include "support/simulated_rank.h"

namespace darkroom {
namespace {

UNetConfig planned_unet() {
  return UNetConfig::from_json({{"sample_size", 8},
                                {"block_out_channels", {16, 32}},
                                {"layers_per_block", 1},
                                {"down_block_types", {"CrossAttnDownBlock2D", "DownBlock2D"}},
                                {"up_block_types", {"UpBlock2D", "CrossAttnUpBlock2D"}},
                                {"attention_head_dim", 2},
                                {"cross_attention_dim", 16},
                                {"norm_num_groups", 8}})
      .value();
}

RankMemory planned(const SimulatedRun& run) {
  const UNet2DConditionModel unet(run.unet);
  const FlatParametersOptions flat{.compute_type = run.type, .rank = run.rank, .num_ranks = run.num_ranks};
  return rank_memory({.size = flat_size(*unet, flat), .flat = flat, .gradient_groups = run.gradient_groups, .gradient_wire = run.wire});
}

TEST(rank_memory, is_what_the_buffers_of_a_rank_take) {
  struct Case {
    int64_t groups, rank, ranks;
    torch::ScalarType type = torch::kFloat32;
    torch::ScalarType wire = torch::kFloat32;
  };
  for (const Case& one : {Case{1, 0, 1}, Case{1, 0, 1, torch::kBFloat16}, Case{8, 0, 1}, Case{8, 3, 8}, Case{8, 1, 3}, Case{7, 2, 4},
                          Case{8, 3, 8, torch::kBFloat16}, Case{8, 1, 3, torch::kFloat32, torch::kBFloat16},
                          Case{8, 3, 8, torch::kFloat32, torch::kBFloat16}}) {
    SimulatedRun run{.unet = planned_unet(), .latents_side = 4};
    run.type = one.type;
    run.wire = one.wire;
    run.gradient_groups = one.groups;
    run.rank = one.rank;
    run.num_ranks = one.ranks;
    const MeasuredRank measured = measure_rank(run);
    const RankMemory plan = planned(run);
    const auto where = ::testing::Message() << one.groups << " groups, rank " << one.rank << " of " << one.ranks;
    constexpr int64_t kScalars = 8192;  // Losses, norms, the optimizer's scalars.
    EXPECT_EQ(measured.failure, "") << where;
    EXPECT_EQ(measured.memory.compute, plan.compute + plan.master) << where;
    EXPECT_EQ(measured.memory.gradients, plan.gradients) << where;
    EXPECT_NEAR(static_cast<double>(measured.memory.moments), static_cast<double>(plan.moments), kScalars) << where;
    EXPECT_EQ(measured.memory.average, plan.average) << where;
    EXPECT_NEAR(static_cast<double>(measured.memory.partial_sums), static_cast<double>(plan.partial_sums), kScalars) << where;
    EXPECT_NEAR(static_cast<double>(measured.memory.received_sums), static_cast<double>(plan.received_sums), kScalars) << where;
  }
}

TEST(rank_memory, state_is_a_share_and_no_average_takes_nothing) {
  const RankMemorySpec spec{.size = 800 * 16384, .flat = {.rank = 2, .num_ranks = 8}, .gradient_groups = 8};
  const RankMemory memory = rank_memory(spec);
  EXPECT_EQ(memory.moments + memory.average, 12 * spec.size / 8);
  EXPECT_EQ(memory.compute, 4 * spec.size);
  EXPECT_EQ(memory.gradients, 4 * spec.size);
  EXPECT_EQ(memory.partial_sums, 0) << "one group: its sum lies in the gradients";
  EXPECT_EQ(memory.received_sums, 7 * 4 * spec.size / 8);
  RankMemorySpec other = spec;
  other.averages = false;
  other.fast_reduction = true;
  EXPECT_EQ(rank_memory(other).average, 0);
  EXPECT_EQ(rank_memory(other).received_sums, 0);
  other.flat.compute_type = torch::kBFloat16;
  EXPECT_EQ(rank_memory(other).compute, 2 * spec.size);
  EXPECT_EQ(rank_memory(other).master, 4 * spec.size / 8);
  EXPECT_EQ(rank_memory(other).gradients, 4 * spec.size);
  other = spec;
  other.flat.compute_type = torch::kBFloat16;
  const RankMemory mixed = rank_memory(other);
  EXPECT_EQ(mixed.master + mixed.moments + mixed.average, 16 * spec.size / 8);
  EXPECT_EQ(mixed.kept(), 16 * spec.size / 8 + 2 * spec.size + 4 * spec.size);
}

TEST(rank_memory, sums_that_wait_are_the_levels_of_the_tree) {
  for (const auto& [groups, most] : {std::pair<int64_t, int64_t>{1, 0}, {2, 1}, {3, 2}, {4, 2}, {8, 3}, {32, 5}}) {
    EXPECT_EQ(most_sums_held(groups, {0, groups}), most) << groups;
  }
  EXPECT_EQ(most_sums_held(8, {3, 1}), 0);
  EXPECT_EQ(most_sums_held(8, {3, 2}), 1) << "3 and 4 are no siblings";
}

TEST(rank_memory, flat_size_counts_what_alignment_leaves) {
  const UNet2DConditionModel unet(planned_unet());
  FlatParametersOptions aligned;
  aligned.alignment = 64;
  UNet2DConditionModel filled(planned_unet());
  for (auto& parameter : filled->parameters()) {
    const torch::NoGradGuard no_grad;
    parameter.zero_();
  }
  EXPECT_EQ(flat_size(*unet, aligned), FlatParameters(*filled, aligned).size());
}

}  // namespace
}  // namespace darkroom
