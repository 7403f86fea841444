#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/source_path.h"

namespace darkroom {

/// A table of tools/goldens/make_measure_goldens.py, which says what is in it.
inline nlohmann::json measure_golden(const std::string& name) {
  std::ifstream file(source_path("tests/golden/measure/" + name));
  return nlohmann::json::parse(file);
}

}  // namespace darkroom
