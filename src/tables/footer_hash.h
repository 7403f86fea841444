#pragma once

#include <optional>
#include <string>

namespace darkroom {

/// A Parquet footer's own hash (docs/formats/commit.md): SHA-256 of its Thrift bytes with the hash's own 64 digits taken
/// as zeros.

/// 64 zeros: what stands in the footer before it is sealed.
std::string unsealed_footer_hash();
/// Where the 64 digits stand in the Thrift bytes; nullopt when the footer has no such key.
std::optional<size_t> find_footer_hash(const std::string& thrift);
/// The hash of Thrift bytes whose digits stand at `position`.
std::string hash_footer(std::string thrift, size_t position);

}  // namespace darkroom
