#include "darkroom/process/arrived_batch.h"

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "arrived_metadata.h"
#include "darkroom/tables/arrow_files.h"

namespace darkroom {
namespace {

constexpr int64_t kBesides = int64_t{1} << 16;  // What reading a message takes for a moment.
constexpr uint32_t kMostMetadata = uint32_t{1} << 16;

/// Metadata of the message at the front, which goes from `left`. Errors: kCorruptData.
Result<std::string_view> take_metadata(std::string_view& left, std::string_view what) {
  uint32_t begin[2] = {};  // A mark and the length.
  if (left.size() >= sizeof begin) {
    std::memcpy(begin, left.data(), sizeof begin);
  }
  if (begin[0] != UINT32_MAX || begin[1] > left.size() - sizeof begin) {
    return Status::corrupt_data(fmt::format("{}: the stream has no schema and batch (bytes):", what), left.size());
  }
  if (begin[1] > kMostMetadata) {
    return Status::corrupt_data(fmt::format("{}: the metadata of a message is too long (bytes, most):", what), begin[1], kMostMetadata);
  }
  const std::string_view metadata = left.substr(sizeof begin, begin[1]);
  left.remove_prefix(sizeof begin + begin[1]);
  return metadata;
}

/// That nothing which Arrow keeps besides the columns becomes larger than it came: that is not of a pool.
Status check_metadata(std::string_view bytes, std::string_view what) {
  for (const ArrowHeader kind : {ArrowHeader::kSchema, ArrowHeader::kRecordBatch}) {  // A schema has no body.
    DARKROOM_ASSIGN_OR_RETURN(const std::string_view metadata, take_metadata(bytes, what));
    if (!is_plain_metadata(metadata, kind)) {
      return Status::corrupt_data(fmt::format("{}: the stream is no plain schema and batch (bytes):", what), metadata.size());
    }
  }
  return {};
}

Result<std::shared_ptr<arrow::RecordBatch>> read_first(std::string bytes, arrow::MemoryPool* pool, std::string_view what) {
  auto options = arrow::ipc::IpcReadOptions::Defaults();
  options.memory_pool = pool;
  options.use_threads = false;
  const auto input = std::make_shared<arrow::io::BufferReader>(arrow::Buffer::FromString(std::move(bytes)));
  const auto reader = arrow::ipc::RecordBatchStreamReader::Open(input, options);
  DARKROOM_RETURN_IF_ARROW_ERROR(reader.status(), what);
  std::shared_ptr<arrow::RecordBatch> batch;
  DARKROOM_RETURN_IF_ARROW_ERROR((*reader)->ReadNext(&batch), what);
  if (batch == nullptr) {
    return Status::corrupt_data(fmt::format("{}: the stream has no batch", what));
  }
  DARKROOM_RETURN_IF_ARROW_ERROR(batch->ValidateFull(), what);
  return batch;
}

}  // namespace

Result<std::shared_ptr<arrow::RecordBatch>> read_arrived_batch(std::string bytes, std::string_view what) {
  DARKROOM_RETURN_IF_ERROR(check_metadata(bytes, what));
  const auto num_bytes = static_cast<int64_t>(bytes.size());
  arrow::ProxyMemoryPool taken(table_pool());  // Counts what this message alone takes.
  arrow::CappedMemoryPool pool(&taken, num_bytes + kBesides);
  Result<std::shared_ptr<arrow::RecordBatch>> batch = read_first(std::move(bytes), &pool, what);
  // What is not packed is viewed where it lies. Nothing may outlive the pool, not even a buffer of no bytes.
  if (taken.num_allocations() > 0 || batch.status().code() == StatusCode::kResourceExhausted) {
    return Status::corrupt_data(fmt::format("{}: what was sent is packed, or claims more than it is (bytes):", what), num_bytes);
  }
  return batch;
}

}  // namespace darkroom
