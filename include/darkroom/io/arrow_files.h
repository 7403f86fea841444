#pragma once

#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <memory>
#include <string_view>

#include "darkroom/core/result.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// Ours from Arrow's: out of memory is kResourceExhausted; a Status of ours that went through Arrow comes back as it
/// was; everything else is `otherwise`. `what` becomes the context of the message (what was being done, and the path).
Status from_arrow(const arrow::Status& status, std::string_view what, StatusCode otherwise = StatusCode::kCorruptData);
/// Arrow's from ours, with the Status kept inside for from_arrow.
arrow::Status to_arrow(const Status& status);

/// Reads an InputFile. Thread safety: ReadAt from any thread.
std::shared_ptr<arrow::io::RandomAccessFile> make_arrow_input(std::shared_ptr<const InputFile> file);

/// Writes to an OutputFile, which must outlive it, and hashes what it writes. Close does not close the file.
class HashingOutputStream final : public arrow::io::OutputStream {
 public:
  explicit HashingOutputStream(OutputFile& file) : file_(file) {}

  arrow::Status Write(const void* data, int64_t num_bytes) override;
  arrow::Status Close() override;
  arrow::Result<int64_t> Tell() const override { return num_bytes_; }
  bool closed() const override { return closed_; }

  /// SHA-256 of the bytes written so far, as 64 hex digits.
  std::string hash_so_far() const;

 private:
  OutputFile& file_;
  Sha256 sha256_;
  int64_t num_bytes_ = 0;
  bool closed_ = false;
};

}  // namespace darkroom
