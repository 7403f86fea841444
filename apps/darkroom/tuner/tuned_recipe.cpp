#include "tuned_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "darkroom/feed/dataset_files.h"

namespace darkroom {
namespace {

constexpr double kLrFactor = 32;  // More than a recipe is usually wrong by.

/// Why fields may not be tuned: "section." is all of a section.
struct Untunable {
  std::string_view name;
  std::string_view reason;
};

constexpr Untunable kUntunable[] = {
    {"model.", "trials of one search train the same model from the same weights"},
    {"data.", "trials of one search see the same rows in the same order"},
    {"objective.kind", "losses of another objective cannot be compared"},
    {"objective.prediction", "losses of another prediction cannot be compared"},
    {"objective.l1_weight", "it is part of the loss that trials are compared by"},
    {"objective.mse_weight", "it is part of the loss that trials are compared by"},
    {"objective.log_mse_weight", "it is part of the loss that trials are compared by"},
    {"objective.kl_weight", "it is part of the loss that trials are compared by"},
    {"noise.", "losses under another noise schedule cannot be compared, and it must be the model's"},
    {"optimizer.max_skipped", "it hides a divergence, which is a trial's result"},
    {"schedule.max_steps", "the length of a trial is the search's own; see --samples"},
    {"checkpoint.", "it changes nothing that a trial is compared by"},
    {"validation.", "trials are compared by the same validation"},
    {"samples.", "trials paint nothing"},
    {"runtime.seed", "another seed is another order of the rows and other noise: trials would differ by luck"},
    {"runtime.lanes", "it is part of the order of the rows"},
    {"runtime.device", "trials of one search run on the same device"},
    {"runtime.watchdog_seconds", "it changes nothing that a trial is compared by"},
    {"runtime.progress_seconds", "it changes nothing that a trial is compared by"},
    {"runtime.log_every", "it changes nothing that a trial is compared by"},
    {"runtime.background_saves", "it changes nothing that a trial is compared by"},
    {"runtime.reduction", "trials have one rank"},
    {"runtime.overlap", "trials have one rank"},
    {"runtime.gradient_groups", "it changes the last bits of a sum, and nothing that can be told from chance"},
    {"runtime.gradient_wire", "it changes the last bits of a sum, and nothing that can be told from chance"},
};

Status check_tunable(const std::string& key) {
  for (const Untunable& one : kUntunable) {
    if (one.name.ends_with('.') ? key.starts_with(one.name) : key == one.name) {
      return Status::invalid_argument(fmt::format("--set-range: the field '{}' cannot be tuned:", key), one.reason);
    }
  }
  return {};
}

std::string assignment(const std::string& key, const std::string& value) { return key + "=" + value; }

// Whether the recipe takes a value by itself; its text as the recipe prints it.
Result<std::string> taken_value(const Recipe& recipe, const std::string& key, const std::string& value) {
  DARKROOM_ASSIGN_OR_RETURN(const Recipe changed, recipe_with(recipe, {{key, value}}));
  return recipe_field_text(changed, key);
}

Status check_range(const Recipe& recipe, SearchAxis& axis, RecipeFieldKind kind) {
  if (kind != RecipeFieldKind::kWhole && kind != RecipeFieldKind::kNumber) {
    return Status::invalid_argument("--set-range: a range is for fields of numbers; list the values of:", axis.key);
  }
  if (kind == RecipeFieldKind::kWhole && !axis.is_whole) {
    axis.is_whole = true;
    DARKROOM_RETURN_IF_ERROR(parse_search_axis(axis.to_text()).status());  // Whole ends.
  }
  for (const double end : {axis.low, axis.high}) {
    DARKROOM_RETURN_IF_ERROR(taken_value(recipe, axis.key, setting_number(end)).status().with_context("--set-range " + axis.to_text()));
  }
  return {};
}

// Each in the recipe's own spelling: 1e-3 and 0.001 are one value.
Status take_values(const Recipe& recipe, const std::string& text, SearchAxis& axis) {
  std::set<std::string> seen;
  for (std::string& value : axis.values) {
    auto taken = taken_value(recipe, axis.key, value);
    DARKROOM_RETURN_IF_ERROR(taken.status().with_context("--set-range " + text));
    value = std::move(taken).value();
    if (!seen.insert(value).second) {
      return Status::invalid_argument(fmt::format("--set-range: the value {} comes twice, got:", value), text);
    }
  }
  return {};
}

SearchAxis batch_axis(const Recipe& recipe) {
  SearchAxis axis{.key = "batch.global"};
  for (const int64_t eighths : {1, 2, 4, 8, 16}) {
    const int64_t batch = recipe.batch.global * eighths / 8;
    const bool is_whole = batch * 8 == recipe.batch.global * eighths;
    if (is_whole && recipe_with(recipe, {{axis.key, fmt::format("{}", batch)}}).is_ok()) {
      axis.values.push_back(fmt::format("{}", batch));
    }
  }
  return axis;
}

SearchAxis warmup_axis(const Recipe& recipe) {
  constexpr int64_t kSome = 100;
  const int64_t own = recipe.schedule.warmup_steps;
  SearchAxis axis{.key = "schedule.warmup_steps"};
  for (const int64_t steps : own == 0 ? std::vector<int64_t>{0, kSome} : std::vector<int64_t>{own / 4, own, own * 4}) {
    axis.values.push_back(fmt::format("{}", steps));
  }
  return axis;
}

}  // namespace

Result<Recipe> recipe_with(const Recipe& recipe, const TrialSettings& settings) {
  Recipe changed = recipe;
  for (const auto& [key, value] : settings) {
    DARKROOM_RETURN_IF_ERROR(set_recipe_field(changed, assignment(key, value)));
  }
  DARKROOM_RETURN_IF_ERROR(changed.validate());
  return changed;
}

Result<Recipe> full_recipe_with(const Recipe& recipe, const TrialSettings& settings) {
  DARKROOM_ASSIGN_OR_RETURN(Recipe changed, recipe_with(recipe, settings));
  if (changed.batch.global != recipe.batch.global) {
    const double samples = static_cast<double>(recipe.schedule.max_steps) * static_cast<double>(recipe.batch.global);
    changed.schedule.max_steps = std::max<int64_t>(1, std::llround(samples / static_cast<double>(changed.batch.global)));
  }
  return changed;
}

Result<std::vector<SearchAxis>> read_search_axes(const Recipe& recipe, const std::vector<std::string>& texts) {
  std::vector<SearchAxis> axes;
  for (const std::string& text : texts) {
    DARKROOM_ASSIGN_OR_RETURN(SearchAxis axis, parse_search_axis(text));
    DARKROOM_ASSIGN_OR_RETURN(const RecipeFieldKind kind, recipe_field_kind(axis.key));
    DARKROOM_RETURN_IF_ERROR(check_tunable(axis.key));
    if (axis.is_range()) {
      DARKROOM_RETURN_IF_ERROR(check_range(recipe, axis, kind));
    }
    DARKROOM_RETURN_IF_ERROR(take_values(recipe, text, axis));
    axes.push_back(std::move(axis));
  }
  return axes;
}

std::vector<SearchAxis> default_search_axes(const Recipe& recipe) {
  std::vector<SearchAxis> axes = {
      {.key = "optimizer.lr", .low = recipe.optimizer.lr / kLrFactor, .high = recipe.optimizer.lr * kLrFactor, .is_log = true}};
  for (SearchAxis& axis : std::vector{batch_axis(recipe), warmup_axis(recipe)}) {
    if (axis.values.size() > 1) {
      axes.push_back(std::move(axis));
    }
  }
  if (recipe.optimizer.lr <= 0) {
    axes.erase(axes.begin());
  }
  return axes;
}

Recipe recorded_recipe(Recipe recipe) {
  for (std::string* place : {&recipe.model.path, &recipe.data.path, &recipe.data.raw_path, &recipe.validation.path}) {
    *place = place->empty() ? "" : recorded_uri(*place);
  }
  return recipe;
}

TrialSettings own_settings(const Recipe& recipe, const std::vector<SearchAxis>& axes) {
  TrialSettings settings;
  for (const SearchAxis& axis : axes) {
    settings.emplace_back(axis.key, recipe_field_text(recipe, axis.key).value());
  }
  return settings;
}

}  // namespace darkroom
