#include <arrow/api.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/files/memory_files.h"
#include "darkroom/tables/table_reader.h"
#include "darkroom/tables/where.h"
#include "fuzz/fuzz_targets.h"

namespace darkroom {
namespace {

/// Reads all rows; the table may be none.
Status read_all(const std::string& path, std::string_view bytes) {
  MemoryFileSystem files;
  DARKROOM_CHECK(write_file_atomic(files, path, bytes).is_ok(), "a file in memory was not written");
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<TableReader> table, open_table(files, path));
  DARKROOM_ASSIGN_OR_RETURN(const int64_t num_rows, table->num_rows());
  DARKROOM_ASSIGN_OR_RETURN(const std::unique_ptr<RowRange> rows, table->read_rows(0, num_rows, {}));
  int64_t num_read = 0;
  while (true) {
    DARKROOM_ASSIGN_OR_RETURN(const std::shared_ptr<arrow::RecordBatch> batch, rows->next());
    if (batch == nullptr) {
      break;
    }
    DARKROOM_CHECK(batch->Validate().ok() && batch->num_rows() > 0, "a batch that is none:", path);
    num_read += batch->num_rows();
  }
  DARKROOM_CHECK(num_read == num_rows && rows->num_malformed_rows() <= num_rows, "rows were counted and not read:", path, num_rows,
                 num_read);
  return Status::ok();
}

template <typename Builder, typename Value>
std::shared_ptr<arrow::Array> column_of(const std::vector<Value>& values) {
  Builder builder;
  DARKROOM_CHECK(builder.AppendValues(values).ok() && builder.AppendNull().ok(), "a column in memory was not written");
  return builder.Finish().ValueOrDie();
}

using Rows = std::shared_ptr<arrow::RecordBatch>;

/// Three rows, the last of nulls.
Rows typed_rows() {
  const auto schema = arrow::schema({arrow::field("x", arrow::utf8()), arrow::field("n", arrow::int64()),
                                     arrow::field("f", arrow::float64()), arrow::field("b", arrow::boolean())});
  const std::vector<std::shared_ptr<arrow::Array>> columns = {
      column_of<arrow::StringBuilder, std::string>({"a%_b", "0.1"}), column_of<arrow::Int64Builder, int64_t>({0, INT64_MIN}),
      column_of<arrow::DoubleBuilder, double>({0.1, -1e300}), column_of<arrow::BooleanBuilder, bool>({true, false})};
  return arrow::RecordBatch::Make(schema, 3, columns);
}

/// The same of a table of text.
Rows text_rows() {
  arrow::FieldVector fields;
  std::vector<std::shared_ptr<arrow::Array>> columns;
  for (const char* name : {"x", "n", "f", "b"}) {
    fields.push_back(arrow::field(name, arrow::utf8()));
    columns.push_back(column_of<arrow::StringBuilder, std::string>({"true", " 1e-3"}));
  }
  return arrow::RecordBatch::Make(arrow::schema(fields), 3, columns);
}

void check_filter(const WhereExpression& where, TableFormat format, const Rows& rows) {
  const Result<RowFilter> filter = where.bind(*rows->schema(), format, "t");
  if (!filter.is_ok()) {
    return;
  }
  std::vector<uint8_t> keep;
  DARKROOM_CHECK(filter->evaluate(*rows, keep).is_ok() && keep.size() == 3, "rows that were asked:", keep.size());
  const Reach reach = filter->reach({.num_rows = 3, .columns = {}});
  for (const uint8_t kept : keep) {
    DARKROOM_CHECK(reach == Reach::kSome || kept == (reach == Reach::kAll ? 1 : 0), "a row group is judged wrongly:", where.canonical());
  }
}

}  // namespace

void fuzz_json(std::string_view bytes) {
  const nlohmann::json document = parse_json(bytes);
  if (!document.is_discarded()) {
    const std::string text = document.dump();
    DARKROOM_CHECK(parse_json(text) == document && !json_nests_deeper(text, kMaxJsonDepth), "a document is not read as it was written");
  }
  for (const char* path : {"t.jsonl", "t.csv", "t.tsv"}) {
    const Status read = read_all(path, bytes);
    DARKROOM_CHECK(read.is_ok() || read.message().find(path) != std::string::npos, "no path in:", read.message());
  }
}

void fuzz_where(std::string_view bytes) {
  const Result<WhereExpression> where = WhereExpression::parse(bytes);
  if (!where.is_ok()) {
    return;
  }
  const Result<WhereExpression> again = WhereExpression::parse(where->canonical());
  DARKROOM_CHECK(again.is_ok() && again->canonical() == where->canonical(), "a canonical form is not its own:", where->canonical());
  DARKROOM_CHECK(again->columns() == where->columns(), "a canonical form has other columns:", where->canonical());
  static const Rows typed = typed_rows();
  static const Rows text = text_rows();
  check_filter(*where, TableFormat::kParquet, typed);
  check_filter(*where, TableFormat::kCsv, text);
}

}  // namespace darkroom
