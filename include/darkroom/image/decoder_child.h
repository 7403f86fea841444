#pragma once

#include "darkroom/image/picture_decoder.h"

namespace darkroom {

/// The other side of decoder_in_child, all of darkroom-decoder's main(): takes the shared memory of descriptor 3, gives up every right
/// but to compute, and answers requests with `decoder` until the parent ends it. An exception of `decoder` is a row's kDecodeFailed.
/// Returns an exit code: 2 when it was not started by a parent of this version (a sentence on stderr says so), 1 when it lost its
/// parent. REQUIRES: no other thread, no descriptor that somebody still needs.
int serve_pictures(int argc, char** argv, PictureDecoder& decoder);

}  // namespace darkroom
