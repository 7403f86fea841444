#include "darkroom/tables/paged_shard_writer.h"

#include <arrow/extension_type.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/base64.h>
#include <arrow/util/checked_cast.h>
#include <parquet/arrow/schema.h>

#include <utility>
#include <variant>
#include <vector>

#include "column_layout.h"
#include "darkroom/tables/arrow_files.h"
#include "footer_hash.h"
#include "page_writer.h"
#include "paged_columns.h"
#include "row_bytes.h"
#include "shard_content.h"
#include "shard_footer.h"

namespace darkroom {

namespace {

using arrow::internal::checked_cast;

// Part of the bytes: a change of what we write for the same rows changes this name.
constexpr const char* kPagedCreatedBy = "darkroom version 2.0.0";
static_assert(std::string_view(kPagedCreatedBy).starts_with(kOurCreatedBy));

/// A column's own pages, or nothing where Arrow writes it.
using ColumnPages = std::variant<std::monostate, BytesPageWriter, TensorPageWriter>;

Status add_values(BytesPageWriter& pages, const arrow::Field& /*field*/, const arrow::Array& array) {
  const auto& values = checked_cast<const arrow::BinaryArray&>(array);
  for (int64_t row = 0; row < values.length(); ++row) {
    BorrowedValue value;
    if (!values.IsNull(row)) {
      value = std::as_bytes(std::span(values.GetView(row)));
    }
    DARKROOM_RETURN_IF_ERROR(pages.add(value));
  }
  return Status::ok();
}

Status add_values(TensorPageWriter& pages, const arrow::Field& field, const arrow::Array& array) {
  const auto& rows = checked_cast<const arrow::FixedSizeListArray&>(*checked_cast<const arrow::ExtensionArray&>(array).storage());
  const int64_t first = rows.value_offset(0);
  const int64_t count = rows.length() * rows.list_type()->list_size();
  if (rows.null_count() > 0 || rows.values()->Slice(first, count)->null_count() > 0) {
    return Status::failed_precondition("writing a shard: a column of tensors cannot hold nulls (column):", field.name());
  }
  const int64_t width = rows.value_type()->byte_width();
  const arrow::ArrayData& values = *rows.values()->data();
  const uint8_t* begin = values.buffers[1]->data() + (values.offset + first) * width;
  return pages.add_rows(std::as_bytes(std::span(begin, static_cast<size_t>(count * width))));
}

Status check_streamed_column(const arrow::Schema& schema, const PagedShardOptions& options) {
  const std::string& name = options.streamed_column;
  if (name.empty()) {
    return Status::ok();
  }
  if (schema.GetFieldIndex(name) != 0) {
    return Status::invalid_argument("the streamed column must be the first of its schema (column):", name);
  }
  if (find_column_way(*schema.field(0)) != ColumnWay::kBytePages) {
    return Status::invalid_argument("the streamed column must be binary (column, type):", name, schema.field(0)->type()->ToString());
  }
  return Status::ok();
}

/// With the Arrow schema, from which types come back exactly.
Result<std::shared_ptr<arrow::KeyValueMetadata>> make_paged_pairs(const arrow::Schema& schema, KeyValues footer,
                                                                  const std::string& content_hash) {
  const auto serialized = arrow::ipc::SerializeSchema(schema, table_pool());
  DARKROOM_RETURN_IF_ARROW_ERROR(serialized.status(), "writing the schema of a shard");
  auto pairs = std::make_shared<arrow::KeyValueMetadata>();
  pairs->Append("ARROW:schema", arrow::util::base64_encode(std::string_view(**serialized)));
  const auto ours = make_footer_pairs(std::move(footer), content_hash);
  for (int64_t i = 0; i < ours->size(); ++i) {
    pairs->Append(ours->key(i), ours->value(i));
  }
  return pairs;
}

}  // namespace

Status PagedShardOptions::validate() const {
  if (row_group_bytes <= 0) {
    return Status::invalid_argument("row_group_bytes must be positive:", row_group_bytes);
  }
  if (row_group_rows <= 0) {
    return Status::invalid_argument("row_group_rows must be positive:", row_group_rows);
  }
  if (zstd_level < 1 || zstd_level > 22) {
    return Status::invalid_argument("zstd_level must be 1 to 22:", zstd_level);
  }
  return Status::ok();
}

struct PagedShardWriter::State {
  State(std::unique_ptr<PendingObject> pending_object, std::shared_ptr<arrow::Schema> its_schema, PagedShardOptions its_options)
      : object(std::move(pending_object)), schema(std::move(its_schema)), options(std::move(its_options)), content(*object) {}

  std::unique_ptr<PendingObject> object;
  std::shared_ptr<arrow::Schema> schema;
  PagedShardOptions options;
  ShardContent content;
  std::shared_ptr<parquet::WriterProperties> properties;
  std::shared_ptr<parquet::SchemaDescriptor> parquet_schema;
  std::vector<ColumnPages> columns;             // Of the schema.
  std::shared_ptr<arrow::Schema> batch_schema;  // Without the streamed column.
  std::unique_ptr<ArrowColumns> arrow_columns;  // Null where every column has pages of our own.
  std::vector<RowGroupExtent> row_groups;
  std::vector<std::shared_ptr<arrow::RecordBatch>> pending;  // Rows of the row group that is being filled.
  int64_t pending_rows = 0;
  int64_t pending_bytes = 0;
  int64_t num_rows = 0;
  bool is_spent = false;  // Finished, or an error came.

  bool is_streaming() const { return !options.streamed_column.empty(); }
  BytesPageWriter& streamed_pages() { return std::get<BytesPageWriter>(columns.front()); }
  std::string doing() const { return "writing " + object->describe(); }

  Status begin() {
    DARKROOM_ASSIGN_OR_RETURN(properties, make_shard_properties(*schema, options.zstd_level, kPagedCreatedBy));
    DARKROOM_RETURN_IF_ARROW_ERROR(parquet::arrow::ToParquetSchema(schema.get(), *properties, &parquet_schema), doing());
    arrow::FieldVector arrow_fields;
    for (int field = 0; field < schema->num_fields(); ++field) {
      add_column(field);
      if (std::holds_alternative<std::monostate>(columns.back())) {
        arrow_fields.push_back(schema->field(field));
      }
    }
    const arrow::FieldVector& fields = schema->fields();
    batch_schema = arrow::schema(arrow::FieldVector(fields.begin() + (is_streaming() ? 1 : 0), fields.end()));
    DARKROOM_RETURN_IF_ERROR(content.write(std::as_bytes(std::span("PAR1", 4))));
    if (!arrow_fields.empty()) {
      DARKROOM_ASSIGN_OR_RETURN(arrow_columns, ArrowColumns::open(*arrow::schema(arrow_fields), properties, content));
    }
    return Status::ok();
  }

  void add_column(int number) {
    const arrow::Field& field = *schema->field(number);
    switch (find_column_way(field)) {
      case ColumnWay::kArrow:
        columns.emplace_back();
        return;
      case ColumnWay::kBytePages:
        columns.emplace_back(std::in_place_type<BytesPageWriter>, field.name(), field.nullable(), content);
        return;
      case ColumnWay::kTensorPages:
        const auto& extension = checked_cast<const arrow::ExtensionType&>(*field.type());
        const auto& rows = checked_cast<const arrow::FixedSizeListType&>(*extension.storage_type());
        const TensorPageWriter::Layout layout{.row_values = rows.list_size(),
                                              .value_bytes = rows.value_type()->byte_width(),
                                              .max_definition_level = max_definition_level(number)};
        columns.emplace_back(std::in_place_type<TensorPageWriter>, field.name(), layout, content);
        return;
    }
  }

  /// Of a field that is one column of Parquet.
  uint8_t max_definition_level(int field) const {
    int leaf = 0;
    while (parquet_schema->group_node()->FieldIndex(*parquet_schema->GetColumnRoot(leaf)) != field) {
      ++leaf;
    }
    return static_cast<uint8_t>(parquet_schema->Column(leaf)->max_definition_level());
  }

  Status append(const arrow::RecordBatch& batch, std::span<const BorrowedValue> streamed) {
    std::vector<int64_t> sizes(static_cast<size_t>(batch.num_rows()));
    for (const auto& column : batch.columns()) {
      add_row_bytes(*column, sizes);
    }
    int64_t begin = 0;
    for (int64_t row = 0; row < batch.num_rows(); ++row) {
      pending_bytes += sizes[static_cast<size_t>(row)];
      ++pending_rows;
      if (is_streaming()) {
        const BorrowedValue& value = streamed[static_cast<size_t>(row)];
        pending_bytes += 4 + (value ? static_cast<int64_t>(value->size()) : 0);
        DARKROOM_RETURN_IF_ERROR(streamed_pages().add(value));
      }
      if (pending_bytes >= options.row_group_bytes || pending_rows >= options.row_group_rows) {
        pending.push_back(batch.Slice(begin, row + 1 - begin));
        begin = row + 1;
        DARKROOM_RETURN_IF_ERROR(end_row_group());
      }
    }
    if (begin < batch.num_rows()) {
      pending.push_back(batch.Slice(begin));
    }
    num_rows += batch.num_rows();
    return Status::ok();
  }

  /// The columns in the order of the schema; the streamed one is there by now.
  Status end_row_group() {
    RowGroupExtent extent{.num_rows = pending_rows, .columns = {}};
    if (arrow_columns != nullptr) {
      DARKROOM_RETURN_IF_ARROW_ERROR(arrow_columns->begin_row_group(), doing());
    }
    for (int field = 0; field < schema->num_fields(); ++field) {
      if (is_streaming() && field == 0) {
        DARKROOM_ASSIGN_OR_RETURN(extent.columns.emplace_back(), streamed_pages().end_chunk());
        continue;
      }
      DARKROOM_ASSIGN_OR_RETURN(extent.columns.emplace_back(), write_column(field));
    }
    row_groups.push_back(std::move(extent));
    pending.clear();
    pending_rows = 0;
    pending_bytes = 0;
    return Status::ok();
  }

  Result<std::optional<ChunkExtent>> write_column(int field) {
    arrow::ArrayVector parts;
    for (const auto& batch : pending) {
      parts.push_back(batch->column(is_streaming() ? field - 1 : field));
    }
    ColumnPages& pages = columns[static_cast<size_t>(field)];
    if (auto* bytes = std::get_if<BytesPageWriter>(&pages)) {
      return write_own_column(*bytes, *schema->field(field), parts);
    }
    if (auto* tensors = std::get_if<TensorPageWriter>(&pages)) {
      return write_own_column(*tensors, *schema->field(field), parts);
    }
    DARKROOM_RETURN_IF_ARROW_ERROR(arrow_columns->write_column(parts), doing());
    return std::optional<ChunkExtent>();
  }

  static Result<std::optional<ChunkExtent>> write_own_column(auto& pages, const arrow::Field& field, const arrow::ArrayVector& parts) {
    for (const auto& part : parts) {
      DARKROOM_RETURN_IF_ERROR(add_values(pages, field, *part));
    }
    DARKROOM_ASSIGN_OR_RETURN(const ChunkExtent chunk, pages.end_chunk());
    return std::optional(chunk);
  }

  Result<FinishedShard> finish(KeyValues pairs) {
    if (pending_rows > 0) {
      DARKROOM_RETURN_IF_ERROR(end_row_group());
    }
    FinishedShard shard{.content_hash = kXxh3Name + content.hash_hex(), .num_rows = num_rows};
    DARKROOM_ASSIGN_OR_RETURN(std::string footer, make_footer(std::move(pairs), shard.content_hash));
    seal_footer(footer);
    DARKROOM_RETURN_IF_ERROR(object->write_text(footer));
    shard.num_bytes = object->num_bytes();
    shard.object = std::move(object);
    return shard;
  }

  Result<std::string> make_footer(KeyValues pairs, const std::string& content_hash) {
    DARKROOM_ASSIGN_OR_RETURN(const auto all_pairs, make_paged_pairs(*schema, std::move(pairs), content_hash));
    std::shared_ptr<parquet::FileMetaData> arrow_footer;
    if (arrow_columns != nullptr) {
      auto finished = arrow_columns->finish();
      DARKROOM_RETURN_IF_ARROW_ERROR(finished.status(), doing());
      arrow_footer = *std::move(finished);
    }
    try {
      return build_footer(*parquet_schema, properties, row_groups, arrow_footer.get(), all_pairs);
    } catch (const parquet::ParquetException& failure) {
      return Status::internal("writing the footer of a shard (object, reason):", object->describe(), failure.what());
    }
  }
};

PagedShardWriter::PagedShardWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

PagedShardWriter::~PagedShardWriter() = default;

Result<std::unique_ptr<PagedShardWriter>> PagedShardWriter::open(std::unique_ptr<PendingObject> object,
                                                                 std::shared_ptr<arrow::Schema> schema, const PagedShardOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  DARKROOM_RETURN_IF_ERROR(check_columns(*schema));
  DARKROOM_RETURN_IF_ERROR(check_streamed_column(*schema, options));
  auto state = std::make_unique<State>(std::move(object), std::move(schema), options);
  DARKROOM_RETURN_IF_ERROR(state->begin());
  return std::unique_ptr<PagedShardWriter>(new PagedShardWriter(std::move(state)));
}

int64_t PagedShardWriter::num_rows() const { return state_->num_rows; }

int64_t PagedShardWriter::num_rows_taken() const {
  DARKROOM_CHECK(state_->is_streaming(), "a shard without a streamed column borrows no bytes");
  return state_->streamed_pages().num_taken();
}

Status PagedShardWriter::write(const arrow::RecordBatch& batch) {
  DARKROOM_CHECK(!state_->is_streaming(), "a batch came without the streamed column (column):", state_->options.streamed_column);
  return write(batch, {});
}

Status PagedShardWriter::write(const arrow::RecordBatch& others, std::span<const BorrowedValue> streamed) {
  DARKROOM_CHECK(!state_->is_spent, "a spent shard writer was used");
  DARKROOM_CHECK(others.schema()->Equals(*state_->batch_schema, /*check_metadata=*/false),
                 "a batch has another schema than its shard (got):", others.schema()->ToString());
  DARKROOM_CHECK(streamed.size() == (state_->is_streaming() ? static_cast<size_t>(others.num_rows()) : 0),
                 "another number of streamed values came than of rows (got):", streamed.size());
  state_->is_spent = true;  // Also when it throws.
  const Status status = state_->append(others, streamed);
  state_->is_spent = !status.is_ok();
  return status;
}

Result<FinishedShard> PagedShardWriter::finish(KeyValues footer) {
  DARKROOM_CHECK(!state_->is_spent, "a spent shard writer was used");
  state_->is_spent = true;
  return state_->finish(std::move(footer));
}

}  // namespace darkroom
