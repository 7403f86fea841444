#pragma once

#include <string_view>

namespace darkroom {

/// Whether ftfy 6.3.1 takes `line` (one line of text) for mojibake, UTF-8 that was read in another encoding, as in
/// "schÃ¶n", and might be able to repair it: its badness heuristic says so, and characters are there that look like bytes
/// of UTF-8 (utf8_lookalike.h). Where the answer is no, ftfy's fix_encoding does nothing that fix_c1_controls does not do; the
/// repair is not ported.
bool looks_like_mojibake(std::u32string_view line);

}  // namespace darkroom
