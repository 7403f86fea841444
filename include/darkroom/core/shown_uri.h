#pragma once

#include <string>
#include <string_view>

namespace darkroom {

/// An address as messages, logs and records show it: without what may be secret in it. User and password before a host go ("//user:pw@h"
/// is "//h"), and so does what follows "?" or "#" (signatures, tokens), which leaves "?..."; only hf://...?config=&split= and a "?" that is
/// part of a pattern (no "=" and no "&" behind it, and not of the web) stay. A text without "://" is a path and stays as it is. Idempotent.
std::string shown_uri(std::string_view uri);

/// The same for each address in a text: a log line, an error's message. An address ends at white space, a quote, "<", ">" or "|".
std::string without_uri_secrets(std::string_view text);

}  // namespace darkroom
