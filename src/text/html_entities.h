#pragma once

#include <functional>
#include <string>

namespace darkroom {

/// Python's html.unescape: every named and numeric character reference by HTML 5's rules, also those without a semicolon.
std::u32string unescape_html(const std::u32string& text);

/// ftfy.fixes.unescape_html: only references that end in a semicolon, and upper-case spellings such as "&EACUTE;".
std::u32string unescape_plain_entities(const std::u32string& text);

/// What unescape_plain_entities leads to when it is repeated until nothing changes, in one pass of linear time: what a
/// reference stands for goes through `fix` and may complete the next reference, however deep they are nested.
/// REQUIRES: `fix` makes at most as many characters as a reference has.
std::u32string unescape_nested_entities(const std::u32string& text, const std::function<std::u32string(std::u32string)>& fix);

}  // namespace darkroom
