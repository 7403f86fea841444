#pragma once

#include "picture_fields.h"

namespace darkroom {

/// What OpenAI's generations and edits ask for alike, ours beside it.
struct OpenAiFields {
  WantedPictures wanted;
  bool is_streamed = false;
  int num_partial_images = 0;
};

/// Steps from one preview to the next, where so many stand at equal distances and the picture itself comes last; 0: there are none.
int preview_distance(int num_steps, int num_partial_images);

OpenAiFields read_openai_fields(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits);

}  // namespace darkroom
