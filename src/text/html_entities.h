#pragma once

#include <string>

namespace darkroom {

/// Python's html.unescape: every named and numeric character reference by HTML 5's rules, also those without a semicolon.
std::u32string unescape_html(const std::u32string& text);

/// ftfy.fixes.unescape_html: only references that end in a semicolon, and upper-case spellings such as "&EACUTE;".
std::u32string unescape_plain_entities(const std::u32string& text);

}  // namespace darkroom
