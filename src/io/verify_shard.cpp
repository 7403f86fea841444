#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/io/shard_writer.h"
#include "darkroom/io/table_footer.h"
#include "parquet_metadata.h"

namespace darkroom {

namespace {

Result<std::string> hash_content(const InputFile& file, int64_t content_bytes) {
  constexpr int64_t kStepBytes = 1 << 20;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kStepBytes, content_bytes)));
  Sha256 sha256;
  for (int64_t offset = 0; offset < content_bytes;) {
    const auto step = std::span(buffer).first(static_cast<size_t>(std::min(kStepBytes, content_bytes - offset)));
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file.read_at(offset, step));
    if (num_read != step.size()) {
      return Status::corrupt_data("verifying a shard: the file became shorter while it was read (path):", file.path());
    }
    sha256.update(step);
    offset += static_cast<int64_t>(num_read);
  }
  return sha256.finish_hex();
}

}  // namespace

Status verify_shard(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> file, files.open_input(path));
  DARKROOM_ASSIGN_OR_RETURN(const ParquetMetadata metadata, read_parquet_metadata(*file));
  const TableFooter& footer = metadata.footer;
  const std::string* text = footer.find(kShardKey);
  if (text == nullptr || footer.find(kFooterHashKey) == nullptr) {
    return Status::corrupt_data("verifying a shard: the footer has no record of a darkroom shard (path):", path);
  }
  const auto record = parse_json(*text);
  if (!record.is_object() || !record.contains("content_hash") || !record["content_hash"].is_string()) {
    return Status::corrupt_data("verifying a shard: its record has no content hash (path):", path);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::string hash, hash_content(*file, footer.content_bytes));
  const auto want = record["content_hash"].get<std::string>();
  if (hash != want) {
    return Status::corrupt_data("verifying a shard: the content hash differs (path, want, got):", path, want, hash);
  }
  return Status::ok();
}

}  // namespace darkroom
