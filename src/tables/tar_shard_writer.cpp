#include "darkroom/tables/tar_shard_writer.h"

#include <string>
#include <utility>

#include "darkroom/tables/sealed_record.h"
#include "shard_content.h"
#include "tar_header.h"

namespace darkroom {

struct TarShardWriter::State {
  explicit State(std::unique_ptr<PendingObject> pending) : object(std::move(pending)), content(*object) {}

  std::unique_ptr<PendingObject> object;
  ShardContent content;
  TarWriter tar{[this](std::span<const std::byte> bytes) { return content.write(bytes); }};
};

TarShardWriter::TarShardWriter(std::unique_ptr<PendingObject> object) : state_(std::make_unique<State>(std::move(object))) {}

TarShardWriter::~TarShardWriter() = default;

Status TarShardWriter::add(std::string_view name, std::span<const std::byte> data) { return state_->tar.add(name, data); }

Result<FinishedShard> TarShardWriter::finish(KeyValues pairs, int64_t num_rows) {
  const SealOptions options{.content_bytes = state_->content.num_bytes(),
                            .content_hash = kXxh3Name + state_->content.hash_hex(),
                            .between_bytes = kTarBlockBytes,
                            .multiple_bytes = kTarBlockBytes};
  DARKROOM_ASSIGN_OR_RETURN(std::string record, print_unsealed_record(std::move(pairs), options));
  std::string member;
  TarWriter unsealed([&](std::span<const std::byte> bytes) {
    member.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status::ok();
  });
  DARKROOM_RETURN_IF_ERROR(unsealed.add(kTarRecordName, record));
  seal_record(std::string_view(member).substr(0, static_cast<size_t>(kTarBlockBytes)), record);
  DARKROOM_RETURN_IF_ERROR(state_->tar.add(kTarRecordName, record));
  DARKROOM_RETURN_IF_ERROR(state_->tar.finish());
  FinishedShard shard{.content_hash = options.content_hash, .num_bytes = state_->object->num_bytes(), .num_rows = num_rows};
  shard.object = std::move(state_->object);
  return shard;
}

}  // namespace darkroom
