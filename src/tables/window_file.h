#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/files/file_system.h"

namespace darkroom {

/// A file that is read from front to back in small pieces: `window_bytes` are asked for at once. A piece of more than half a window, or one
/// that lies before the window, is read by itself. Thread safety: one object, one thread.
class WindowFile final : public InputFile {
 public:
  WindowFile(std::shared_ptr<const InputFile> file, int64_t window_bytes) : file_(std::move(file)), window_bytes_(window_bytes) {}

  const std::string& path() const override { return file_->path(); }
  int64_t size_bytes() const override { return file_->size_bytes(); }
  Result<size_t> read_at(int64_t offset, std::span<std::byte> out) const override;

 private:
  std::shared_ptr<const InputFile> file_;  // Shared with the table and its other ranges.
  const int64_t window_bytes_;
  mutable std::vector<std::byte> window_;
  mutable int64_t window_offset_ = 0;
};

/// Bytes [offset, offset + count) of a file. Errors: read_at's; kCorruptData naming the file where it ends before.
Result<std::string> read_bytes(const InputFile& file, int64_t offset, int64_t count);

}  // namespace darkroom
