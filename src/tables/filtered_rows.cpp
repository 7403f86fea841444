#include "darkroom/tables/filtered_rows.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "darkroom/core/check.h"
#include "table_columns.h"

namespace darkroom {
namespace {

/// Rows of a table that are decided on together: what a row group has of the range, or the whole range.
struct FilterSpan {
  int64_t first = 0;
  int64_t count = 0;
  Reach reach = Reach::kSome;
};

/// Rows decided on at once: a footer may claim any number of them, and a byte is kept for each.
constexpr int64_t kMaxSpanRows = 1 << 20;

/// What the range has of each row group, neighbours of one reach that need no look joined.
std::vector<FilterSpan> filter_spans(const std::vector<RowGroup>& groups, const RowFilter& filter, int64_t first, int64_t count) {
  std::vector<FilterSpan> spans;
  const int64_t end = count > std::numeric_limits<int64_t>::max() - first ? std::numeric_limits<int64_t>::max() : first + count;
  for (const RowGroup& group : groups) {
    const int64_t from = std::max(first, group.first_row);
    const int64_t to = std::min(end, group.first_row + group.statistics.num_rows);
    const Reach reach = filter.reach(group.statistics);
    if (from >= to) {
      continue;
    }
    if (!spans.empty() && spans.back().reach == reach && reach != Reach::kSome) {
      spans.back().count += to - from;
    } else {
      spans.push_back({.first = from, .count = to - from, .reach = reach});
    }
  }
  return spans;
}

std::vector<std::string> joined_columns(std::vector<std::string> columns, const std::vector<std::string>& more) {
  for (const std::string& name : more) {
    if (std::find(columns.begin(), columns.end(), name) == columns.end()) {
      columns.push_back(name);
    }
  }
  return columns;
}

/// A range of rows and where in the table its next batch begins.
class FilterRange {
 public:
  static Result<FilterRange> open(TableReader& table, int64_t first, int64_t count, const std::vector<std::string>& columns,
                                  const ReadOptions& options) {
    FilterRange range;
    DARKROOM_ASSIGN_OR_RETURN(range.rows_, table.read_rows(first, count, columns, options));
    range.position_ = first;
    return range;
  }

  Result<FilteredBatch> next() {
    FilteredBatch batch{.first_row = position_};
    DARKROOM_ASSIGN_OR_RETURN(batch.batch, rows_->next());
    position_ += batch.batch == nullptr ? 0 : batch.batch->num_rows();
    return batch;
  }
  int64_t num_malformed_rows() const { return rows_->num_malformed_rows(); }

 private:
  std::unique_ptr<RowRange> rows_;
  int64_t position_ = 0;
};

/// One pass over all columns: of text tables, and where nothing has to be asked.
class OnePass final : public FilteredRows {
 public:
  OnePass(const RowFilter* filter, std::vector<int> handed_out) : filter_(filter), handed_out_(std::move(handed_out)) {}

  Status open(TableReader& table, int64_t first, int64_t count, const std::vector<std::string>& columns, const ReadOptions& options) {
    DARKROOM_ASSIGN_OR_RETURN(range_, FilterRange::open(table, first, count, columns, options));
    return {};
  }

  Result<FilteredBatch> next() override {
    while (true) {
      DARKROOM_ASSIGN_OR_RETURN(FilteredBatch read, range_.next());
      if (read.batch == nullptr) {
        return read;
      }
      DARKROOM_RETURN_IF_ERROR(choose(read));
      num_dropped_ += read.batch->num_rows() - static_cast<int64_t>(read.kept.size());
      if (!read.kept.empty()) {
        return read;
      }
    }
  }
  int64_t num_dropped() const override { return num_dropped_; }
  int64_t num_malformed_rows() const override { return range_.num_malformed_rows(); }

 private:
  Status choose(FilteredBatch& read) const {
    if (filter_ == nullptr) {
      read.kept.resize(static_cast<size_t>(read.batch->num_rows()));
      std::iota(read.kept.begin(), read.kept.end(), 0);
      return {};
    }
    std::vector<uint8_t> keep;
    DARKROOM_RETURN_IF_ERROR(filter_->evaluate(*read.batch, keep));
    for (size_t row = 0; row < keep.size(); ++row) {
      if (keep[row] != 0) {
        read.kept.push_back(static_cast<int64_t>(row));
      }
    }
    if (!handed_out_.empty()) {
      const auto chosen = read.batch->SelectColumns(handed_out_);
      DARKROOM_CHECK(chosen.ok(), "a batch lacks a column that was read:", chosen.status().ToString());
      read.batch = *chosen;
    }
    return {};
  }

  const RowFilter* filter_;
  std::vector<int> handed_out_;  // Of the columns read; empty: all.
  FilterRange range_;
  int64_t num_dropped_ = 0;
};

/// Of tables with row groups: the filter's columns of a span, then the others from the first kept row to the last one.
class TwoPasses final : public FilteredRows {
 public:
  TwoPasses(TableReader& table, const RowFilter& filter, std::vector<FilterSpan> spans, std::vector<std::string> columns,
            const ReadOptions& options)
      : table_(table), filter_(filter), spans_(std::move(spans)), columns_(std::move(columns)), options_(options) {}

  Result<FilteredBatch> next() override {
    while (true) {
      if (!range_) {
        if (next_span_ == spans_.size()) {
          return FilteredBatch();
        }
        DARKROOM_RETURN_IF_ERROR(open_span(next_piece()));
        continue;
      }
      DARKROOM_ASSIGN_OR_RETURN(FilteredBatch read, range_->next());
      if (read.batch == nullptr) {
        range_.reset();
        continue;
      }
      choose(read);
      if (!read.kept.empty()) {
        return read;
      }
    }
  }
  int64_t num_dropped() const override { return num_dropped_; }
  int64_t num_malformed_rows() const override { return 0; }

 private:
  /// The first rows of the next span, at most kMaxSpanRows.
  FilterSpan next_piece() {
    FilterSpan& span = spans_[next_span_];
    FilterSpan piece = span;
    piece.count = std::min(span.count, kMaxSpanRows);
    span.first += piece.count;
    span.count -= piece.count;
    next_span_ += span.count == 0 ? 1 : 0;
    return piece;
  }

  Status open_span(const FilterSpan& span) {
    keep_first_ = span.first;
    keep_.assign(static_cast<size_t>(span.count), span.reach == Reach::kAll ? 1 : 0);
    if (span.reach == Reach::kSome) {
      DARKROOM_RETURN_IF_ERROR(ask(span));
    }
    num_dropped_ += std::count(keep_.begin(), keep_.end(), 0);
    const auto begin = std::find(keep_.begin(), keep_.end(), 1);
    if (begin == keep_.end()) {
      return {};
    }
    const auto end = std::find(keep_.rbegin(), keep_.rend(), 1).base();
    DARKROOM_ASSIGN_OR_RETURN(
        range_, FilterRange::open(table_, span.first + std::distance(keep_.begin(), begin), std::distance(begin, end), columns_, options_));
    return {};
  }

  /// Fills keep_ of a span's rows.
  Status ask(const FilterSpan& span) {
    if (filter_.columns().empty()) {  // Reading no columns would mean all of them; the filter is TRUE or FALSE for any row.
      const auto none = arrow::RecordBatch::Make(arrow::schema(arrow::FieldVector()), span.count, arrow::ArrayVector());
      return filter_.evaluate(*none, keep_);
    }
    DARKROOM_ASSIGN_OR_RETURN(FilterRange range, FilterRange::open(table_, span.first, span.count, filter_.columns(), options_));
    while (true) {
      DARKROOM_ASSIGN_OR_RETURN(const FilteredBatch read, range.next());
      if (read.batch == nullptr) {
        return {};
      }
      std::vector<uint8_t> keep;
      DARKROOM_RETURN_IF_ERROR(filter_.evaluate(*read.batch, keep));
      std::copy(keep.begin(), keep.end(), keep_.begin() + (read.first_row - span.first));
    }
  }

  void choose(FilteredBatch& read) const {
    for (int64_t row = 0; row < read.batch->num_rows(); ++row) {
      if (keep_[static_cast<size_t>(read.first_row - keep_first_ + row)] != 0) {
        read.kept.push_back(row);
      }
    }
  }

  TableReader& table_;
  const RowFilter& filter_;
  std::vector<FilterSpan> spans_;
  std::vector<std::string> columns_;
  ReadOptions options_;
  size_t next_span_ = 0;
  std::vector<uint8_t> keep_;  // Of the rows of the open span,
  int64_t keep_first_ = 0;     // the first of which this is.
  std::optional<FilterRange> range_;
  int64_t num_dropped_ = 0;
};

Result<std::unique_ptr<FilteredRows>> open_one_pass(TableReader& table, const RowFilter* filter, int64_t first, int64_t count,
                                                    std::vector<std::string> columns, const ReadOptions& options) {
  std::vector<int> handed_out;
  if (filter != nullptr && !columns.empty()) {
    handed_out.resize(columns.size());
    std::iota(handed_out.begin(), handed_out.end(), 0);
    columns = joined_columns(std::move(columns), filter->columns());
  }
  auto rows = std::make_unique<OnePass>(filter, std::move(handed_out));
  DARKROOM_RETURN_IF_ERROR(rows->open(table, first, count, columns, options));
  return std::unique_ptr<FilteredRows>(std::move(rows));
}

}  // namespace

Result<std::unique_ptr<FilteredRows>> FilteredRows::open(TableReader& table, const RowFilter* filter, int64_t first, int64_t count,
                                                         std::vector<std::string> columns, const ReadOptions& options) {
  DARKROOM_CHECK(first >= 0 && count >= 0, "a range of rows must not be negative (first, count):", first, count);
  if (filter == nullptr || table.format() != TableFormat::kParquet) {
    return open_one_pass(table, filter, first, count, std::move(columns), options);
  }
  DARKROOM_RETURN_IF_ERROR(find_columns(*table.schema(), columns, table.path()).status());  // Said before anything is read.
  std::vector<FilterSpan> spans = filter_spans(table.row_groups(first, count, filter->columns()), *filter, first, count);
  return std::unique_ptr<FilteredRows>(std::make_unique<TwoPasses>(table, *filter, std::move(spans), std::move(columns), options));
}

}  // namespace darkroom
