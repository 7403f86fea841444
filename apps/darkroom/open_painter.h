#pragma once

#include <memory>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/paint/painter.h"

namespace darkroom {

/// Which weights to paint with.
struct PainterSource {
  std::string model;              ///< Model folder or checkpoint.
  std::string weights = "ema";    ///< Of a checkpoint: "ema" or "unet".
  std::string frozen;             ///< Model folder of a checkpoint's frozen parts; empty: the one that it names.
  std::string tokenizer_dialect;  ///< "hf" or "open_clip"; empty: the checkpoint's, else "hf".
};

/// Loads what a painter needs. Errors: kInvalidArgument (a flag's value), kNotFound (folder or part), kFailedPrecondition (parts
/// of different models), kCorruptData (damaged files).
Result<std::unique_ptr<Painter>> open_painter(const PainterSource& source);

}  // namespace darkroom
