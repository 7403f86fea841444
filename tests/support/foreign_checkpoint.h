#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "darkroom/core/sha256.h"

namespace darkroom {

/// The text of a state.json with these fields, as another program would write it: with a digest of its own.
inline std::string signed_checkpoint_record(nlohmann::json state) {
  state.erase("state_sha256");
  state["state_sha256"] = sha256_hex(state.dump(1) + "\n");
  return state.dump(1) + "\n";
}

}  // namespace darkroom
