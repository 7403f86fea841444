#pragma once

namespace darkroom {

/// The program's version (semver). CMake reads it from this line; nothing else states it.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace darkroom
