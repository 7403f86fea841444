#pragma once

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace darkroom {

/// What a terminal shows of the bytes that were written to it: text, "\r", "\n" (to the first column of the next row), and of the escape
/// sequences those that go up ("A"), erase the row ("2K") or the screen from the cursor on ("J"). Any other is an error.
class TerminalScreen {
 public:
  TerminalScreen(size_t num_rows, size_t num_columns) : num_rows_(num_rows), num_columns_(num_columns), rows_(1) {}

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      bytes.remove_prefix(take(bytes));
    }
  }
  /// The rows that scrolled out and those on the screen, without blanks and empty rows at their ends.
  std::vector<std::string> rows() const {
    std::vector<std::string> shown;
    for (const auto& row : rows_) {
      std::string text;
      for (const std::string& cell : row) {
        text += cell.empty() ? " " : cell;
      }
      shown.push_back(text.substr(0, text.find_last_not_of(' ') + 1));
    }
    while (!shown.empty() && shown.back().empty()) {
      shown.pop_back();
    }
    return shown;
  }

 private:
  /// The bytes that were taken.
  size_t take(std::string_view bytes) {
    if (bytes.starts_with("\x1b[")) {
      const size_t end = bytes.find_first_not_of("0123456789", 2);
      obey(std::string(bytes.substr(2, end - 2)), bytes.at(end));
      return end + 1;
    }
    if (bytes.front() == '\r' || bytes.front() == '\n') {
      column_ = 0;
      bytes.front() == '\n' ? go_down() : void();
      return 1;
    }
    size_t size = 1;
    while (size < bytes.size() && (static_cast<unsigned char>(bytes[size]) & 0xC0) == 0x80) {
      ++size;
    }
    put(std::string(bytes.substr(0, size)));
    return size;
  }
  void obey(const std::string& number, char command) {
    const size_t top = rows_.size() - std::min(rows_.size(), num_rows_);
    if (command == 'A') {
      row_ = std::max(top, row_ - std::min(row_, std::stoul(number)));
    } else if (command == 'K' && number == "2") {
      rows_[row_].clear();
    } else if (command == 'J' && number.empty()) {
      rows_[row_].resize(std::min(rows_[row_].size(), column_));
      std::fill(rows_.begin() + static_cast<std::ptrdiff_t>(row_) + 1, rows_.end(), Row());
    } else {
      throw std::invalid_argument("an escape sequence that this terminal does not know: " + number + command);
    }
  }
  void put(std::string character) {
    if (column_ == num_columns_) {  // A full row is left only for the next character.
      column_ = 0;
      go_down();
    }
    Row& row = rows_[row_];
    row.resize(std::max(row.size(), column_ + 1));
    row[column_++] = std::move(character);
  }
  void go_down() {
    ++row_;
    rows_.resize(std::max(rows_.size(), row_ + 1));
  }

  using Row = std::vector<std::string>;  // A character a cell; empty: a blank.
  const size_t num_rows_;
  const size_t num_columns_;
  std::vector<Row> rows_;
  size_t row_ = 0;
  size_t column_ = 0;
};

}  // namespace darkroom
