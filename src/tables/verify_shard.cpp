#include "darkroom/tables/verify_shard.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/read_ahead.h"
#include "darkroom/tables/content_hash.h"
#include "darkroom/tables/picture_inputs.h"
#include "darkroom/tables/sealed_record.h"
#include "darkroom/tables/table_footer.h"
#include "parquet_metadata.h"

namespace darkroom {

namespace {

Status feed_content(const InputFile& file, int64_t content_bytes, auto& hash) {
  constexpr int64_t kStepBytes = 1 << 20;
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(kStepBytes, content_bytes)));
  for (int64_t offset = 0; offset < content_bytes;) {
    const auto step = std::span(buffer).first(static_cast<size_t>(std::min(kStepBytes, content_bytes - offset)));
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file.read_at(offset, step));
    if (num_read != step.size()) {
      return Status::corrupt_data("verifying a shard: the file became shorter while it was read (path):", file.path());
    }
    hash.update(step);
    offset += static_cast<int64_t>(num_read);
  }
  return Status::ok();
}

/// In the form of `want`, the record's own: SHA-256 of format version 1, XXH3 of version 2.
Result<std::string> hash_content(const InputFile& file, int64_t content_bytes, const std::string& want) {
  if (want.starts_with(kXxh3Name)) {
    ContentHash xxh3;
    DARKROOM_RETURN_IF_ERROR(feed_content(file, content_bytes, xxh3));
    return kXxh3Name + xxh3.hex();
  }
  if (want.find(':') != std::string::npos) {
    return Status::failed_precondition(
        "verifying a shard: its content hash is of a kind that this version does not know, a newer one made it (path, hash):", file.path(),
        want);
  }
  Sha256 sha256;
  DARKROOM_RETURN_IF_ERROR(feed_content(file, content_bytes, sha256));
  return sha256.finish_hex();
}

/// What follows the record: zeros.
Status check_end_mark(const InputFile& file) {
  std::vector<std::byte> end(static_cast<size_t>(bytes_behind_record(file.path())));
  DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file.read_at(file.size_bytes() - static_cast<int64_t>(end.size()), end));
  const bool are_zeros = std::ranges::all_of(end, [](std::byte byte) { return byte == std::byte{0}; });
  return num_read == end.size() && are_zeros ? Status::ok()
                                             : Status::corrupt_data("verifying a shard: the end mark is damaged (path):", file.path());
}

}  // namespace

Status verify_shard(FileSystem& files, const std::string& path) {
  DARKROOM_ASSIGN_OR_RETURN(const std::shared_ptr<const InputFile> file, files.open_input(path));
  SealedRecord shard;
  if (has_ending(path, ".tar") || has_ending(path, ".mds")) {
    DARKROOM_ASSIGN_OR_RETURN(shard, read_sealed_record(*file));
    DARKROOM_RETURN_IF_ERROR(check_end_mark(*file));
  } else {
    DARKROOM_ASSIGN_OR_RETURN(ParquetMetadata metadata, read_parquet_metadata(*file));
    shard = {.content_bytes = metadata.footer.content_bytes, .pairs = std::move(metadata.footer.key_values)};
    if (find_value(shard.pairs, kFooterHashKey) == nullptr) {
      shard.pairs.clear();
    }
  }
  const std::string* text = find_value(shard.pairs, kShardKey);
  if (text == nullptr) {
    return Status::corrupt_data("verifying a shard: the footer has no record of a darkroom shard (path):", path);
  }
  const auto record = parse_json(*text);
  if (!record.is_object() || !record.contains("content_hash") || !record["content_hash"].is_string()) {
    return Status::corrupt_data("verifying a shard: its record has no content hash (path):", path);
  }
  const auto want = record["content_hash"].get<std::string>();
  const auto content = with_read_ahead(file, {.offset = 0, .num_bytes = shard.content_bytes});
  DARKROOM_ASSIGN_OR_RETURN(const std::string hash, hash_content(*content, shard.content_bytes, want));
  if (hash != want) {
    return Status::corrupt_data("verifying a shard: the content hash differs (path, want, got):", path, want, hash);
  }
  return Status::ok();
}

}  // namespace darkroom
