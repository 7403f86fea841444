#pragma once

namespace darkroom {

/// The versions whose files ours follow; readers elsewhere branch on them.
inline constexpr const char* kDiffusersVersion = "0.42.1";
inline constexpr const char* kTransformersVersion = "5.23.0";

}  // namespace darkroom
