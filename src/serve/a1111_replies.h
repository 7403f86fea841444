#pragma once

#include <nlohmann/json.hpp>

#include "darkroom/serve/image_requests.h"

namespace darkroom {

// JSON Schemas of replies of A1111's routes, each made of such a reply: what it has is in the document.

/// Of text to image and image to image.
nlohmann::json a1111_pictures_schema(const ModelFacts& model, const RequestLimits& limits);
nlohmann::json a1111_progress_schema();
nlohmann::json png_info_reply_schema();

}  // namespace darkroom
