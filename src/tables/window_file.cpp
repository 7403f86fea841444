#include "window_file.h"

#include <algorithm>

namespace darkroom {

Result<size_t> WindowFile::read_at(int64_t offset, std::span<std::byte> out) const {
  const auto count = static_cast<int64_t>(out.size());
  const bool is_inside = offset >= window_offset_ && offset - window_offset_ + count <= static_cast<int64_t>(window_.size());
  if (!is_inside && (count > window_bytes_ / 2 || offset < window_offset_)) {
    return file_->read_at(offset, out);
  }
  if (!is_inside) {
    const int64_t num_left = std::max<int64_t>(file_->size_bytes() - offset, 0);
    window_offset_ = offset;
    window_.resize(static_cast<size_t>(std::min(window_bytes_, num_left)));
    const Result<size_t> num_read = file_->read_at(offset, window_);
    window_.resize(num_read.is_ok() ? *num_read : 0);
    DARKROOM_RETURN_IF_ERROR(num_read.status());
  }
  const auto begin = static_cast<size_t>(offset - window_offset_);
  const size_t num_copied = std::min(out.size(), window_.size() - begin);
  std::copy_n(window_.begin() + static_cast<ptrdiff_t>(begin), num_copied, out.begin());
  return num_copied;
}

Result<std::string> read_bytes(const InputFile& file, int64_t offset, int64_t count) {
  std::string bytes(static_cast<size_t>(count), '\0');
  DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file.read_at(offset, std::as_writable_bytes(std::span(bytes))));
  if (num_read < bytes.size()) {
    return Status::corrupt_data("a file ends before what is to be read of it (path, offset, wanted bytes, bytes there):", file.path(),
                                offset, count, num_read);
  }
  return bytes;
}

}  // namespace darkroom
