#pragma once

#include <string>

#include "picture_fields.h"

namespace darkroom {

/// What OpenAI's generations and edits ask for alike, ours beside it.
struct OpenAiFields {
  WantedPictures wanted;
  std::string model;
  bool is_streamed = false;
  int num_partial_images = 0;
};

OpenAiFields read_openai_fields(RequestFields& fields, const ModelFacts& model, const RequestLimits& limits);

/// Errors: kNotFound: another model's name.
Status check_openai_model(const OpenAiFields& asked, const ModelFacts& model);

}  // namespace darkroom
