#pragma once

#include "picture_fields.h"

namespace darkroom {

/// What OpenAI's generations and edits ask for alike, ours beside it.
struct OpenAiFields {
  WantedPictures wanted;
  bool is_streamed = false;
  int num_partial_images = 0;
};

OpenAiFields read_openai_fields(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits);

}  // namespace darkroom
