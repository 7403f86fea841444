#include "step_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "darkroom/core/machine.h"
#include "darkroom/feed/dataset_index.h"
#include "darkroom/optim/gradient_groups.h"

namespace darkroom {
namespace {

constexpr double kBytesPerGb = 1e9;

double in_gb(int64_t num_bytes) { return static_cast<double>(num_bytes) / kBytesPerGb; }

// Of the rank with most. A batch is taken lane by lane, so that a rank's run of it is of neighbouring lanes; it may begin and end within
// one, and where the lanes do not divide the batch, elsewhere in each.
int64_t own_lanes(const Recipe& recipe, int64_t num_lanes, int64_t num_ranks) {
  const int64_t batch = recipe.batch.global, per_lane = batch / num_lanes;
  if (per_lane == 0) {
    return num_lanes;  // Each batch is of others.
  }
  int64_t most = 1;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const FlatRange samples = samples_of_rank(recipe, rank, num_ranks);
    const int64_t end = samples.first + samples.count;
    const int64_t lanes = batch % num_lanes == 0 ? (end + per_lane - 1) / per_lane - samples.first / per_lane
                                                 : (samples.count * num_lanes + batch - 1) / batch + 1;
    most = std::max(most, lanes);
  }
  return std::min(most, num_lanes);
}

// A cosine of a run that is shorter than its warm-up (--max-steps) warms up until its last step; a constant rate takes no notice of the
// end.
LrScheduleOptions lr_schedule(const Recipe& recipe) {
  const bool is_cosine = recipe.schedule.kind == "cosine";
  return {.peak = recipe.optimizer.lr,
          .warmup_steps = is_cosine ? std::min(recipe.schedule.warmup_steps, recipe.schedule.max_steps - 1) : recipe.schedule.warmup_steps,
          .decay = is_cosine ? LrDecay::kCosine : LrDecay::kConstant,
          .total_steps = recipe.schedule.max_steps,
          .floor = recipe.optimizer.lr * recipe.schedule.final_fraction};
}

// Of rows that fit by themselves, at `own_rows` a time.
Status check_group_memory(const Recipe& recipe, const DatasetSize& dataset, int64_t own_rows) {
  constexpr int64_t kBlock = DatasetIndex::kRowsPerBlock;
  if (dataset.row_groups.largest <= kBlock) {
    return {};
  }
  const int64_t own_blocks = (own_rows + kBlock - 1) / kBlock;
  // All of them large, or all large ones and the others of a block.
  const double held = std::min(static_cast<double>(own_blocks) * static_cast<double>(dataset.row_groups.largest),
                               static_cast<double>(dataset.row_groups.rows_in_large) + static_cast<double>(own_blocks * kBlock));
  const double rows = std::min(static_cast<double>(dataset.num_rows), held);
  const double bytes = rows * static_cast<double>(dataset.row_bytes);
  if (bytes <= static_cast<double>(recipe.data.memory_bytes)) {
    return {};
  }
  return Status::failed_precondition(
      fmt::format(
          "the recipe's field 'data.memory_bytes' is too small for the row groups of {}: they have up to {} rows, are read and kept "
          "whole, and each of the {} blocks of {} rows that a rank shuffles at a time may lie in another one, {:.3f} GB in all; "
          "write the dataset with row groups of {} rows, as process does, raise the field, or lower runtime.lanes or "
          "data.window_blocks (a rank's share of it):",
          dataset.name, dataset.row_groups.largest, own_blocks, kBlock, bytes / kBytesPerGb, kBlock),
      recipe.data.memory_bytes);
}

}  // namespace

std::string precision_on(const Recipe& recipe, const torch::Device& device) {
  const std::string& precision = recipe.runtime.precision;
  return precision != "auto" ? precision : device.is_cpu() ? "float32" : "bfloat16";
}

FlatParametersOptions flat_options(const Recipe& recipe, const torch::Device& device) {
  const torch::ScalarType type = precision_on(recipe, device) == "bfloat16" ? torch::kBFloat16 : torch::kFloat32;
  return device.is_cpu() ? FlatParametersOptions{.compute_type = type} : FlatParametersOptions::for_gpu(device, type);
}

torch::ScalarType gradient_wire(const Recipe& recipe) {
  return recipe.runtime.gradient_wire == "bfloat16" ? torch::kBFloat16 : torch::kFloat32;
}

bool saves_in_background(const Recipe& recipe) {
  const int64_t every_steps = recipe.checkpoint.every_steps;
  return recipe.runtime.background_saves && every_steps > 0 && every_steps < recipe.schedule.max_steps;
}

int64_t page_locked_bytes(int64_t bytes) { return bytes == 0 ? 0 : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes))); }

int64_t snapshot_bytes(const Recipe& recipe, const RankMemory& memory, const FlatParametersOptions& flat) {
  if (!saves_in_background(recipe) && (flat.device.is_cpu() || flat.num_ranks == 1)) {
    return 0;
  }
  constexpr int64_t kStateTensors = 3, kMoments = 2;  // Weights and both moments, and the average.
  if (flat.device.is_cpu()) {
    return memory.moments * kStateTensors / kMoments + memory.average;
  }
  return kStateTensors * page_locked_bytes(memory.moments / kMoments) + page_locked_bytes(memory.average);
}

RankMemorySpec rank_memory_spec(const Recipe& recipe, const torch::nn::Module& module, const FlatParametersOptions& flat) {
  return {.size = flat_size(module, flat),
          .flat = flat,
          .averages = recipe.ema.decay > 0,
          .gradient_groups = recipe.runtime.gradient_groups,
          .fast_reduction = recipe.runtime.reduction == "fast",
          .gradient_wire = gradient_wire(recipe)};
}

int64_t num_workers(const Recipe& recipe, int64_t local_ranks) {
  const auto& runtime = recipe.runtime;
  return runtime.workers > 0 ? runtime.workers : std::max<int64_t>(1, num_processors() / (runtime.threads * local_ranks));
}

TrainStepOptions train_step_options(const Recipe& recipe, const torch::Device& device, int64_t local_ranks) {
  return {.micro_batch = recipe.batch.micro,
          .gradient_groups = recipe.runtime.gradient_groups,
          .fast_reduction = recipe.runtime.reduction == "fast",
          .gradient_wire = gradient_wire(recipe),
          .overlaps = recipe.runtime.overlap,
          .workers = device.is_cpu() ? num_workers(recipe, local_ranks) : 1,
          .max_grad_norm = recipe.optimizer.clip_norm,
          .schedule = lr_schedule(recipe),
          .replays = recipe.runtime.graphs};
}

int64_t num_passes(const Recipe& recipe, int64_t num_samples) {
  return num_samples / group_size(recipe) * ((group_size(recipe) + recipe.batch.micro - 1) / recipe.batch.micro);
}

int64_t passes_at_a_time(const Recipe& recipe, const torch::Device& device, int64_t rank_samples, int64_t local_ranks) {
  return device.is_cpu() ? std::min(num_workers(recipe, local_ranks), num_passes(recipe, rank_samples)) : 1;
}

int64_t group_size(const Recipe& recipe) { return recipe.batch.global / recipe.runtime.gradient_groups; }

FlatRange samples_of_rank(const Recipe& recipe, int64_t rank, int64_t num_ranks) {
  const GroupSpan groups = groups_of_rank(recipe.runtime.gradient_groups, rank, num_ranks);
  return {groups.first * group_size(recipe), groups.count * group_size(recipe)};
}

int64_t window_rows(const Recipe& recipe, int64_t num_ranks) {
  return own_lanes(recipe, recipe.runtime.lanes, num_ranks) * recipe.data.window_blocks * DatasetIndex::kRowsPerBlock;
}

Status check_rank_memory(const Recipe& recipe, const RankMemory& memory, int64_t local_ranks, int64_t memory_bytes, const std::string& of) {
  if (memory_bytes <= 0 || memory.kept() <= memory_bytes / local_ranks) {
    return {};
  }
  return Status::failed_precondition(
      fmt::format("weights, gradients, optimizer state and partial sums of a rank take {:.2f} GB, before any sample, and {} has {:.2f} GB "
                  "for {}; take more ranks on other machines, runtime.gradient_groups nearer to the ranks, or another machine; "
                  "`train --dry-run` tells the parts (groups, ranks here):",
                  in_gb(memory.kept()), of, in_gb(memory_bytes), local_ranks == 1 ? "it" : "all of them"),
      recipe.runtime.gradient_groups, local_ranks);
}

Status check_snapshot_memory(const Recipe& recipe, int64_t copy, int64_t beside_bytes, int64_t local_ranks, int64_t memory_bytes) {
  if (copy == 0 || memory_bytes <= 0 || beside_bytes + copy <= memory_bytes / local_ranks) {
    return {};
  }
  return Status::failed_precondition(
      fmt::format(
          "the copy from which a rank's checkpoints are written{} takes {:.2f} GB beside {:.2f} GB, and this machine has {:.2f} GB for {}; "
          "{} (ranks here):",
          saves_in_background(recipe) ? " in the background" : "", in_gb(copy), in_gb(beside_bytes), in_gb(memory_bytes),
          local_ranks == 1 ? "it" : "all of them",
          saves_in_background(recipe) ? "set runtime.background_saves = false" : "take more ranks on other machines"),
      local_ranks);
}

Status check_window_memory(const Recipe& recipe, const DatasetSize& dataset, int64_t num_ranks) {
  const int64_t num_lanes = std::max<int64_t>(1, std::min(recipe.runtime.lanes, dataset.num_blocks));
  const int64_t lanes = own_lanes(recipe, num_lanes, num_ranks);  // Each has as many blocks as another, or one more.
  const double part = static_cast<double>(dataset.num_rows) * static_cast<double>(lanes) / static_cast<double>(num_lanes);
  const int64_t own_rows = std::min(static_cast<int64_t>(part), lanes * recipe.data.window_blocks * DatasetIndex::kRowsPerBlock);
  const int64_t shuffled = own_rows * dataset.row_bytes;
  if (shuffled <= recipe.data.memory_bytes) {
    return check_group_memory(recipe, dataset, own_rows);
  }
  return Status::failed_precondition(
      fmt::format(
          "the recipe's field 'data.memory_bytes' is too small for what a rank shuffles at a time of {}: its part of runtime.lanes "
          "({}) x data.window_blocks ({}) x {} rows is at least {:.3f} GB, and rows would be read several times; raise it, or lower "
          "one of those two (a rank's share of it):",
          dataset.name, recipe.runtime.lanes, recipe.data.window_blocks, DatasetIndex::kRowsPerBlock, in_gb(shuffled)),
      recipe.data.memory_bytes);
}

}  // namespace darkroom
