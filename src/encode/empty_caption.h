#pragma once

#include <string>

#include "darkroom/encode/row_encoder.h"
#include "darkroom/files/store.h"

namespace darkroom {

/// Writes _empty_caption.safetensors into a latents dataset (docs/formats/latents_dataset.md) unless this text encoder's is there; what
/// another job left where no part is left of it gives way. Computed as an encoder worker with that many intra-op threads computes it.
/// Returns the SHA-256 of its bytes. Errors: the store's; kFailedPrecondition (there are parts, and the file is of another text encoder).
/// REQUIRES: with states.
Result<std::string> publish_empty_caption(const RowEncoder& encoder, int encoder_threads, const Location& output);

}  // namespace darkroom
