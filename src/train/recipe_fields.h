#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "darkroom/train/recipe.h"

namespace darkroom {

/// Whether a run may go on after the value of a field has changed.
enum class FieldRole {
  kFree,
  kFixedForRun,
  kFixedForPictures,  ///< Where the run reads pictures: to encode them, or to train an autoencoder.
  kFixedForEncoding,  ///< Where the run encodes pictures.
};

/// One field of a recipe: its name and where its value lies.
struct RecipeField {
  std::string_view section;
  std::string_view key;
  std::variant<bool*, int64_t*, double*, std::string*, std::vector<std::string>*> value;
  FieldRole role;
};

/// Every field of `recipe`, sections together, in the order of the struct: the one table that parsing, printing and
/// comparing share.
std::vector<RecipeField> recipe_fields(Recipe& recipe);

}  // namespace darkroom
