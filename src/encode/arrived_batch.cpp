#include "arrived_batch.h"

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/reader.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <fmt/format.h>

#include <utility>

#include "darkroom/tables/arrow_files.h"

namespace darkroom {
namespace {

constexpr int64_t kBesides = int64_t{1} << 16;  // What reading a message takes for a moment.

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
  const auto num_bytes = static_cast<int64_t>(bytes.size());
  arrow::ProxyMemoryPool taken(table_pool());  // Counts what this message alone takes.
  arrow::CappedMemoryPool pool(&taken, num_bytes + kBesides);
  Result<std::shared_ptr<arrow::RecordBatch>> batch = read_first(std::move(bytes), &pool, what);
  // What is not packed is viewed where it lies. Nothing may outlive the pool.
  if (taken.bytes_allocated() > 0 || batch.status().code() == StatusCode::kResourceExhausted) {
    return Status::corrupt_data(fmt::format("{}: what was sent is packed, or claims more than it is (bytes):", what), num_bytes);
  }
  return batch;
}

}  // namespace darkroom
