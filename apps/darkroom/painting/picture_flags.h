#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command_line.h"
#include "darkroom/image/transform.h"

namespace darkroom {

/// NAME,NAME,...: the names, none empty.
ValueDefinition column_names(std::vector<std::string>& target);

/// --resolution, --resize, --crop, --orientation and --seed of what turns pictures into squares; `seeds`: what the seed is of.
void add_transform_flags(VerbDefinition& verb, TransformOptions& transform, uint64_t& seed, const std::string& seeds);

/// What encoders and transformers must know to be let in, and those that ask them: DARKROOM_ENCODER_TOKEN; empty without it.
std::string encoder_token();

}  // namespace darkroom
