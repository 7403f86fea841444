#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace darkroom {

/// A Parquet footer's own hash (docs/formats/commit.md): SHA-256 of its Thrift bytes with the hash's own 64 digits taken
/// as zeros.

/// 64 zeros: what stands in the footer before it is sealed.
std::string unsealed_footer_hash();
/// Where the 64 digits stand in the Thrift bytes; nullopt when the footer has no such key.
std::optional<size_t> find_footer_hash(const std::string& thrift);
/// The hash of Thrift bytes whose digits stand at `position`.
std::string hash_footer(std::string thrift, size_t position);

/// How created_by of every footer of ours begins.
inline constexpr std::string_view kOurCreatedBy = "darkroom version ";

enum class FooterSeal : uint8_t {
  kNone,          ///< The footer has no hash.
  kWhole,         ///< It is what its hash says.
  kBroken,        ///< A footer of ours that was changed.
  kCarriedAlong,  ///< Another program read a shard of ours, and wrote what it had read with our keys: they tell of the shard, not of its
                  ///< file.
};
/// A hash that does not fit is carried along where nothing behind it looks like kOurCreatedBy, which stands last in a footer of ours:
/// whole, or with a few of its letters damaged. created_by itself would not do: a flip before it has other bytes read as created_by.
FooterSeal look_at_seal(const std::string& thrift);

}  // namespace darkroom
