#pragma once

#include <stop_token>
#include <string>

#include "darkroom/compare/compare.h"
#include "darkroom/core/result.h"
#include "opening/open_painter.h"
#include "opening/remote_models.h"

namespace darkroom {

/// A model of a comparison, with the copies of what lies elsewhere, which go with this object.
struct OpenedSide {
  CompareSide side;
  SourceCopies copies;
};

/// Finds a model and digests its files, without opening it. `source` says the rest: weights and frozen parts only count for a checkpoint.
/// Errors: those of fetch_source, find_model and of the files, kCancelled.
Result<OpenedSide> open_side(StoreSet& stores, const std::string& model, PainterSource source, const std::stop_token& stop);

/// 64 hex digits over the files that a model is painted with (weights, configs, vocabulary), its schedule and its tokenizer's dialect,
/// wherever they lie. Errors: those of find_model and of the files, kCancelled.
Result<std::string> model_identity(const PainterSource& source, const std::stop_token& stop);

}  // namespace darkroom
