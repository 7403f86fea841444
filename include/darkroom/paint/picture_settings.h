#pragma once

#include <vector>

#include "darkroom/image/png.h"
#include "darkroom/paint/sample_job.h"

namespace darkroom {

/// What the picture of prompt `index` of a request keeps of how it was painted, as PNG text. REQUIRES: index < request.prompts.size().
std::vector<PngText> picture_settings(const SampleJob& job, const PaintRequest& request, const SampleReport& report, size_t index,
                                      const Image& image);

}  // namespace darkroom
