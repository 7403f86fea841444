#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "darkroom/serve/image_requests.h"
#include "watched_painting.h"

namespace darkroom {

/// A request for a job.
struct PaintingJobRequest {
  ImageRequest images;
  nlohmann::json resolved;  ///< Its fields with what they have where they were left out.
  int64_t text_bytes = 0;   ///< That these take, about.
};

/// Reads the body of POST /v1/jobs. Errors: kInvalidArgument naming the field.
Result<PaintingJobRequest> read_job(std::string_view body, const ModelFacts& model, const RequestLimits& limits);
/// JSON Schema of that body.
nlohmann::json job_schema(const ModelFacts& model, const RequestLimits& limits);

/// {"step", "steps", "progress", "status"}: `step` is the steps done of a picture, on average and rounded down.
nlohmann::json progress_json(const WatchedPainting::View& view, int num_steps);

/// The events of jobs: progress, preview, and last the state's name with what `end` makes of it.
std::string write_event(const WatchedPainting::News& news, int num_steps,
                        const std::function<nlohmann::json(const WatchedPainting::View& view)>& end);

}  // namespace darkroom
