#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "darkroom/serve/image_requests.h"
#include "watched_painting.h"

namespace darkroom {

/// Reads the body of POST /v1/jobs; a picture to start from is still to be decoded. Errors: kInvalidArgument naming the field.
Result<ImageRequest> read_job(std::string_view body, const ModelFacts& model, const RequestLimits& limits);
/// JSON Schema of that body.
nlohmann::json job_schema(const ModelFacts& model, const RequestLimits& limits);

/// {"step", "steps", "progress", "status"}: `step` is the steps done of a picture, on average and rounded down.
nlohmann::json progress_json(const WatchedPainting::View& view, int num_steps);

/// The events of jobs: progress, preview, and last the state's name with what `end` makes of it.
std::string write_event(const WatchedPainting::News& news, int num_steps,
                        const std::function<nlohmann::json(const WatchedPainting::View& view)>& end);

}  // namespace darkroom
