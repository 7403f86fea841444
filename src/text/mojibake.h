#pragma once

#include <string_view>

namespace darkroom {

/// Whether ftfy 6.3.1 takes `line` (one line of text) for mojibake, UTF-8 that was read in another encoding, as in
/// "schÃ¶n". This is its badness heuristic, so where it says no, ftfy's fix_encoding changes nothing; the repair is not ported.
bool looks_like_mojibake(std::u32string_view line);

}  // namespace darkroom
