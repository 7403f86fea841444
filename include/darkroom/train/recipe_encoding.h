#pragma once

#include "darkroom/core/result.h"
#include "darkroom/encode/process_job.h"
#include "darkroom/train/recipe.h"

namespace darkroom {

/// How the encoders of an online run encode, by its recipe, as options of `process`: input, model, transform, dtype, tokenizer_dialect,
/// seed and rows_per_file. Errors: kInvalidArgument (a tokenizer dialect that is none).
Result<ProcessOptions> encoding_of(const Recipe& recipe);

}  // namespace darkroom
