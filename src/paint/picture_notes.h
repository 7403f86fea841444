#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/image/image.h"
#include "darkroom/paint/painter.h"

namespace darkroom {

/// A picture to start from, as RGB. Errors: kFailedPrecondition naming `path`.
Result<Image> decode_init_image(std::string_view bytes, const std::string& path);

/// Trailing spacing has a timestep -1 for some numbers of steps, as in diffusers. To ddim and pndm that means the table's noisiest
/// entry, so the step spoils the picture: says so in the log.
void warn_of_useless_step(const SamplerSpec& spec, const std::string& name, const SchedulerConfig& scheduler);

/// Says in the log how many of some pictures came out with values that are no numbers, if any did.
void warn_of_not_finite(int64_t num_not_finite, int64_t num_pictures, const NetworkPlace& place);

/// Says in the log which of some texts are too long and what of them is not read; of many, of the first ones and how many. Errors: as
/// Painter::lost_text.
Status warn_of_lost_text(const Painter& painter, const std::set<std::string>& texts, const PromptReading& reading);

}  // namespace darkroom
