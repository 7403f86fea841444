#pragma once

namespace darkroom::fake {

/// Tells torch of one CUDA device: guard, streams, events, allocators. (Its hooks register themselves when the library is loaded.)
/// REQUIRES: called once.
void register_runtime();

}  // namespace darkroom::fake
