#include "darkroom/train/training_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "darkroom/image/png.h"
#include "darkroom/nn/presets.h"
#include "darkroom/nn/unet.h"
#include "darkroom/nn/vae.h"
#include "darkroom/ops/operation_table.h"
#include "darkroom/train/checkpoint.h"
#include "support/simulated_rank.h"
#include "support/source_path.h"
#include "support/trained_run.h"
#include "train/run_data.h"
#include "train/step_settings.h"

namespace darkroom {
namespace {

using testing::Contains;
using testing::HasSubstr;

class TrainingPlanTest : public testing::Test {
 protected:
  Result<TrainingPlan> plan(const Recipe& recipe, const PlanQuestion& question = {}) { return plan_training(stores_, recipe, question); }

  static Recipe shipped(const std::string& name) {
    Recipe recipe = load_recipe(local_files(), source_path("recipes/" + name + ".toml")).value();
    recipe.model.path = "sd2-base";
    recipe.data.path = "latents";
    return recipe;
  }

  MetricsRegistry metrics_;
  StoreSet stores_{{}, system_clock(), metrics_};
};

TEST_F(TrainingPlanTest, has_the_published_figures_of_stable_diffusion_2) {
  const auto small = plan(shipped("sd2-256"), {.num_ranks = 32}), large = plan(shipped("sd2-512"), {.num_ranks = 32});
  ASSERT_TRUE(small.is_ok()) << small.status().to_string();
  ASSERT_TRUE(large.is_ok()) << large.status().to_string();
  EXPECT_EQ(small->parameters, 865'910'724);
  EXPECT_NEAR(small->step_flop / 4096, 543.3e9, 0.1e9);  // Per sample, as docs quote the published network.
  EXPECT_NEAR(large->step_flop / 4096, 2412.8e9, 0.5e9);
  EXPECT_EQ(count_step_flop(stores_, shipped("sd2-512")).value(), large->step_flop);
  EXPECT_EQ(small->checkpoint, 16 * small->parameters);
  EXPECT_EQ(small->rank_samples, 128);
  EXPECT_EQ(small->rank_passes, 1);
  EXPECT_EQ(large->rank_passes, 4);
  EXPECT_EQ(small->read_a_step, 4096 * 2 * (4 * 32 * 32 + 77 * 1024));
  EXPECT_EQ(small->memory.compute, 4 * small->parameters);
  EXPECT_NEAR(static_cast<double>(small->memory.moments + small->memory.average), 12.0 / 32 * static_cast<double>(small->parameters), 1e6);
  EXPECT_GT(large->activations / large->micro_batch, 3 * small->activations / small->micro_batch)
      << "of a sample with four times the pixels";
}

TEST_F(TrainingPlanTest, activations_and_buffers_are_what_a_rank_really_takes) {
  Recipe recipe = shipped("sd2-256");
  recipe.model.path = "tiny";
  recipe.data.resolution = 128;
  recipe.batch = {.global = 16, .micro = 2};
  recipe.runtime.gradient_groups = 8;
  recipe.runtime.workers = 1;
  const auto found = plan(recipe, {.num_ranks = 8});
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  SimulatedRun run{.unet = find_preset("tiny")->unet, .latents_side = 16, .micro_batch = 2};
  const MeasuredRank measured = measure_rank(run);
  EXPECT_EQ(measured.failure, "");
  const auto within = [](int64_t got, int64_t want) {
    return std::abs(static_cast<double>(got - want)) <= 0.05 * static_cast<double>(want);
  };
  EXPECT_TRUE(within(measured.activations, found->activations)) << measured.activations << " measured, planned " << found->activations;
  EXPECT_TRUE(within(measured.peak, found->peak_on_device())) << measured.peak << " measured, planned " << found->peak_on_device();
  RecordProperty("activations_measured", std::to_string(measured.activations));
  RecordProperty("activations_planned", std::to_string(found->activations));
}

TEST_F(TrainingPlanTest, an_autoencoder_has_a_plan_too) {
  Recipe recipe = load_recipe(local_files(), source_path("recipes/tiny-vae.toml")).value();
  recipe.model.path = source_path("models/tiny");
  recipe.data.raw_path = "pictures";
  const auto found = plan(recipe);
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_EQ(found->component, "vae");
  EXPECT_GT(found->activations, 0);
  EXPECT_GT(found->step_flop, 0);
  EXPECT_FALSE(found->read_a_step.has_value());
  EXPECT_THAT(found->to_text(), HasSubstr("pictures  read from the store"));
}

TEST_F(TrainingPlanTest, passes_side_by_side_take_a_passs_memory_each) {
  Recipe recipe = shipped("tiny");
  recipe.model.path = "tiny";
  recipe.runtime.workers = 1;
  const auto one = plan(recipe);
  recipe.runtime.workers = 3;
  const auto three = plan(recipe);
  ASSERT_TRUE(one.is_ok() && three.is_ok());
  EXPECT_EQ(three->activations, 3 * one->activations);
  EXPECT_EQ(one->pass_gradients, 0);
  EXPECT_EQ(three->pass_gradients, 3 * one->memory.gradients);
  EXPECT_EQ(three->passes_at_a_time, 3);
}

TEST_F(TrainingPlanTest, a_gpu_holds_the_batch_as_stored_and_padded_weights) {
  Recipe recipe = shipped("sd2-256");
  recipe.runtime.precision = "bfloat16";
  recipe.runtime.gradient_groups = 1;
  const auto cpu = plan(recipe), gpu = plan(recipe, {.device = "cuda:0"});
  ASSERT_TRUE(cpu.is_ok() && gpu.is_ok());
  EXPECT_EQ(cpu->device_inputs, 0);
  EXPECT_EQ(gpu->device_inputs, (4096 + 128) * 2 * (4 * 32 * 32 + 77 * 1024)) << "the batch, and the micro-batch that recorded passes read";
  EXPECT_GT(gpu->memory.compute, cpu->memory.compute);
  EXPECT_LT(static_cast<double>(gpu->memory.compute), 1.001 * static_cast<double>(cpu->memory.compute));
  EXPECT_LT(gpu->peak_on_host(), cpu->peak_on_host());
}

// Bytes that the references keep for backward and the plugin does not: normed values that are activated next, and gates.
int64_t& bytes_of_references_alone() {
  static int64_t num_bytes = 0;
  return num_bytes;
}

ForwardResult counted_group_norm_silu(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                                      const GroupNormSettings& settings) {
  ForwardResult result = reference_operations().group_norm_silu(x, weight, bias, settings);
  bytes_of_references_alone() += static_cast<int64_t>(result.saved.back().nbytes());
  return result;
}

ForwardResult counted_geglu(const torch::Tensor& x) {
  ForwardResult result = reference_operations().geglu(x);
  bytes_of_references_alone() += static_cast<int64_t>(result.saved.back().nbytes());
  return result;
}

TEST_F(TrainingPlanTest, a_gpu_keeps_neither_normed_values_nor_gates) {
  OperationTable counting = reference_operations();
  counting.group_norm_silu = counted_group_norm_silu;
  counting.geglu = counted_geglu;
  install_operations(torch::kCPU, counting);
  UNet2DConditionModel unet(find_preset("tiny")->unet);
  bytes_of_references_alone() = 0;
  unet->forward(torch::zeros({2, 4, 16, 16}), torch::zeros({2}, torch::kInt64),
                torch::zeros({2, 77, find_preset("tiny")->unet.states_width()}));
  install_operations(torch::kCPU, reference_operations());
  const auto kept = static_cast<double>(bytes_of_references_alone());
  ASSERT_GT(kept, 0);
  Recipe recipe = shipped("sd2-256");
  recipe.model.path = "tiny";
  recipe.data.resolution = 128;
  recipe.batch = {.global = 2, .micro = 2};
  recipe.runtime.gradient_groups = recipe.runtime.workers = 1;
  recipe.runtime.precision = "float32";
  const auto cpu = plan(recipe), gpu = plan(recipe, {.device = "cuda:0"});
  ASSERT_TRUE(cpu.is_ok() && gpu.is_ok());
  const auto saved = static_cast<double>(cpu->activations - gpu->activations);
  EXPECT_GE(saved, kept) << "and the gradient between a norm and its activation is not made either";
  EXPECT_EQ(plan(recipe)->activations, cpu->activations) << "a plan for a GPU leaves nothing behind";
  EXPECT_EQ(gpu->step_flop, cpu->step_flop);
}

// docs/benchmarks.md: sd2-base on an H100, 128 pictures of 256 px in one pass, as torch's allocator counted them.
TEST_F(TrainingPlanTest, a_gpu_holds_what_was_measured_on_one) {
  Recipe recipe = shipped("sd2-256");
  recipe.batch = {.global = 128, .micro = 128};
  recipe.runtime.gradient_groups = 1;
  const auto whole = plan(recipe, {.device = "cuda:0"});
  recipe.batch.micro = 64;
  const auto halves = plan(recipe, {.device = "cuda:0"});
  ASSERT_TRUE(whole.is_ok() && halves.is_ok());
  EXPECT_NEAR(static_cast<double>(whole->peak_on_device()), 45.0e9, 0.05 * 45.0e9);
  EXPECT_NEAR(static_cast<double>(halves->peak_on_device()), 32.1e9, 0.05 * 32.1e9);
}

TEST_F(TrainingPlanTest, hours_want_a_peak) {
  Recipe recipe = shipped("sd2-256");
  EXPECT_FALSE(plan(recipe)->hours().has_value());
  const auto found = plan(recipe, {.num_ranks = 32, .mfu = 0.5, .tflops = 1000});
  ASSERT_TRUE(found.is_ok());
  EXPECT_NEAR(*found->hours(), 275000.0 * 4096 * 543.3e9 / (32 * 0.5 * 1000e12) / 3600, 1);
  EXPECT_THAT(found->to_text(), HasSubstr("hours at 50 %"));
  EXPECT_TRUE(found->to_json().contains("hours"));
  EXPECT_FALSE(plan(recipe)->to_json().contains("hours"));
}

TEST_F(TrainingPlanTest, hours_are_those_of_the_busiest_rank) {
  const Recipe recipe = shipped("sd2-256");  // 32 groups.
  const auto with = [&](int64_t num_ranks) { return plan(recipe, {.num_ranks = num_ranks, .tflops = 1000}).value(); };
  const TrainingPlan sixteen = with(16), many = with(24), all = with(32), three = with(3);
  EXPECT_DOUBLE_EQ(*many.hours(), *sixteen.hours()) << "two groups a step, either way";
  EXPECT_DOUBLE_EQ(*all.hours(), *sixteen.hours() / 2);
  EXPECT_DOUBLE_EQ(*three.hours(), *all.hours() * 11);
  EXPECT_EQ(sixteen.idle_share(), 0);
  EXPECT_DOUBLE_EQ(many.idle_share(), 1.0 / 3);
  EXPECT_DOUBLE_EQ(many.to_json()["idle_share"].get<double>(), many.idle_share());
  EXPECT_TRUE(sixteen.remarks().empty());
  EXPECT_THAT(many.remarks(),
              Contains(testing::AllOf(HasSubstr("32 gradient groups"), HasSubstr("33.3 %"), HasSubstr("16 ranks are as fast"))));
  EXPECT_THAT(three.remarks(), Contains(testing::AllOf(HasSubstr("takes 11"), HasSubstr("3.0 %"), testing::Not(HasSubstr("as fast")))));
}

TEST_F(TrainingPlanTest, says_what_is_wrong_with_the_question) {
  const Recipe recipe = shipped("sd2-256");
  const auto refusal = [&](const PlanQuestion& question) {
    const auto found = plan(recipe, question);
    EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
    return found.status().message();
  };
  EXPECT_THAT(refusal({.num_ranks = 33}), HasSubstr("runtime.gradient_groups"));
  EXPECT_THAT(refusal({.num_ranks = 0}), HasSubstr("at least one rank"));
  EXPECT_THAT(refusal({.num_ranks = 2, .local_ranks = 3}), HasSubstr("on a machine"));
  EXPECT_THAT(refusal({.mfu = 0}), HasSubstr("--mfu"));
  EXPECT_THAT(refusal({.tflops = -1}), HasSubstr("--tflops"));
  Recipe other = recipe;
  other.batch.global = 0;
  EXPECT_THAT(plan(other).status().message(), HasSubstr("batch.global"));
  other = recipe;
  other.model.path = "no-such-model";
  EXPECT_THAT(plan(other).status().message(), HasSubstr("no-such-model"));
  other.model.path = "sd2-base";
  other.data.resolution = 100;
  EXPECT_THAT(plan(other).status().message(), HasSubstr("data.resolution"));
}

TEST_F(TrainingPlanTest, a_model_folder_without_the_part_is_named) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("model/unet"));
  Recipe recipe = shipped("sd2-256");
  recipe.model.path = folder.path("model");
  EXPECT_THAT(plan(recipe).status().message(), HasSubstr("unet/config.json is missing"));
  recipe.objective.kind = "autoencoder";
  recipe.data.path.clear();
  recipe.data.raw_path = "pictures";
  EXPECT_THAT(plan(recipe).status().message(), HasSubstr("vae/config.json is missing"));
}

TEST_F(TrainingPlanTest, remarks_on_windows_that_do_not_fit) {
  Recipe recipe = shipped("sd2-256");
  EXPECT_TRUE(plan(recipe)->remarks().empty());
  recipe.data.window_blocks = 64;
  EXPECT_THAT(plan(recipe)->remarks(), Contains(HasSubstr("data.memory_bytes")));
}

TEST_F(TrainingPlanTest, the_rank_that_is_told_holds_most) {
  Recipe recipe = shipped("sd2-256");
  recipe.model.path = "tiny";
  recipe.data.resolution = 64;
  recipe.batch.micro = 1;
  const UNet2DConditionModel unet(find_preset("tiny")->unet);
  RankMemorySpec spec{.size = flat_size(*unet, {})};
  const std::vector<std::pair<int64_t, int64_t>> runs = {{64, 3}, {40, 3}, {32, 7}, {36, 5}, {64, 9}, {8, 8}};
  for (const auto& [groups, num_ranks] : runs) {
    recipe.batch.global = recipe.runtime.gradient_groups = spec.gradient_groups = groups;
    spec.flat.num_ranks = num_ranks;
    int64_t most = 0;
    for (spec.flat.rank = 0; spec.flat.rank < num_ranks; ++spec.flat.rank) {
      most = std::max(most, rank_memory(spec).kept());
    }
    const auto found = plan(recipe, {.num_ranks = num_ranks});
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    EXPECT_EQ(found->memory.kept(), most) << groups << " groups, " << num_ranks << " ranks";
    EXPECT_EQ(found->rank_samples, samples_of_rank(recipe, found->rank, num_ranks).count);
  }
}

TEST_F(TrainingPlanTest, checkpoints_at_the_end_are_those_that_pruning_leaves) {
  Recipe recipe = shipped("tiny");
  recipe.model.path = "tiny";
  const std::vector<std::array<int64_t, 4>> runs = {{300'000, 10'000, 3, 50'000},
                                                    {275'000, 10'000, 3, 50'000},
                                                    {1000, 0, 3, 100},
                                                    {1000, 300, 2, 400},
                                                    {1000, 70, 1, 0},
                                                    {95, 10, 2, 15},
                                                    {20, 10, 5, 10}};
  for (const auto& [steps, every, keep_last, keep_every] : runs) {
    recipe.schedule.max_steps = steps;
    recipe.checkpoint = {.every_steps = every, .keep_last = keep_last, .keep_every = keep_every};
    std::vector<CheckpointPlace> places;
    for (int64_t step = 1; step <= steps; ++step) {
      if (step == steps || (every > 0 && step % every == 0)) {
        places.push_back({.path = "", .step = step});
      }
    }
    const size_t kept = places.size() - superfluous_checkpoints(places, keep_last, keep_every).size();
    const auto found = plan(recipe);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    EXPECT_EQ(found->all_checkpoints, static_cast<int64_t>(kept) * found->checkpoint) << steps << " steps, one in " << every;
  }
}

TEST_F(TrainingPlanTest, a_copy_to_write_checkpoints_from_is_planned_where_one_is_made) {
  Recipe recipe = shipped("tiny");
  recipe.model.path = "tiny";
  const auto with = plan(recipe);
  ASSERT_TRUE(with.is_ok()) << with.status().to_string();
  EXPECT_EQ(with->snapshot, with->checkpoint);
  EXPECT_THAT(with->to_text(), HasSubstr("runtime.background_saves"));
  EXPECT_EQ(with->to_json()["bytes"]["snapshot"], with->snapshot);
  recipe.ema.decay = 0;
  EXPECT_EQ(plan(recipe)->snapshot, 12 * with->parameters);
  recipe.ema.decay = 0.9;
  recipe.runtime.background_saves = false;
  const auto without = plan(recipe);
  EXPECT_EQ(without->snapshot, 0);
  EXPECT_EQ(with->peak_on_host() - without->peak_on_host(), with->snapshot);
  recipe.runtime.background_saves = true;
  for (const int64_t every : {int64_t{0}, recipe.schedule.max_steps}) {  // The last one is written at once.
    recipe.checkpoint.every_steps = every;
    EXPECT_EQ(plan(recipe)->snapshot, 0) << every;
  }
}

TEST_F(TrainingPlanTest, gradients_in_bfloat16_are_half_the_bytes_to_send_and_to_keep) {
  Recipe recipe = shipped("sd2-256");
  recipe.model.path = "tiny";
  recipe.data.resolution = 64;
  const PlanQuestion question{.num_ranks = 4};
  const auto wide = plan(recipe, question);
  recipe.runtime.gradient_wire = "bfloat16";
  const auto narrow = plan(recipe, question);
  ASSERT_TRUE(wide.is_ok() && narrow.is_ok());
  EXPECT_EQ(wide->sent_a_step - narrow->sent_a_step, wide->memory.gradients / 4 * 3 / 2) << "of three quarters, of one subtree";
  EXPECT_EQ(narrow->memory.partial_sums, wide->memory.partial_sums / 2);
}

TEST_F(TrainingPlanTest, recorded_passes_keep_what_they_hold_on_a_gpu) {
  const PlanQuestion gpu{.device = "cuda:0"};
  Recipe recipe = shipped("sd2-256");
  recipe.model.path = "tiny";
  recipe.data.resolution = 64;
  recipe.runtime.gradient_groups = 1;
  recipe.batch = {.global = 10, .micro = 4};
  const int64_t sample = 2 * (4 * 8 * 8 + 77 * find_preset("tiny")->unet.states_width());
  const auto recorded = plan(recipe, gpu);
  recipe.runtime.graphs = false;
  const auto plain = plan(recipe, gpu);
  recipe.batch.micro = 2;
  const auto rest = plan(recipe, gpu);
  ASSERT_TRUE(recorded.is_ok() && plain.is_ok() && rest.is_ok());
  EXPECT_EQ(recorded->activations, plain->activations + rest->activations) << "of the pass of four and that of the two left";
  EXPECT_EQ(plain->device_inputs, 10 * sample);
  EXPECT_EQ(recorded->device_inputs, (10 + 4 + 2) * sample);
  EXPECT_THAT(recorded->remarks(), Contains(HasSubstr("runtime.graphs=false")));
  EXPECT_TRUE(plain->remarks().empty());
  recipe.runtime.graphs = true;
  recipe.samples.every_steps = 0;
  EXPECT_TRUE(plan(recipe, gpu)->remarks().empty()) << "nothing runs beside the passes";
}

TEST_F(TrainingPlanTest, others_sums_come_beside_what_recorded_passes_keep) {
  const PlanQuestion gpus{.num_ranks = 4, .local_ranks = 4, .device = "cuda:0"};
  Recipe recipe = shipped("sd2-256");
  recipe.runtime.overlap = false;
  const auto recorded = plan(recipe, gpus);
  recipe.runtime.graphs = false;
  const auto plain = plan(recipe, gpus);
  ASSERT_TRUE(recorded.is_ok() && plain.is_ok());
  const auto beside = [](const TrainingPlan& found) { return found.peak_on_device() - found.memory.kept() - found.device_inputs; };
  ASSERT_GT(plain->memory.received_sums, 0);
  EXPECT_EQ(beside(*plain), std::max(plain->activations, plain->memory.received_sums));
  EXPECT_EQ(beside(*recorded), recorded->activations + recorded->memory.received_sums);
}

TEST_F(TrainingPlanTest, page_locked_batches_are_as_large_as_the_next_power_of_two) {
  Recipe recipe = shipped("sd2-256");
  recipe.model.path = "tiny";
  recipe.data.resolution = 64;
  recipe.runtime.gradient_groups = 1;
  recipe.batch = {.global = 10, .micro = 10};
  const auto gpu = plan(recipe, {.device = "cuda:0"});
  ASSERT_TRUE(gpu.is_ok());
  const int64_t latents = 10 * 2 * 4 * 8 * 8, states = int64_t{10} * 2 * 77 * find_preset("tiny")->unet.states_width();
  const auto locked = [](int64_t bytes) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))); };
  EXPECT_EQ(gpu->batches, (recipe.data.batches_ahead + 2) * (latents + states) + 2 * (locked(latents) + locked(states)));
}

TEST_F(TrainingPlanTest, passes_during_which_gradients_are_sent_are_not_recorded) {
  const PlanQuestion gpus{.num_ranks = 32, .local_ranks = 8, .device = "cuda:0"};
  Recipe recipe = shipped("sd2-512");
  const int64_t sample = 2 * (4 * 64 * 64 + 77 * 1024);
  const auto check = [&](bool is_recorded, const std::string& what) {
    const auto found = plan(recipe, gpus);
    ASSERT_TRUE(found.is_ok()) << found.status().to_string();
    EXPECT_EQ(found->keeps_graphs, is_recorded) << what;
    EXPECT_EQ(found->device_inputs, (128 + (is_recorded ? 32 : 0)) * sample) << what;
    EXPECT_EQ(found->remarks().size(), is_recorded ? 1U : 0U) << what;
  };
  check(false, "as shipped");
  recipe.runtime.overlap = false;
  check(true, "sent after the passes");
  recipe.runtime.overlap = true;
  recipe.runtime.reduction = "fast";
  check(true, "the library's sum is sent after them, too");
}

TEST_F(TrainingPlanTest, a_checkpoint_is_as_large_as_planned) {
  TrainedRun trained;
  trained.train("run", 2);
  TrainOptions options = small_training(trained.path("model"), trained.path("latents"), "");
  const auto found = plan(options.recipe);
  ASSERT_TRUE(found.is_ok()) << found.status().to_string();
  EXPECT_EQ(found->parameters, trained.parameters());
  int64_t num_bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(trained.path("run/checkpoints"))) {
    num_bytes += file.is_regular_file() && file.path().extension() == ".safetensors" ? static_cast<int64_t>(file.file_size()) : 0;
  }
  constexpr int64_t kHeaders = 64 << 10;  // Names of tensors: not of a large network's size.
  EXPECT_GE(num_bytes, found->checkpoint);
  EXPECT_LT(num_bytes, found->checkpoint + kHeaders);
}

constexpr int64_t kManyRows = int64_t{1} << 40;

TEST(step_settings, shipped_recipes_keep_what_they_shuffle) {
  constexpr int64_t kRanksOfAMachine = 8;
  for (const auto& [name, side] : {std::pair("sd2-256", 32), std::pair("sd2-512", 64)}) {
    Recipe recipe = load_recipe(local_files(), source_path(std::string("recipes/") + name + ".toml")).value();
    const int64_t memory_bytes = recipe.data.memory_bytes, row_bytes = 2 * (int64_t{4} * side * side + 77 * 1024);
    for (const int64_t num_ranks : {1, 2, 4, 8, 16, 32}) {
      recipe.data.memory_bytes = memory_of_rank(memory_bytes, std::min(num_ranks, kRanksOfAMachine));
      const Status checked = check_window_memory(recipe, {"latents", kManyRows, kManyRows / 256, row_bytes}, num_ranks);
      EXPECT_TRUE(checked.is_ok()) << name << " with " << num_ranks << " ranks: " << checked.message();
    }
  }
}

TEST(step_settings, published_recipes_compute_in_bfloat16_on_a_gpu_and_in_float32_on_the_cpu) {
  for (const char* name : {"sd2-256", "sd2-512"}) {
    Recipe recipe = load_recipe(local_files(), source_path(std::string("recipes/") + name + ".toml")).value();
    EXPECT_EQ(flat_options(recipe, torch::Device("cuda:0")).compute_type, torch::kBFloat16) << name;
    EXPECT_EQ(flat_options(recipe, torch::kCPU).compute_type, torch::kFloat32) << name;
    EXPECT_EQ(precision_on(recipe, torch::Device("cuda:1")), "bfloat16");
    recipe.runtime.precision = "float32";
    EXPECT_EQ(precision_on(recipe, torch::Device("cuda:0")), "float32") << "who says which gets it";
  }
}

TEST(step_settings, row_groups_that_are_larger_than_blocks_are_kept_whole) {
  Recipe recipe;
  recipe.runtime.lanes = 8;
  recipe.data.window_blocks = 16;
  recipe.data.memory_bytes = int64_t{6} << 30;  // 8 x 16 blocks of 256 rows are 5.4 GB.
  const auto check = [&](int64_t num_rows, int64_t group_rows) {
    return check_window_memory(recipe, {"s3://bucket/latents", num_rows, (num_rows + 255) / 256, 165'888, {group_rows, num_rows}}, 1);
  };
  for (const int64_t group_rows : {0, 1, 255, 256}) {
    EXPECT_TRUE(check(kManyRows, group_rows).is_ok()) << group_rows;
  }
  EXPECT_FALSE(check(kManyRows, 512).is_ok());
  const Status refused = check(kManyRows, 10'000);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  for (const char* word : {"data.memory_bytes", "s3://bucket/latents", "up to 10000 rows", "128 blocks", "212.337 GB", "6442450944"}) {
    EXPECT_THAT(refused.message(), HasSubstr(word));
  }
  EXPECT_TRUE(check(38'000, 10'000).is_ok()) << "all of a small dataset is kept";
  EXPECT_FALSE(check(39'000, 10'000).is_ok());
  const auto check_mixed = [&](int64_t rows_in_large) {
    return check_window_memory(recipe, {"s3://bucket/latents", kManyRows, kManyRows / 256, 165'888, {5'000, rows_in_large}}, 1);
  };
  EXPECT_TRUE(check_mixed(5'000).is_ok()) << "one large row group is kept beside blocks of the others";
  EXPECT_FALSE(check_mixed(7'000).is_ok());
}

TEST(step_settings, a_window_larger_than_the_memory_is_refused_naming_fields_and_values) {
  Recipe recipe;
  recipe.runtime.lanes = 64;
  recipe.data.window_blocks = 16;
  recipe.data.memory_bytes = 17'179'869'184;
  recipe.runtime.gradient_groups = 8;
  const auto check = [&](int64_t num_rows, int64_t num_ranks) {
    return check_window_memory(recipe, {"s3://bucket/latents", num_rows, (num_rows + 255) / 256, 165'888}, num_ranks);
  };
  const Status refused = check(kManyRows, 1);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  for (const char* word :
       {"data.memory_bytes", "runtime.lanes (64)", "data.window_blocks (16)", "s3://bucket/latents", "43.487 GB", "17179869184"}) {
    EXPECT_THAT(refused.message(), HasSubstr(word));
  }
  EXPECT_TRUE(check(102'000, 1).is_ok()) << "all of a small dataset is kept";
  EXPECT_FALSE(check(kManyRows, 2).is_ok());
  EXPECT_TRUE(check(kManyRows, 4).is_ok()) << "each has a quarter of the lanes";
}

TEST(step_settings, a_rank_shuffles_its_own_part_of_a_small_dataset) {
  Recipe recipe;
  recipe.runtime.lanes = 64;
  recipe.runtime.gradient_groups = 8;
  recipe.data.window_blocks = 16;
  recipe.data.memory_bytes = 17'179'869'184 / 8;
  EXPECT_TRUE(check_window_memory(recipe, {"latents", 100'000, 391, 165'888}, 8).is_ok()) << "an eighth of 16.6 GB";
  EXPECT_FALSE(check_window_memory(recipe, {"latents", 110'000, 430, 165'888}, 8).is_ok());
  EXPECT_FALSE(check_window_memory(recipe, {"latents", 100'000, 391, 165'888}, 4).is_ok());
}

TEST(step_settings, lanes_of_a_rank_are_those_that_its_groups_touch) {
  Recipe recipe;
  recipe.data.window_blocks = 1;
  const auto lanes_of = [&](int64_t lanes, int64_t batch, int64_t groups, int64_t num_ranks) {
    recipe.runtime.lanes = lanes;
    recipe.batch.global = batch;
    recipe.runtime.gradient_groups = groups;
    return window_rows(recipe, num_ranks) / 256;
  };
  EXPECT_EQ(lanes_of(32, 4096, 32, 8), 4);
  EXPECT_EQ(lanes_of(32, 4096, 32, 3), 11);
  EXPECT_EQ(lanes_of(8, 48, 6, 4), 3) << "two groups of six are parts of three lanes of eight";
  EXPECT_EQ(lanes_of(8, 4, 4, 4), 8) << "a batch of fewer samples than lanes takes other ones each time";
  EXPECT_EQ(lanes_of(8, 50, 2, 2), 5) << "borders wander";
  EXPECT_EQ(lanes_of(1, 50, 2, 2), 1);
}

TEST(step_settings, a_rank_that_fits_nowhere_is_refused) {
  RankMemory memory;
  memory.compute = memory.gradients = 4'000'000'000;
  memory.moments = 2'000'000'000;
  const Recipe recipe;
  EXPECT_TRUE(check_rank_memory(recipe, memory, 1, 10'000'000'000, "this machine").is_ok());
  EXPECT_TRUE(check_rank_memory(recipe, memory, 4, 0, "cuda:0").is_ok()) << "nobody knows";
  const Status refused = check_rank_memory(recipe, memory, 2, 16'000'000'000, "this machine");
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  for (const char* word : {"10.00 GB", "this machine has 16.00 GB", "runtime.gradient_groups", "--dry-run"}) {
    EXPECT_THAT(refused.message(), HasSubstr(word));
  }
}

TEST(step_settings, a_run_whose_window_does_not_fit_ends_before_it_begins) {
  const TemporaryFolder folder;
  write_small_model(folder.path("model"));
  write_latents_part(folder.path("latents/part-000000.parquet"), 1000, 1);
  write_empty_states(folder.path("latents"));
  TrainOptions options = small_training(folder.path("model"), folder.path("latents"), folder.path("run"));
  options.recipe.data.memory_bytes = 1 << 20;
  const auto summary = run_training(options, {});
  EXPECT_EQ(summary.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(summary.status().message(), HasSubstr("data.memory_bytes"));
  EXPECT_THAT(summary.status().message(), HasSubstr(folder.path("latents")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("run")));
}

TEST(step_settings, a_run_whose_row_groups_do_not_fit_ends_before_it_begins) {
  const TemporaryFolder folder;
  write_small_model(folder.path("model"));
  write_latents_part(folder.path("latents/part-000000.parquet"), 1000, 1);  // In one row group.
  write_empty_states(folder.path("latents"));
  TrainOptions options = small_training(folder.path("model"), folder.path("latents"), folder.path("run"), 1);
  options.recipe.data.memory_bytes = 1 << 20;
  options.recipe.runtime.lanes = options.recipe.data.window_blocks = 1;
  const auto summary = run_training(options, {});
  EXPECT_EQ(summary.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(summary.status().message(), HasSubstr("row groups"));
  EXPECT_THAT(summary.status().message(), HasSubstr("up to 1000 rows"));
}

TEST(step_settings, a_run_that_has_begun_goes_on_with_a_window_that_does_not_fit) {
  const TemporaryFolder folder;
  write_small_model(folder.path("model"));
  write_latents_part(folder.path("latents/part-000000.parquet"), 1000, 1);
  write_empty_states(folder.path("latents"));
  TrainOptions options = small_training(folder.path("model"), folder.path("latents"), folder.path("run"), 4);
  ASSERT_TRUE(run_training(options, {}).is_ok());
  options.recipe.data.memory_bytes = 1 << 20;
  options.recipe.schedule.max_steps = 6;
  testing::internal::CaptureStderr();
  const auto summary = run_training(options, {});
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
  EXPECT_THAT(said, HasSubstr("data.memory_bytes"));
  EXPECT_THAT(said, HasSubstr("the run has begun so, and goes on"));
}

TEST(step_settings, a_run_whose_pictures_do_not_fit_says_so_and_goes_on) {
  constexpr int64_t kPictures = 40;
  const TemporaryFolder folder;
  write_small_model(folder.path("model"));
  VaeConfig config;
  config.block_out_channels = {4, 4};
  config.norm_num_groups = 2;
  AutoencoderKL vae(config);
  initialize_parameters(vae, 1);
  ASSERT_TRUE(save_vae(local_files(), vae, folder.path("model/vae")).is_ok());
  arrow::BinaryBuilder images;
  for (int64_t row = 0; row < kPictures; ++row) {
    const std::string padding(40'000, 'x');  // Behind the end of a picture nothing is read.
    ASSERT_TRUE(images.Append(encode_png(Image::filled(16, 16, 3, static_cast<uint8_t>(row))) + padding).ok());
  }
  const auto schema =
      arrow::schema({arrow::field("key", arrow::utf8()), arrow::field("caption", arrow::utf8()), arrow::field("image", arrow::binary())});
  const auto rows = arrow::RecordBatch::Make(schema, kPictures,
                                             {numbered_texts("key-", kPictures), numbered_texts("picture ", kPictures), *images.Finish()});
  ASSERT_TRUE(put_shard(local_files(), folder.path("images"), "part-000000.parquet", *rows).is_ok());
  TrainOptions options = small_training(folder.path("model"), "", folder.path("run"), 1);
  options.recipe.data.raw_path = folder.path("images");
  options.recipe.objective.kind = "autoencoder";
  options.recipe.schedule.warmup_steps = 0;
  for (const int64_t memory_bytes : {4 << 20, 1 << 20}) {
    options.output = folder.path("run-" + std::to_string(memory_bytes));
    options.recipe.data.memory_bytes = memory_bytes;
    testing::internal::CaptureStderr();
    const auto summary = run_training(options, {});
    const std::string said = testing::internal::GetCapturedStderr();
    ASSERT_TRUE(summary.is_ok()) << summary.status().to_string();
    EXPECT_EQ(said.find("data.memory_bytes") != std::string::npos, memory_bytes == 1 << 20) << said;
  }
}

}  // namespace
}  // namespace darkroom
