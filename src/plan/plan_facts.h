#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace darkroom {

/// A number that every plan needs and the catalogue gives: its unit and meaning are the program's, value and origin the file's.
struct PlanFact {
  const char* name;
  const char* unit;
  const char* label;
  double most = std::numeric_limits<double>::max();
  bool may_be_zero = false;
};

/// Null where plans do not know it.
const PlanFact* find_plan_fact(std::string_view name);
std::vector<std::string> plan_fact_names();

}  // namespace darkroom
