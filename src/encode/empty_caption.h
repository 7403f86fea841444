#pragma once

#include <string>

#include "darkroom/encode/row_encoder.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// Writes _empty_caption.safetensors into a latents dataset (docs/formats/latents_dataset.md) unless it is there; computed as an encoder
/// worker with that many intra-op threads computes it. Returns the SHA-256 of its bytes. Errors: the store's. REQUIRES: with states.
Result<std::string> publish_empty_caption(const RowEncoder& encoder, int encoder_threads, const Location& output);

}  // namespace darkroom
