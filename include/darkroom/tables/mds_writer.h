#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/scratch.h"
#include "darkroom/files/store.h"
#include "darkroom/tables/paged_shard_writer.h"
#include "darkroom/tables/table_footer.h"

namespace darkroom {

/// A column of an MDS shard: how mosaicml-streaming decodes its values.
struct MdsColumn {
  std::string name = {};
  std::string encoding = {};  ///< "bytes", "str", "json": any bytes; "int", "float32", "float64", ...: of a fixed size.
};

/// What the offsets of a shard reach.
inline constexpr int64_t kMostMdsBytes = std::numeric_limits<uint32_t>::max();

/// Bytes of a value of an encoding of a fixed size; 0 for one whose values may have any.
int64_t mds_value_bytes(std::string_view encoding);

/// Writes one MDS shard of mosaicml-streaming (version 2, uncompressed), followed by the shard's own record (docs/formats/dialects.md).
/// The offsets of all samples stand at the beginning of the file and are known at its end, so samples wait in scratch files until then.
/// Same columns and samples, same bytes. Memory: 16 bytes a sample. Thread safety: one object, one thread.
class MdsWriter {
 public:
  /// REQUIRES: `scratch` outlives the writer; a column, names that differ.
  MdsWriter(std::unique_ptr<PendingObject> object, std::vector<MdsColumn> columns, ScratchFiles& scratch);
  /// Gives back what waits in the scratch files.
  ~MdsWriter();
  MdsWriter(const MdsWriter&) = delete;
  MdsWriter& operator=(const MdsWriter&) = delete;

  /// Adds a sample: the values of the columns in the order in which they were given. Errors: kFailedPrecondition when the shard becomes
  /// larger than the 4 GiB that its offsets reach; the scratch files'. REQUIRES: values of the encodings' sizes.
  Status add(std::span<const std::span<const std::byte>> values);
  int64_t num_samples() const { return static_cast<int64_t>(samples_.size()); }
  /// Writes the file; publishing is left to whoever commits. `pairs` as the footer of PagedShardWriter::finish. REQUIRES: called once.
  Result<FinishedShard> finish(KeyValues pairs);

 private:
  std::string head() const;
  int64_t head_bytes(int64_t num_samples) const;

  std::unique_ptr<PendingObject> object_;
  const std::vector<MdsColumn> columns_;
  std::vector<size_t> order_;  // Of columns_, as they lie in a sample: by name.
  const std::string config_;
  ScratchFiles& scratch_;
  std::vector<ScratchFiles::Place> samples_;
  size_t num_read_ = 0;  // Samples that were given back.
  int64_t sample_bytes_ = 0;
  std::vector<std::byte> sample_;  // Reused.
};

/// A shard as index.json lists it.
struct MdsShardEntry {
  std::string name = {};
  int64_t num_bytes = 0;
  int64_t num_samples = 0;
};
/// The index.json of a folder of shards with these columns, which StreamingDataset opens the folder by. Shards without samples are left
/// out: that package takes none.
std::string print_mds_index(const std::vector<MdsColumn>& columns, std::span<const MdsShardEntry> shards);

}  // namespace darkroom
