#include "darkroom/tables/arrow_files.h"

#include <arrow/buffer.h>
#include <arrow/memory_pool.h>

#include <algorithm>
#include <string>

namespace darkroom {

namespace {

constexpr const char* kDetailType = "darkroom::Status";

class KeptStatus final : public arrow::StatusDetail {
 public:
  explicit KeptStatus(Status status) : status_(std::move(status)) {}

  const char* type_id() const override { return kDetailType; }
  std::string ToString() const override { return status_.to_string(); }
  const Status& status() const { return status_; }

 private:
  Status status_;
};

class ArrowInput final : public arrow::io::RandomAccessFile {
 public:
  explicit ArrowInput(std::shared_ptr<const InputFile> file) : file_(std::move(file)) {}

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<int64_t> GetSize() override { return file_->size_bytes(); }
  arrow::Result<int64_t> Tell() const override { return position_; }
  arrow::Status Seek(int64_t position) override {
    if (position < 0) {
      return arrow::Status::IOError("seek before the start of the file");
    }
    position_ = position;
    return arrow::Status::OK();
  }

  arrow::Result<int64_t> ReadAt(int64_t position, int64_t num_bytes, void* out) override {
    if (position < 0 || num_bytes < 0) {
      return arrow::Status::IOError("read outside the file");
    }
    const Result<size_t> num_read = file_->read_at(position, {static_cast<std::byte*>(out), static_cast<size_t>(num_bytes)});
    return num_read.is_ok() ? arrow::Result<int64_t>(static_cast<int64_t>(*num_read)) : to_arrow(num_read.status());
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position, int64_t num_bytes) override {
    // A damaged file may ask for more than it holds: allocate what can be there.
    num_bytes = std::max<int64_t>(0, std::min(num_bytes, file_->size_bytes() - position));
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(num_bytes, table_pool()));
    ARROW_ASSIGN_OR_RAISE(const int64_t num_read, ReadAt(position, num_bytes, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(num_read));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }
  arrow::Result<int64_t> Read(int64_t num_bytes, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const int64_t num_read, ReadAt(position_, num_bytes, out));
    position_ += num_read;
    return num_read;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t num_bytes) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, num_bytes));
    position_ += buffer->size();
    return buffer;
  }

 private:
  std::shared_ptr<const InputFile> file_;  // Shared by the readers of one table.
  int64_t position_ = 0;
  bool closed_ = false;
};

}  // namespace

arrow::MemoryPool* table_pool() { return arrow::default_memory_pool(); }

Status from_arrow(const arrow::Status& status, std::string_view what, StatusCode otherwise) {
  if (status.ok()) {
    return Status::ok();
  }
  const std::shared_ptr<arrow::StatusDetail>& detail = status.detail();
  if (detail != nullptr && std::string_view(detail->type_id()) == kDetailType) {
    return static_cast<const KeptStatus&>(*detail).status().with_context(what);
  }
  const StatusCode code = status.IsOutOfMemory() ? StatusCode::kResourceExhausted : otherwise;
  return Status::make(code, what, ":", status.message());
}

arrow::Status to_arrow(const Status& status) {
  if (status.is_ok()) {
    return arrow::Status::OK();
  }
  return arrow::Status(arrow::StatusCode::IOError, status.message(), std::make_shared<KeptStatus>(status));
}

std::shared_ptr<arrow::io::RandomAccessFile> make_arrow_input(std::shared_ptr<const InputFile> file) {
  return std::make_shared<ArrowInput>(std::move(file));
}

}  // namespace darkroom
