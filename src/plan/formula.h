#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/plan/sheet.h"

namespace darkroom {

/// A number with its unit.
struct Quantity {
  double value = 0;
  Unit unit = {};
};

/// Works out a formula: + - * / ( ), numbers (pure), names, min, max (of two), ceil (in its argument's unit), sqrt. `look_up` gives the
/// quantity of a name. REQUIRES: a well-formed formula whose sums, minima and maxima are of one unit; CheckFailure otherwise.
Quantity evaluate_formula(std::string_view formula, const std::function<Quantity(const std::string&)>& look_up);

/// The names in a formula, each once, in the order of their first places.
std::vector<std::string> names_in_formula(std::string_view formula);

}  // namespace darkroom
