#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/stores/hub.h"

namespace darkroom {

// What the hub answers, as bytes from outside. Errors of all: kCorruptData naming `what` was read and the field. Pure: any thread.

/// The commit in the description of a revision: {"sha": "..."}.
Result<std::string> read_hub_commit(std::string_view text, const std::string& what);

/// A page of a tree: [{"type": "file" | "directory", "path", "size", "oid", "lfs": {"oid", "size"}}]. Paths that could lead out of a folder
/// are kCorruptData.
Result<std::vector<HubFile>> read_hub_tree(std::string_view text, const std::string& what);

/// How many Parquet files each split of each configuration has: {CONFIG: {SPLIT: [URL, ...]}}.
using HubSplits = std::map<std::string, std::map<std::string, int64_t>>;
Result<HubSplits> read_hub_splits(std::string_view text, const std::string& what);

/// The URL that a Link header (RFC 8288) gives for "next", as it stands there; nothing when it gives none.
std::optional<std::string> next_link(std::string_view header);

/// An entity tag without W/ and quotation marks.
std::string plain_etag(std::string_view etag);

/// Whether `text` is `num_digits` lower-case hex digits.
bool is_hex(std::string_view text, size_t num_digits);

}  // namespace darkroom
