#include "recipe_fields.h"

namespace darkroom {

std::vector<RecipeField> recipe_fields(Recipe& recipe) {
  constexpr auto kBits = FieldRole::kFixedForRun;
  constexpr auto kFree = FieldRole::kFree;
  auto& [model, data, objective, noise, optimizer, schedule, ema, batch, checkpoint, validation, samples, runtime] = recipe;
  return {
      {"model", "path", &model.path, kFree},
      {"model", "start", &model.start, kFree},
      {"data", "path", &data.path, kFree},
      {"data", "raw_path", &data.raw_path, kFree},
      {"data", "resolution", &data.resolution, kBits},
      {"data", "window_blocks", &data.window_blocks, kBits},
      {"data", "memory_bytes", &data.memory_bytes, kFree},
      {"data", "batches_ahead", &data.batches_ahead, kFree},
      {"data", "rows_per_file", &data.rows_per_file, kFree},
      {"data", "storage_dtype", &data.storage_dtype, kFree},
      {"data", "resize", &data.resize, kFree},
      {"data", "crop", &data.crop, kFree},
      {"data", "orientation", &data.orientation, kFree},
      {"data", "tokenizer_dialect", &data.tokenizer_dialect, kFree},
      {"data", "process_seed", &data.process_seed, kFree},
      {"objective", "kind", &objective.kind, kBits},
      {"objective", "prediction", &objective.prediction, kBits},
      {"objective", "caption_dropout", &objective.caption_dropout, kBits},
      {"objective", "l1_weight", &objective.l1_weight, kBits},
      {"objective", "mse_weight", &objective.mse_weight, kBits},
      {"objective", "kl_weight", &objective.kl_weight, kBits},
      {"noise", "num_timesteps", &noise.num_timesteps, kBits},
      {"noise", "beta_schedule", &noise.beta_schedule, kBits},
      {"noise", "beta_start", &noise.beta_start, kBits},
      {"noise", "beta_end", &noise.beta_end, kBits},
      {"optimizer", "lr", &optimizer.lr, kFree},
      {"optimizer", "beta1", &optimizer.beta1, kFree},
      {"optimizer", "beta2", &optimizer.beta2, kFree},
      {"optimizer", "epsilon", &optimizer.epsilon, kFree},
      {"optimizer", "weight_decay", &optimizer.weight_decay, kFree},
      {"optimizer", "clip_norm", &optimizer.clip_norm, kFree},
      {"schedule", "kind", &schedule.kind, kFree},
      {"schedule", "max_steps", &schedule.max_steps, kFree},
      {"schedule", "warmup_steps", &schedule.warmup_steps, kFree},
      {"schedule", "final_fraction", &schedule.final_fraction, kFree},
      {"ema", "decay", &ema.decay, kFree},
      {"ema", "warmup", &ema.warmup, kFree},
      {"batch", "global", &batch.global, kBits},
      {"batch", "micro", &batch.micro, kFree},
      {"checkpoint", "every_steps", &checkpoint.every_steps, kFree},
      {"checkpoint", "keep_last", &checkpoint.keep_last, kFree},
      {"checkpoint", "keep_every", &checkpoint.keep_every, kFree},
      {"validation", "path", &validation.path, kFree},
      {"validation", "every_steps", &validation.every_steps, kFree},
      {"validation", "num_rows", &validation.num_rows, kFree},
      {"samples", "every_steps", &samples.every_steps, kFree},
      {"samples", "prompts", &samples.prompts, kFree},
      {"samples", "sampler", &samples.sampler, kFree},
      {"samples", "steps", &samples.steps, kFree},
      {"samples", "guidance", &samples.guidance, kFree},
      {"samples", "seed", &samples.seed, kFree},
      {"runtime", "seed", &runtime.seed, kBits},
      {"runtime", "threads", &runtime.threads, kFree},
      {"runtime", "precision", &runtime.precision, kFree},
      {"runtime", "lanes", &runtime.lanes, kBits},
      {"runtime", "log_every", &runtime.log_every, kFree},
  };
}

}  // namespace darkroom
