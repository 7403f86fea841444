#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace darkroom {

/// Where the value of a member goes; null: nowhere. A text as it is, null as nothing, anything else as its JSON text without white space,
/// its numbers with the digits that they have. Asked twice for a member of a line that is read twice.
using FindMember = std::function<std::optional<std::string>*(const std::string& key)>;

/// Reads a line of JSON lines in linear time and one pass, or a second one where its text is no UTF-8 or names half of a pair of
/// surrogates, which JSON cannot hold: each such part is the byte FF of a text and U+FFFD of a name or within a list or an object. It reads
/// without building what it holds: nlohmann::ordered_json walks through all members for each one that it reads, and copies those that it
/// has when it makes room. Of a key that comes twice the last value counts. False, with any values already stored, when the line is no JSON
/// object or nests more than kMaxJsonDepth deep.
bool read_json_row(std::string_view row, const FindMember& find);

}  // namespace darkroom
