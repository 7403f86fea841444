#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/tables/paged_shard_writer.h"
#include "darkroom/tables/table_footer.h"
#include "darkroom/tables/tar_writer.h"

namespace darkroom {

/// Name of the last member of a shard: readers of webdatasets pass over names of this form, and over names without an extension.
inline constexpr const char* kTarRecordName = "__darkroom_shard__";

/// Writes one shard as a tar archive whose last member is the shard's own record (docs/formats/dialects.md). Same members and pairs, same
/// bytes. What is added goes to the object at once. Thread safety: one object, one thread.
class TarShardWriter {
 public:
  explicit TarShardWriter(std::unique_ptr<PendingObject> object);
  ~TarShardWriter();
  TarShardWriter(const TarShardWriter&) = delete;
  TarShardWriter& operator=(const TarShardWriter&) = delete;

  /// Errors: TarWriter::add's.
  Status add(std::string_view name, std::span<const std::byte> data);
  Status add(std::string_view name, std::string_view text) { return add(name, std::as_bytes(std::span(text))); }
  /// Writes record and end mark; publishing is left to whoever commits. `pairs` as the footer of PagedShardWriter::finish. REQUIRES: called
  /// once, and not after an error.
  Result<FinishedShard> finish(KeyValues pairs, int64_t num_rows);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace darkroom
