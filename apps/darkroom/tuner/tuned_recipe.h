#pragma once

#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/train/recipe.h"
#include "darkroom/tune/search_space.h"

namespace darkroom {

/// The axes that `--set-range` texts name, as the recipe code takes them: values in its own words, ranges of whole-number fields whole.
/// Errors: kInvalidArgument naming the field: unknown (with the nearest one), none that may be tuned (with the reason), a value that the
/// field or Recipe::validate() does not take, by itself and in this recipe; a range of a field without numbers.
Result<std::vector<SearchAxis>> read_search_axes(const Recipe& recipe, const std::vector<std::string>& texts);

/// Without any: the learning rate by its logarithm from a 32nd to 32 times the recipe's, the batch from an eighth to twice, the warm-up a
/// quarter, as it is and four times; values that the recipe does not take are left out.
std::vector<SearchAxis> default_search_axes(const Recipe& recipe);

/// The recipe's own values of the axes' fields.
TrialSettings own_settings(const Recipe& recipe, const std::vector<SearchAxis>& axes);

/// The recipe as files tell it: places without what may be secret.
Recipe recorded_recipe(Recipe recipe);

/// The recipe with a trial's settings. Errors: kInvalidArgument where it does not take them together.
Result<Recipe> recipe_with(const Recipe& recipe, const TrialSettings& settings);

/// The recipe of a full run with a trial's settings: as many samples as the recipe's own, whatever the batch.
Result<Recipe> full_recipe_with(const Recipe& recipe, const TrialSettings& settings);

}  // namespace darkroom
