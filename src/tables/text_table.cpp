#include "text_table.h"

#include <arrow/array/builder_binary.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "darkroom/tables/arrow_files.h"
#include "json_row.h"
#include "row_splitter.h"
#include "table_columns.h"

namespace darkroom {

namespace {

constexpr int64_t kRowsPerMark = 1024;
constexpr int kRowsForKeys = 1000;    // JSON lines: how many rows say which columns there are.
constexpr size_t kMaxColumns = 1000;  // A batch has a place for each of its columns in every row.

using Values = std::vector<std::optional<std::string>>;

/// How a row's bytes become values, one for each of some columns. Thread safety: one object, one thread.
class RowParser {
 public:
  virtual ~RowParser() = default;
  /// False, and the values undefined, when the bytes are no row.
  virtual bool parse(std::string_view row, Values& values) = 0;
};

class DelimitedParser final : public RowParser {
 public:
  DelimitedParser(char separator, bool quotes, size_t num_fields, std::vector<int> columns)
      : separator_(separator), quotes_(quotes), num_fields_(num_fields), columns_(std::move(columns)) {}

  bool parse(std::string_view row, Values& values) override {
    split_fields(row, separator_, quotes_, num_fields_ + 1, fields_);
    if (fields_.size() != num_fields_) {
      return false;
    }
    for (size_t i = 0; i < columns_.size(); ++i) {
      values[i] = fields_[static_cast<size_t>(columns_[i])];
    }
    return true;
  }

 private:
  char separator_;
  bool quotes_;
  size_t num_fields_;
  std::vector<int> columns_;
  std::vector<std::string> fields_;
};

class JsonParser final : public RowParser {
 public:
  explicit JsonParser(const std::vector<std::string>& names) {
    for (size_t i = 0; i < names.size(); ++i) {
      places_[names[i]] = i;
    }
  }

  bool parse(std::string_view row, Values& values) override {
    std::fill(values.begin(), values.end(), std::nullopt);
    return read_json_row(row, [&](const std::string& key) {
      const auto place = places_.find(key);
      return place == places_.end() ? nullptr : &values[place->second];
    });
  }

 private:
  std::map<std::string, size_t> places_;  // In order: a hash without a secret seed is linear for keys that were made to collide.
};

class TextRange final : public RowRange {
 public:
  TextRange(RowSplitter rows, std::unique_ptr<RowParser> parser, std::shared_ptr<arrow::Schema> schema, int64_t count,
            const ReadOptions& options)
      : rows_(std::move(rows)), parser_(std::move(parser)), schema_(std::move(schema)), left_(count), options_(options) {}

  Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    std::vector<arrow::StringBuilder> builders;
    for (int i = 0; i < schema_->num_fields(); ++i) {
      builders.emplace_back(table_pool());
    }
    int64_t num_rows = 0;
    int64_t num_bytes = 0;
    std::string_view row;
    Values values(builders.size());
    while (left_ > 0 && num_rows < options_.max_batch_rows && num_bytes < options_.batch_bytes) {
      DARKROOM_ASSIGN_OR_RETURN(const bool more, rows_.next(row));
      if (!more) {
        left_ = 0;
        break;
      }
      if (!parser_->parse(row, values)) {
        ++num_malformed_rows_;
        std::fill(values.begin(), values.end(), std::nullopt);
      }
      DARKROOM_RETURN_IF_ARROW_ERROR(append(values, builders), "reading a text table");
      ++num_rows;
      --left_;
      num_bytes += static_cast<int64_t>(row.size());
    }
    return num_rows == 0 ? Result<std::shared_ptr<arrow::RecordBatch>>(nullptr) : finish(num_rows, builders);
  }
  int64_t num_malformed_rows() const override { return num_malformed_rows_; }

 private:
  static arrow::Status append(const Values& values, std::vector<arrow::StringBuilder>& builders) {
    for (size_t i = 0; i < builders.size(); ++i) {
      ARROW_RETURN_NOT_OK(values[i] ? builders[i].Append(*values[i]) : builders[i].AppendNull());
    }
    return arrow::Status::OK();
  }

  Result<std::shared_ptr<arrow::RecordBatch>> finish(int64_t num_rows, std::vector<arrow::StringBuilder>& builders) const {
    arrow::ArrayVector arrays(builders.size());
    for (size_t i = 0; i < builders.size(); ++i) {
      DARKROOM_RETURN_IF_ARROW_ERROR(builders[i].Finish(&arrays[i]), "reading a text table");
    }
    return arrow::RecordBatch::Make(schema_, num_rows, arrays);
  }

  RowSplitter rows_;
  std::unique_ptr<RowParser> parser_;
  std::shared_ptr<arrow::Schema> schema_;
  int64_t left_;
  ReadOptions options_;
  int64_t num_malformed_rows_ = 0;
};

std::shared_ptr<arrow::Schema> text_schema(const std::vector<std::string>& names) {
  arrow::FieldVector fields;
  for (const std::string& name : names) {
    fields.push_back(arrow::field(name, arrow::utf8()));
  }
  return arrow::schema(fields);
}

class TextTable final : public TableReader {
 public:
  TextTable(std::shared_ptr<const InputFile> file, TableFormat format) : file_(std::move(file)), format_(format) {}

  Status open() {
    std::string mark(3, '\0');
    DARKROOM_ASSIGN_OR_RETURN(const size_t num_read, file_->read_at(0, std::as_writable_bytes(std::span(mark))));
    const int64_t start = num_read == 3 && mark == "\xEF\xBB\xBF" ? 3 : 0;  // UTF-8's byte order mark
    RowSplitter rows(file_, start, quote_after());
    DARKROOM_RETURN_IF_ERROR(format_ == TableFormat::kJsonLines ? read_keys(rows) : read_header(rows));
    marks_.push_back(format_ == TableFormat::kJsonLines ? start : rows.offset());
    return Status::ok();
  }

  const std::string& path() const override { return file_->path(); }
  TableFormat format() const override { return format_; }
  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }

  Result<int64_t> num_rows() override {
    const std::lock_guard hold(mutex_);
    DARKROOM_RETURN_IF_ERROR(extend_marks(std::numeric_limits<int64_t>::max()));
    return *num_rows_;
  }

  Result<std::unique_ptr<RowRange>> read_rows(int64_t first, int64_t count, const std::vector<std::string>& columns,
                                              const ReadOptions& options) override {
    DARKROOM_CHECK(first >= 0 && count >= 0, "a range of rows must not be negative (first, count):", first, count);
    DARKROOM_ASSIGN_OR_RETURN(std::vector<int> places, find_columns(*schema_, columns, path()));
    DARKROOM_ASSIGN_OR_RETURN(RowSplitter rows, seek(first, count, options));
    std::vector<std::string> names;
    for (const int place : places) {
      names.push_back(schema_->field(place)->name());
    }
    std::unique_ptr<RowParser> parser;
    if (format_ == TableFormat::kJsonLines) {
      parser = std::make_unique<JsonParser>(names);
    } else {
      const auto num_fields = static_cast<size_t>(schema_->num_fields());
      parser = std::make_unique<DelimitedParser>(separator(), quote_after() != 0, num_fields, std::move(places));
    }
    return std::unique_ptr<RowRange>(std::make_unique<TextRange>(std::move(rows), std::move(parser), text_schema(names), count, options));
  }

 private:
  char separator() const { return format_ == TableFormat::kTsv ? '\t' : ','; }
  char quote_after() const { return format_ == TableFormat::kCsv ? ',' : '\0'; }

  Status read_header(RowSplitter& rows) {
    std::string_view row;
    DARKROOM_ASSIGN_OR_RETURN(const bool found, rows.next(row));
    if (!found) {
      return Status::corrupt_data("reading a text table: it is empty, the first row must name the columns (path):", path());
    }
    std::vector<std::string> names;
    split_fields(row, separator(), quote_after() != 0, kMaxColumns + 1, names);
    if (names.size() > kMaxColumns) {
      return Status::corrupt_data("reading a text table: the first row names more than 1,000 columns (path):", path());
    }
    schema_ = text_schema(names);
    return Status::ok();
  }

  Status read_keys(RowSplitter& rows) {
    std::vector<std::string> names;
    std::set<std::string> known;
    int num_rows = 0;
    int num_objects = 0;
    std::string_view row;
    for (; num_rows < kRowsForKeys; ++num_rows) {
      DARKROOM_ASSIGN_OR_RETURN(const bool more, rows.next(row));
      if (!more) {
        break;
      }
      const size_t num_names = names.size();
      const bool is_object = read_json_row(row, [&](const std::string& key) {
        if (names.size() < kMaxColumns && known.insert(key).second) {
          names.push_back(key);
        }
        return nullptr;
      });
      num_objects += is_object ? 1 : 0;
      for (; !is_object && names.size() > num_names; names.pop_back()) {
        known.erase(names.back());
      }
    }
    if (num_rows > 0 && num_objects == 0) {
      return Status::corrupt_data("reading JSON lines: no line of the first 1,000 is a JSON object (path):", path());
    }
    schema_ = text_schema(names);
    return Status::ok();
  }

  /// Reads on until the mark before row `row` is known, or the file ends. REQUIRES: mutex_ is held.
  Status extend_marks(int64_t row) {
    if (num_rows_ || static_cast<int64_t>(marks_.size()) > row / kRowsPerMark) {
      return Status::ok();
    }
    RowSplitter rows(file_, marks_.back(), quote_after());
    int64_t count = (static_cast<int64_t>(marks_.size()) - 1) * kRowsPerMark;
    std::string_view ignored;
    while (static_cast<int64_t>(marks_.size()) <= row / kRowsPerMark) {
      DARKROOM_ASSIGN_OR_RETURN(const bool more, rows.next(ignored));
      if (!more) {
        num_rows_ = count;
        break;
      }
      if (++count % kRowsPerMark == 0) {
        marks_.push_back(rows.offset());
      }
    }
    return Status::ok();
  }

  /// A splitter that stands before row `first`, or at the end.
  Result<RowSplitter> seek(int64_t first, int64_t count, const ReadOptions& options) {
    const std::lock_guard hold(mutex_);
    DARKROOM_RETURN_IF_ERROR(extend_marks(first));
    const int64_t mark = std::min(first / kRowsPerMark, static_cast<int64_t>(marks_.size()) - 1);
    const int64_t begin = marks_[static_cast<size_t>(mark)];
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() - kRowsPerMark;
    const int64_t last_mark = count > kMost - first ? kMost : (first + count + kRowsPerMark - 1) / kRowsPerMark;
    const bool is_known = last_mark < static_cast<int64_t>(marks_.size());
    const int64_t end = is_known ? marks_[static_cast<size_t>(last_mark)] : file_->size_bytes();
    RowSplitter rows(with_read_ahead(file_, {.offset = begin, .num_bytes = end - begin}, options.read_ahead_bytes), begin, quote_after());
    std::string_view ignored;
    for (int64_t row = mark * kRowsPerMark; row < first; ++row) {
      DARKROOM_ASSIGN_OR_RETURN(const bool more, rows.next(ignored));
      if (!more) {
        break;
      }
    }
    return rows;
  }

  std::shared_ptr<const InputFile> file_;  // Shared with the ranges.
  TableFormat format_;
  std::shared_ptr<arrow::Schema> schema_;
  std::mutex mutex_;            // Guards the two below.
  std::vector<int64_t> marks_;  // marks_[i]: where row i * kRowsPerMark begins.
  std::optional<int64_t> num_rows_;
};

}  // namespace

Result<std::unique_ptr<TableReader>> open_text_table(std::shared_ptr<const InputFile> file, TableFormat format) {
  auto table = std::make_unique<TextTable>(std::move(file), format);
  DARKROOM_RETURN_IF_ERROR(table->open());
  return std::unique_ptr<TableReader>(std::move(table));
}

}  // namespace darkroom
