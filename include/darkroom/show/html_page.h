#pragma once

#include <string>
#include <string_view>

namespace darkroom {

/// A whole page around `body` (HTML): the style that all our pages share, light and dark, without anything from a network:
/// the page itself forbids its browser to load anything. `title` is plain text; it is the heading too. `script` runs once
/// the body is there; it must not hold "</script". Without one the page may run none. Thread safety of all below: pure.
std::string render_html_page(const std::string& title, const std::string& body, const std::string& script = {});

/// Text with &, <, > and " escaped for HTML and XML; control characters but tab and line end become U+FFFD, because XML
/// does not allow them. REQUIRES: valid UTF-8 (replace_invalid_utf8).
std::string escape_html(std::string_view text);

/// The bytes of a PNG as a data URL, for src="...".
std::string png_data_url(std::string_view png);

}  // namespace darkroom
