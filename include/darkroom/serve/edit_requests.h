#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "darkroom/core/result.h"
#include "darkroom/serve/image_requests.h"
#include "darkroom/serve/step_engine.h"

namespace darkroom {

/// Reads POST /v1/images/edits, whose body is a form with the file `image` (multipart/form-data), or JSON with `image` or `images`:
/// OpenAI's fields and ours, as of generations, and `strength`. Errors: kInvalidArgument naming the field; kNotFound (another model's
/// name).
Result<ImageRequest> read_openai_edit(std::string_view content_type, std::string_view body, const ModelFacts& model,
                                      const RequestLimits& limits);

/// A query's fields as a JSON object of texts. Errors: kInvalidArgument.
Result<nlohmann::json> read_query(std::string_view query);

/// The model that the body of an edit names, or a query; empty: none, or what cannot be read, which its reader will say.
std::string edit_model(std::string_view content_type, std::string_view body);
std::string query_model(std::string_view query);

/// Reads the query of GET /imagine: `prompt`, `img_size` (both sides), and our `negative_prompt`, `steps`, `guidance_scale`, `seed` and
/// `sampler`. Errors: kInvalidArgument naming the field.
Result<ImageRequest> read_imagine(std::string_view query, const ModelFacts& model, const RequestLimits& limits);

}  // namespace darkroom
