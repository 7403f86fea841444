#pragma once

#include <cstdlib>
#include <string>

namespace darkroom {

/// A file or folder of the source tree; its root is what ctest and tools/check/run_tests.py put into DARKROOM_SOURCE_DIR, else the current
/// folder.
inline std::string source_path(const std::string& name) {
  const char* root = std::getenv("DARKROOM_SOURCE_DIR");
  return std::string(root == nullptr ? "." : root) + "/" + name;
}

}  // namespace darkroom
