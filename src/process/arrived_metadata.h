#pragma once

#include <cstdint>
#include <string_view>

namespace darkroom {

enum class ArrowHeader : uint8_t { kSchema = 1, kRecordBatch = 3 };

/// Whether the metadata of an Arrow message, a flatbuffer of a peer, is of that kind and holds each text once: those of a tree. A small one
/// that names the same text again and again would become gigabytes. Dictionaries, which no peer of ours sends, are none of it. What it says
/// otherwise is not looked at.
bool is_plain_metadata(std::string_view metadata, ArrowHeader kind);

}  // namespace darkroom
