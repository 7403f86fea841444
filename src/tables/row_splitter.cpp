#include "row_splitter.h"

#include <algorithm>

namespace darkroom {

namespace {

constexpr size_t kStepBytes = 1 << 20;
constexpr size_t kMaxRowBytes = 64 << 20;

}  // namespace

RowSplitter::RowSplitter(std::shared_ptr<const InputFile> file, int64_t offset, char quote_after)
    : file_(std::move(file)), quote_after_(quote_after), window_offset_(offset) {}

Result<bool> RowSplitter::next(std::string_view& row) {
  while (true) {
    const size_t end = find_row_end();
    if (end == std::string::npos) {
      DARKROOM_ASSIGN_OR_RETURN(const bool more, read_more());
      if (more) {
        continue;
      }
    }
    row = std::string_view(window_).substr(begin_, end == std::string::npos ? end : end - begin_);
    begin_ = end == std::string::npos ? window_.size() : end + 1;
    scanned_ = begin_;
    quoted_ = false;
    just_closed_ = false;
    if (row.ends_with('\r')) {
      row.remove_suffix(1);
    }
    if (!row.empty()) {
      return true;
    }
    if (end == std::string::npos) {
      return false;
    }
  }
}

size_t RowSplitter::find_row_end() {
  if (quote_after_ == 0) {
    const size_t end = window_.find('\n', scanned_);
    scanned_ = end == std::string::npos ? window_.size() : end;
    return end;
  }
  for (; scanned_ < window_.size(); ++scanned_) {
    const char letter = window_[scanned_];
    if (letter == '"') {
      // A doubled mark inside a quoted field closes and opens again, which comes to the same.
      const bool may_open = scanned_ == begin_ || window_[scanned_ - 1] == quote_after_ || just_closed_;
      just_closed_ = quoted_;
      quoted_ = !quoted_ && may_open;
      continue;
    }
    just_closed_ = false;
    if (letter == '\n' && !quoted_) {
      return scanned_;
    }
  }
  return std::string::npos;
}

Result<bool> RowSplitter::read_more() {
  if (at_end_) {
    return false;
  }
  if (window_.size() - begin_ > kMaxRowBytes) {
    return Status::corrupt_data(
        "reading a text table: a row is longer than 64 MiB, is a quotation mark left open? (path, byte offset):", file_->path(), offset());
  }
  window_.erase(0, begin_);
  window_offset_ += static_cast<int64_t>(begin_);
  scanned_ -= begin_;
  begin_ = 0;
  const size_t old_size = window_.size();
  window_.resize(old_size + kStepBytes);
  const auto rest = std::as_writable_bytes(std::span(window_)).subspan(old_size);
  Result<size_t> num_read = file_->read_at(window_offset_ + static_cast<int64_t>(old_size), rest);
  window_.resize(old_size + (num_read.is_ok() ? *num_read : 0));
  DARKROOM_RETURN_IF_ERROR(num_read.status());
  at_end_ = *num_read < kStepBytes;
  return true;
}

void split_fields(std::string_view row, char separator, bool quotes, size_t max_fields, std::vector<std::string>& fields) {
  fields.clear();
  size_t at = 0;
  while (true) {
    std::string field;
    if (quotes && at < row.size() && row[at] == '"') {
      ++at;
      while (at < row.size() && (row[at] != '"' || (at + 1 < row.size() && row[at + 1] == '"'))) {
        at += row[at] == '"' ? 1 : 0;
        field += row[at++];
      }
      at = std::min(at + 1, row.size());
    }
    // After a closing mark comes the separator; where it does not, what follows belongs to the field.
    const size_t end = std::min(row.find(separator, at), row.size());
    field.append(row.substr(at, end - at));
    fields.push_back(std::move(field));
    if (end == row.size() || fields.size() == max_fields) {
      return;
    }
    at = end + 1;
  }
}

}  // namespace darkroom
