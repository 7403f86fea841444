#pragma once

#include <arrow/record_batch.h>

#include <string>
#include <utility>

#include "darkroom/files/posix_store.h"
#include "darkroom/tables/paged_shard_writer.h"

namespace darkroom {

/// Writes and publishes the shard folder/name of these rows, as jobs write their parts; what it returns has no object any more.
inline Result<FinishedShard> put_shard(Store& store, const std::string& folder, const std::string& name, const arrow::RecordBatch& rows,
                                       KeyValues footer = {}, const PagedShardOptions& options = {}) {
  DARKROOM_ASSIGN_OR_RETURN(auto object, store.begin_object(folder, name));
  DARKROOM_ASSIGN_OR_RETURN(const auto writer, PagedShardWriter::open(std::move(object), rows.schema(), options));
  DARKROOM_RETURN_IF_ERROR(writer->write(rows));
  DARKROOM_ASSIGN_OR_RETURN(FinishedShard shard, writer->finish(std::move(footer)));
  DARKROOM_RETURN_IF_ERROR(shard.object->publish().status());
  shard.object.reset();
  return shard;
}

/// The same among the files of a file system.
inline Result<FinishedShard> put_shard(FileSystem& files, const std::string& folder, const std::string& name,
                                       const arrow::RecordBatch& rows, KeyValues footer = {}, const PagedShardOptions& options = {}) {
  const auto store = make_posix_store(files, "file");
  return put_shard(*store, folder, name, rows, std::move(footer), options);
}

}  // namespace darkroom
