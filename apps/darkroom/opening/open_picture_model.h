#pragma once

#include "darkroom/paint/picture_run.h"
#include "opening/open_painter.h"

namespace darkroom {

/// As open_painter, with the fingerprints of the model's parts, for which every weight is read. Errors: as open_painter.
Result<PictureModel> open_picture_model(const PainterSource& source);

}  // namespace darkroom
