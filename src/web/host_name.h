#pragma once

#include <optional>
#include <string>

namespace darkroom {

/// A host's name in ASCII, in any locale (libcurl reads a name by the process's locale): one of other alphabets in Punycode by UTS 46, as
/// browsers do, without its transitional mapping where IDNA 2008 has a place for the name, with it elsewhere (emoji, joiners). With any
/// libidn2 the answer is that of Unicode 14, which is the oldest that a supported system has: later letters belong in no name here.
/// Nothing: no name of a host. Reference: https://www.unicode.org/reports/tr46/
std::optional<std::string> host_in_ascii(const std::string& host);

}  // namespace darkroom
