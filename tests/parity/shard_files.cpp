#include <cstdio>
#include <string>

#include "darkroom/files/posix_store.h"
#include "support/shard_rows.h"

// Writes shards of the rows of tests/support/shard_rows.h for tools/parity/shard_readers_parity.py and for tests/golden/tables:
// shard_files FOLDER. Exits 1 when one could not be written.
namespace {

using namespace darkroom;

Status stream_new(const std::string& folder, const std::string& name, int num_rows, const PagedShardOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(auto object, local_store().begin_object(folder, name));
  DARKROOM_ASSIGN_OR_RETURN(const FinishedShard shard, stream_rows(std::move(object), num_rows, 5, options));
  return shard.object->publish().status();
}

Status write_tensors(const std::string& folder) {
  DARKROOM_ASSIGN_OR_RETURN(auto object, local_store().begin_object(folder, "tensors.parquet"));
  const auto rows = tensor_rows(0, 300);
  DARKROOM_ASSIGN_OR_RETURN(auto writer, PagedShardWriter::open(std::move(object), rows->schema(), {.row_group_rows = 128}));
  DARKROOM_RETURN_IF_ERROR(writer->write(*rows));
  DARKROOM_ASSIGN_OR_RETURN(const FinishedShard shard, writer->finish({}));
  return shard.object->publish().status();
}

Status write_all(const std::string& folder) {
  DARKROOM_RETURN_IF_ERROR(stream_new(folder, "shard_v2.parquet", 12, {}));
  DARKROOM_RETURN_IF_ERROR(stream_new(folder, "images.parquet", 1500, {.row_group_bytes = 3'000'000}));
  return write_tensors(folder);
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = argc == 2 ? write_all(argv[1]) : Status::invalid_argument("usage: shard_files FOLDER");
  if (!status.is_ok()) {
    std::fprintf(stderr, "shard_files: %s\n", status.to_string().c_str());
  }
  return status.is_ok() ? 0 : 1;
}
