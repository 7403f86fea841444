#pragma once

#include <string>
#include <string_view>

#include "darkroom/text/clip_tokenizer.h"

namespace darkroom {

/// The normaliser of transformers 5's CLIPTokenizer: NFC as the package tokenizers has it (Unicode 9), white space to
/// spaces, lower case character by character. Replaces `out`, which is UTF-8. Ill-formed bytes count as U+FFFD.
void clean_hugging_face(std::string_view text, std::string& out);

/// open_clip's cleaning: fix_text (ftfy_fixes.h), HTML unescaped twice, white space to single spaces, lower case.
/// Returns what of it is not ported and touches this text.
Unported clean_open_clip(std::string_view text, std::string& out);

}  // namespace darkroom
