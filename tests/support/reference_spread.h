#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/source_path.h"

namespace darkroom {

/// A processor that the recording did not see may round otherwise again: this many times the spread of those that it saw.
inline constexpr double kSpreadSafety = 4.0;

/// How far the reference strays from its recorded values under other instructions and memory formats: `spread` of
/// tests/golden/PART/spread.json, made by tools/goldens/make_spread.py. What is not listed has none.
inline nlohmann::json read_spread(const std::string& part) {
  std::ifstream file(source_path("tests/golden/" + part + "/spread.json"));
  return nlohmann::json::parse(file).at("spread");
}

}  // namespace darkroom
