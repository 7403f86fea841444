#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/files/file_system.h"

namespace darkroom {

/// Where, beside the parts, a generation lies that was replaced: a run that began with it still finds it there.
inline constexpr const char* kSupersededFolder = "_superseded";

/// More generations than an item gets: a number above it is none of ours.
inline constexpr int64_t kMostGenerations = 1'000'000'000;

/// What the parts of a dataset are. A dataset has parts of one kind.
enum class PartContainer : uint8_t {
  kParquet,  ///< .parquet
  kTar,      ///< .tar: a webdataset (tables/webdataset_writer.h).
  kMds,      ///< .mds: a shard of mosaicml-streaming (tables/mds_writer.h).
};

/// The name of a dataset's part (docs/formats/job.md): part-000042.parquet; part-000042-g1.parquet is its next generation, which replaces
/// it; part-000042-r00300.parquet was cut short by --limit after 300 rows and goes when the whole one is there.
struct PartName {
  int64_t item = 0;
  int64_t generation = 0;
  std::optional<int64_t> considered = {};  ///< Rows of the item that were worked through; nothing: all of them.
  PartContainer container = PartContainer::kParquet;

  /// REQUIRES: no number is negative.
  std::string text() const;
  /// Nothing for a name that text() does not give.
  static std::optional<PartName> parse(std::string_view name);
  /// Whether readers take this part and leave `other`, of the same item: a whole one before a cut one, then the highest generation, of cut
  /// ones the longest.
  bool goes_before(const PartName& other) const;

  bool operator==(const PartName&) const = default;
};

/// Of a listing in byte order of its paths: takes out the parts that readers leave because, in the same folder, another part of their item
/// goes before them, and returns these. What is no part stays.
std::vector<FileInfo> take_out_superseded_parts(std::vector<FileInfo>& listing);

}  // namespace darkroom
