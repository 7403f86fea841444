#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "darkroom/core/utf8.h"
#include "darkroom/diffusion/sampler.h"
#include "darkroom/tensor/device.h"
#include "darkroom/train/recipe.h"
#include "recipe_fields.h"

namespace darkroom {
namespace {

struct IntegerRange {
  std::string_view name;
  int64_t value;
  int64_t least;
  int64_t most = int64_t{1} << 62;
};

struct NumberRange {
  std::string_view name;
  double value;
  double least;
  double below;  // The first value that is too large.
};

struct Choice {
  std::string_view name;
  const std::string& value;
  std::vector<std::string_view> allowed;
};

Status check_integers(const Recipe& recipe) {
  const IntegerRange ranges[] = {
      {"data.resolution", recipe.data.resolution, 8, 8192},
      {"data.window_blocks", recipe.data.window_blocks, 1, 1 << 22},
      {"data.memory_bytes", recipe.data.memory_bytes, 1 << 20},
      {"data.batches_ahead", recipe.data.batches_ahead, 1, 1024},
      {"data.rows_per_file", recipe.data.rows_per_file, 1},
      {"data.process_seed", recipe.data.process_seed, 0},
      {"noise.num_timesteps", recipe.noise.num_timesteps, 1, 1 << 20},
      {"schedule.max_steps", recipe.schedule.max_steps, 1},
      {"schedule.warmup_steps", recipe.schedule.warmup_steps, 0},
      {"batch.global", recipe.batch.global, 1, 1 << 24},
      {"batch.micro", recipe.batch.micro, 1, 1 << 24},
      {"checkpoint.every_steps", recipe.checkpoint.every_steps, 0},
      {"checkpoint.keep_last", recipe.checkpoint.keep_last, 1},
      {"checkpoint.keep_every", recipe.checkpoint.keep_every, 0},
      {"validation.every_steps", recipe.validation.every_steps, 1},
      {"validation.num_rows", recipe.validation.num_rows, 1},
      {"samples.every_steps", recipe.samples.every_steps, 0},
      {"samples.steps", recipe.samples.steps, 1, 100000},
      {"samples.seed", recipe.samples.seed, 0},
      {"runtime.seed", recipe.runtime.seed, 0},
      {"runtime.threads", recipe.runtime.threads, 1, 1024},
      {"runtime.workers", recipe.runtime.workers, 0, 1024},
      {"runtime.lanes", recipe.runtime.lanes, 1, 1 << 20},
      {"optimizer.max_skipped", recipe.optimizer.max_skipped, 0},
      {"runtime.gradient_groups", recipe.runtime.gradient_groups, 1, 1 << 16},
      {"runtime.watchdog_seconds", recipe.runtime.watchdog_seconds, 1, 86400},
      {"runtime.progress_seconds", recipe.runtime.progress_seconds, 1, 86400},
      {"runtime.log_every", recipe.runtime.log_every, 1},
  };
  for (const auto& range : ranges) {
    if (range.value < range.least || range.value > range.most) {
      const auto limits =
          range.most == int64_t{1} << 62 ? fmt::format("at least {}", range.least) : fmt::format("{} to {}", range.least, range.most);
      return Status::invalid_argument(fmt::format("the recipe's field '{}' must be {}, got:", range.name, limits), range.value);
    }
  }
  return {};
}

Status check_numbers(const Recipe& recipe) {
  constexpr double kAny = HUGE_VAL;
  const NumberRange ranges[] = {
      {"objective.caption_dropout", recipe.objective.caption_dropout, 0, std::nextafter(1.0, 2.0)},
      {"objective.min_snr_gamma", recipe.objective.min_snr_gamma, 0, kAny},
      {"objective.l1_weight", recipe.objective.l1_weight, 0, kAny},
      {"objective.mse_weight", recipe.objective.mse_weight, 0, kAny},
      {"objective.log_mse_weight", recipe.objective.log_mse_weight, 0, kAny},
      {"objective.kl_weight", recipe.objective.kl_weight, 0, kAny},
      {"noise.beta_start", recipe.noise.beta_start, 0, 1},
      {"noise.beta_end", recipe.noise.beta_end, recipe.noise.beta_start, 1},
      {"optimizer.lr", recipe.optimizer.lr, std::numeric_limits<double>::min(), kAny},
      {"optimizer.beta1", recipe.optimizer.beta1, 0, 1},
      {"optimizer.beta2", recipe.optimizer.beta2, 0, 1},
      {"optimizer.epsilon", recipe.optimizer.epsilon, std::numeric_limits<double>::min(), kAny},
      {"optimizer.weight_decay", recipe.optimizer.weight_decay, 0, kAny},
      {"optimizer.clip_norm", recipe.optimizer.clip_norm, 0, kAny},
      {"schedule.final_fraction", recipe.schedule.final_fraction, 0, std::nextafter(1.0, 2.0)},
      {"ema.decay", recipe.ema.decay, 0, 1},
      {"samples.guidance", recipe.samples.guidance, 0, kAny},
  };
  for (const auto& range : ranges) {
    if (!(range.value >= range.least && range.value < range.below)) {
      return Status::invalid_argument(
          fmt::format("the recipe's field '{}' must be at least {} and below {}, got:", range.name, range.least, range.below), range.value);
    }
  }
  return {};
}

Status check_choices(const Recipe& recipe) {
  const Choice choices[] = {
      {"model.start", recipe.model.start, {"random", "weights"}},
      {"data.storage_dtype", recipe.data.storage_dtype, {"float16", "float32"}},
      {"data.resize", recipe.data.resize, {"bilinear", "bicubic", "lanczos"}},
      {"data.crop", recipe.data.crop, {"center", "random"}},
      {"data.orientation", recipe.data.orientation, {"ignore", "apply"}},
      {"data.tokenizer_dialect", recipe.data.tokenizer_dialect, {"hf", "open_clip"}},
      {"objective.kind", recipe.objective.kind, {"diffusion", "autoencoder"}},
      {"objective.prediction", recipe.objective.prediction, {"epsilon", "v_prediction"}},
      {"noise.beta_schedule", recipe.noise.beta_schedule, {"scaled_linear", "linear"}},
      {"schedule.kind", recipe.schedule.kind, {"constant", "cosine"}},
      {"samples.sampler", recipe.samples.sampler, sampler_names()},
      {"runtime.precision", recipe.runtime.precision, {"auto", "float32", "bfloat16"}},
      {"runtime.reduction", recipe.runtime.reduction, {"exact", "fast"}},
      {"runtime.gradient_wire", recipe.runtime.gradient_wire, {"float32", "bfloat16"}},
  };
  for (const auto& choice : choices) {
    if (std::find(choice.allowed.begin(), choice.allowed.end(), choice.value) == choice.allowed.end()) {
      return Status::invalid_argument(
          fmt::format("the recipe's field '{}' must be one of {}, got:", choice.name, fmt::join(choice.allowed, ", ")), choice.value);
    }
  }
  return {};
}

Status check_device(const Recipe& recipe) {
  return is_device_text(recipe.runtime.device)
             ? Status::ok()
             : Status::invalid_argument("the recipe's field 'runtime.device' must be auto, cpu, cuda or cuda:N, got:",
                                        fmt::format("'{}'", recipe.runtime.device));
}

// recipe.toml and state.json keep every text of a run, and can hold UTF-8 alone.
Status check_texts(const Recipe& recipe) {
  Recipe copy = recipe;
  for (const RecipeField& field : recipe_fields(copy)) {
    std::vector<std::string> texts;
    if (auto* const* text = std::get_if<std::string*>(&field.value)) {
      texts = {**text};
    } else if (auto* const* list = std::get_if<std::vector<std::string>*>(&field.value)) {
      texts = **list;
    }
    for (const std::string& text : texts) {
      if (auto [shown, is_changed] = replace_invalid_utf8(text); is_changed) {
        return Status::invalid_argument(
            fmt::format("the recipe's field '{}.{}' must be UTF-8, the only text that recipe.toml can hold; give a folder another name, or "
                        "a link to it; got:",
                        field.section, field.key),
            shown);
      }
      if (text.find('\0') != std::string::npos) {
        std::string shown = text;
        for (size_t at = shown.find('\0'); at != std::string::npos; at = shown.find('\0', at)) {
          shown.replace(at, 1, "\uFFFD");
        }
        return Status::invalid_argument(fmt::format("the recipe's field '{}.{}' must not have a NUL in it; got:", field.section, field.key),
                                        shown);
      }
    }
  }
  return {};
}

// A batch is G equal groups of whole micro-batches; one group may end with a smaller one.
Status check_groups(const Recipe& recipe) {
  const int64_t groups = recipe.runtime.gradient_groups, batch = recipe.batch.global, micro = recipe.batch.micro;
  if (batch % groups != 0) {
    return Status::invalid_argument("the recipe's field 'runtime.gradient_groups' must divide batch.global (groups, batch):", groups,
                                    batch);
  }
  if (groups > 1 && batch / groups % micro != 0) {
    return Status::invalid_argument(
        "the recipe's field 'batch.micro' must divide the samples of a gradient group, batch.global / runtime.gradient_groups (micro, "
        "samples):",
        micro, batch / groups);
  }
  return {};
}

}  // namespace

Status Recipe::validate() const {
  DARKROOM_RETURN_IF_ERROR(check_integers(*this));
  DARKROOM_RETURN_IF_ERROR(check_numbers(*this));
  DARKROOM_RETURN_IF_ERROR(check_choices(*this));
  DARKROOM_RETURN_IF_ERROR(check_device(*this));
  DARKROOM_RETURN_IF_ERROR(check_texts(*this));
  DARKROOM_RETURN_IF_ERROR(check_groups(*this));
  if (runtime.gradient_wire != "float32" && runtime.reduction == "fast") {
    return Status::invalid_argument(
        "the recipe's field 'runtime.gradient_wire' is for runtime.reduction = \"exact\"; with \"fast\" it must be float32, got:",
        runtime.gradient_wire);
  }
  if (model.path.empty()) {
    return Status::invalid_argument("no model is named: give --model DIR or set the recipe's field:", "model.path");
  }
  if (noise.zero_terminal_snr && objective.prediction == "epsilon") {
    return Status::invalid_argument(
        "with noise.zero_terminal_snr the last timestep is pure noise, from which epsilon cannot be learned; set:",
        "objective.prediction=v_prediction");
  }
  if (noise.zero_terminal_snr && objective.min_snr_gamma > 0) {
    return Status::invalid_argument(
        "min-SNR weights divide by the SNR, which is 0 with noise.zero_terminal_snr; set objective.min_snr_gamma to 0, got:",
        objective.min_snr_gamma);
  }
  if (objective.kind == "autoencoder" && data.raw_path.empty()) {
    return Status::invalid_argument("the autoencoder objective trains on pictures: give --raw-data URI or set the recipe's field:",
                                    "data.raw_path");
  }
  if (objective.kind == "autoencoder" && objective.l1_weight + objective.mse_weight + objective.log_mse_weight == 0) {
    return Status::invalid_argument(
        "an autoencoder learns from an error: one of the recipe's fields objective.l1_weight, objective.mse_weight and "
        "objective.log_mse_weight must be above 0, got:",
        objective.l1_weight, objective.mse_weight, objective.log_mse_weight);
  }
  if (data.path.empty() == data.raw_path.empty()) {
    return Status::invalid_argument(
        "name exactly one of a latents dataset (--data, data.path) and an image dataset (--raw-data, data.raw_path), got:",
        data.path.empty() ? "none" : "both");
  }
  return {};
}

}  // namespace darkroom
