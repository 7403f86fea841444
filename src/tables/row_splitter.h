#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/files/file_system.h"

namespace darkroom {

/// Cuts the bytes of a text table into rows, in bounded memory. Empty lines are no rows; a final row needs no newline;
/// "\r\n" ends a row as "\n" does. Thread safety: one object, one thread.
class RowSplitter {
 public:
  /// `quote_after`: a quotation mark opens a quoted field (in which newlines do not count) at the start of a row and
  /// after this character; 0: quotation marks mean nothing.
  RowSplitter(std::shared_ptr<const InputFile> file, int64_t offset, char quote_after);

  /// The next row without its line end; false after the last one. Valid until the next call.
  /// Errors: the file's; kCorruptData for a row longer than 64 MiB.
  Result<bool> next(std::string_view& row);
  /// Where the bytes after the last row that was handed out begin.
  int64_t offset() const { return window_offset_ + static_cast<int64_t>(begin_); }

 private:
  /// The end of the row that begins at begin_ (its newline); npos when the window does not hold it yet.
  size_t find_row_end();
  Result<bool> read_more();

  std::shared_ptr<const InputFile> file_;  // Shared with the table.
  char quote_after_;
  int64_t window_offset_;  // Of window_[0] in the file.
  std::string window_;
  size_t begin_ = 0;          // Of the current row in the window.
  size_t scanned_ = 0;        // Up to here the current row is known to have no end.
  bool quoted_ = false;       // Whether scanned_ stands inside a quoted field.
  bool just_closed_ = false;  // Whether the character before scanned_ closed one.
  bool at_end_ = false;
};

/// The first `max_fields` fields of a CSV row (RFC 4180): a field takes more memory than its bytes. `quotes` false: quotation marks are
/// ordinary characters. REQUIRES: max_fields > 0.
void split_fields(std::string_view row, char separator, bool quotes, size_t max_fields, std::vector<std::string>& fields);

}  // namespace darkroom
