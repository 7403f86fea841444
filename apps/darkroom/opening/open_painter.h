#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/paint/painter.h"
#include "darkroom/tensor/gpu_turn.h"
#include "opening/model_source.h"

namespace darkroom {

/// Which weights to paint with.
struct PainterSource : ModelSource {
  std::string tokenizer_dialect;  ///< "hf" or "open_clip"; empty: the checkpoint's, else "hf".
  /// Where the networks go. The VAE computes in float32 in any case: bfloat16 would cost pictures their finest shades.
  NetworkPlace place = {};
};

/// Loads what a painter needs. A stop request ends it between two parts. Errors: those of find_model; kNotFound (a part),
/// kFailedPrecondition (parts of different models), kCorruptData (damaged files), kCancelled.
/// `gpu_turn`, unless null, is held while weights go to the GPU, and not while they are read and converted.
Result<std::unique_ptr<Painter>> open_painter(const PainterSource& source, const std::stop_token& stop = {}, GpuTurn* gpu_turn = nullptr);

/// Bytes of the weights that open_painter(source) would load, in the types in which they compute, without reading them. Errors: those of
/// find_model; kNotFound (a part), those of opening safetensors.
Result<int64_t> painter_bytes(const PainterSource& source);

}  // namespace darkroom
