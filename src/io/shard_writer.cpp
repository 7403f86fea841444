#include "darkroom/io/shard_writer.h"

#include <arrow/array/concatenate.h>
#include <arrow/io/interfaces.h>
#include <arrow/table.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/arrow/schema.h>
#include <parquet/arrow/writer.h>
#include <parquet/exception.h>
#include <parquet/properties.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/sha256.h"
#include "darkroom/io/arrow_files.h"
#include "footer_hash.h"
#include "row_bytes.h"

namespace darkroom {

namespace {

// Part of the bytes: a change of what we write for the same rows changes this name.
constexpr const char* kCreatedBy = "darkroom version 1.0.0";

/// Bytes before the footer go to the file and into the hash; the footer is held back until it is sealed.
class ShardStream final : public arrow::io::OutputStream {
 public:
  explicit ShardStream(OutputFile& file) : file_(file) {}

  arrow::Status Write(const void* data, int64_t num_bytes) override {
    const std::span bytes(static_cast<const std::byte*>(data), static_cast<size_t>(num_bytes));
    num_bytes_ += num_bytes;
    if (stage_ == Stage::kFooter) {
      footer_.append(static_cast<const char*>(data), bytes.size());
      return arrow::Status::OK();
    }
    if (stage_ == Stage::kAbandoned) {
      return arrow::Status::Cancelled("the shard was abandoned");
    }
    sha256_.update(bytes);
    return to_arrow(file_.write(bytes));
  }
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Tell() const override { return num_bytes_; }
  bool closed() const override { return closed_; }

  /// What comes from now on is the footer. Returns the content hash.
  std::string begin_footer() {
    stage_ = Stage::kFooter;
    return sha256_.finish_hex();
  }
  /// Parquet's writer writes a footer when it dies, too: nothing goes through any more.
  void abandon() { stage_ = Stage::kAbandoned; }
  std::string& footer() { return footer_; }
  int64_t num_bytes() const { return num_bytes_; }

 private:
  enum class Stage { kContent, kFooter, kAbandoned };

  OutputFile& file_;
  Sha256 sha256_;
  Stage stage_ = Stage::kContent;
  std::string footer_;
  int64_t num_bytes_ = 0;
  bool closed_ = false;
};

bool holds_binary(const arrow::DataType& type) {
  return type.id() == arrow::Type::BINARY || type.id() == arrow::Type::LARGE_BINARY ||
         (type.id() == arrow::Type::STRUCT &&
          std::any_of(type.fields().begin(), type.fields().end(), [](const auto& field) { return holds_binary(*field->type()); }));
}

bool holds_list(const arrow::DataType& type) { return type.id() == arrow::Type::EXTENSION || arrow::is_list_like(type.id()); }

/// Cuts a column of a row group into pieces of about a page. Parquet spends up to eight times a piece while it writes
/// it, and looks at a page's size where a piece ends: so the cuts must depend on the values alone.
std::shared_ptr<arrow::ChunkedArray> cut_into_pieces(const std::shared_ptr<arrow::Array>& column) {
  constexpr int64_t kPieceBytes = 1 << 20;
  std::vector<int64_t> sizes(static_cast<size_t>(column->length()));
  add_row_bytes(*column, sizes);
  const int64_t num_bytes = std::accumulate(sizes.begin(), sizes.end(), int64_t{1});
  const int64_t piece_rows = std::max<int64_t>(1, column->length() * kPieceBytes / num_bytes);
  arrow::ArrayVector pieces;
  for (int64_t row = 0; row < column->length(); row += piece_rows) {
    pieces.push_back(column->Slice(row, piece_rows));
  }
  return std::make_shared<arrow::ChunkedArray>(pieces, column->type());
}

Result<std::shared_ptr<parquet::WriterProperties>> make_properties(const arrow::Schema& schema, const ShardOptions& options) {
  std::shared_ptr<parquet::SchemaDescriptor> columns;
  DARKROOM_RETURN_IF_ARROW_ERROR(parquet::arrow::ToParquetSchema(&schema, *parquet::default_writer_properties(), &columns),
                                 "laying out a shard");
  parquet::WriterProperties::Builder builder;
  builder.memory_pool(table_pool())
      ->created_by(kCreatedBy)
      ->enable_page_checksum()
      ->disable_dictionary()
      ->disable_write_page_index()  // It would lie between content and footer, and hash as neither.
      ->max_row_group_length(std::numeric_limits<int64_t>::max());
  for (int i = 0; i < columns->num_columns(); ++i) {
    const std::shared_ptr<parquet::schema::ColumnPath> path = columns->Column(i)->path();
    const std::string name = path->ToDotVector().front();
    const arrow::DataType& type = *schema.GetFieldByName(name)->type();
    const bool is_bulk = holds_binary(type) || holds_list(type);
    const auto exception = options.codecs.find(name);
    const ColumnCodec codec = exception != options.codecs.end() ? exception->second : is_bulk ? ColumnCodec::kNone : ColumnCodec::kZstd;
    if (codec == ColumnCodec::kZstd) {
      builder.compression(path, arrow::Compression::ZSTD)->compression_level(path, options.zstd_level);
    }
    if (is_bulk) {
      builder.disable_statistics(path);
    }
  }
  return builder.build();
}

Status check_schema(const arrow::Schema& schema, const ShardOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  for (const auto& [name, codec] : options.codecs) {
    if (schema.GetFieldIndex(name) < 0) {
      return Status::invalid_argument("a codec is given for a column that is not there (column):", name);
    }
  }
  for (const std::string& name : schema.field_names()) {
    if (schema.GetFieldIndex(name) < 0) {
      return Status::invalid_argument("two columns of a shard have one name (column):", name);
    }
  }
  return Status::ok();
}

/// Sets the content hash in the shard's own record and adds the place of the footer's hash.
std::shared_ptr<arrow::KeyValueMetadata> make_footer_pairs(KeyValues footer, const std::string& content_hash) {
  const auto has_shard_key = [](const auto& pair) { return pair.first == kShardKey; };
  if (std::none_of(footer.begin(), footer.end(), has_shard_key)) {
    footer.emplace_back(kShardKey, "{}");
  }
  auto pairs = std::make_shared<arrow::KeyValueMetadata>();
  for (auto& [key, value] : footer) {
    if (key == kShardKey) {
      auto record = parse_json<nlohmann::ordered_json>(value);
      DARKROOM_CHECK(record.is_object(), "the shard's record is not a JSON object:", value);
      record["content_hash"] = content_hash;
      value = record.dump();
    }
    pairs->Append(key, value);
  }
  pairs->Append(kFooterHashKey, unsealed_footer_hash());
  return pairs;
}

/// Fills in the footer's own hash; the bytes are Thrift, its length, "PAR1".
void seal_footer(std::string& footer) {
  constexpr size_t kTailBytes = 8;
  const std::string thrift = footer.substr(0, footer.size() - kTailBytes);
  const std::optional<size_t> position = find_footer_hash(thrift);
  DARKROOM_CHECK(position.has_value(), "the footer has no place for its hash");
  const std::string hash = hash_footer(thrift, *position);
  footer.replace(*position, hash.size(), hash);
}

}  // namespace

Status ShardOptions::validate() const {
  if (row_group_bytes <= 0) {
    return Status::invalid_argument("row_group_bytes must be positive:", row_group_bytes);
  }
  if (zstd_level < 1 || zstd_level > 22) {
    return Status::invalid_argument("zstd_level must be 1 to 22:", zstd_level);
  }
  return Status::ok();
}

struct ShardWriter::State {
  std::unique_ptr<Publication> publication;
  std::shared_ptr<arrow::Schema> schema;
  int64_t row_group_bytes = 0;
  std::shared_ptr<ShardStream> stream;  // Shared with Parquet's writer.
  std::unique_ptr<parquet::arrow::FileWriter> writer;
  std::vector<std::shared_ptr<arrow::RecordBatch>> pending;  // Rows of the row group that is being filled.
  int64_t pending_bytes = 0;
  int64_t num_rows = 0;
  bool is_spent = false;  // Finished, or an error came.

  std::string doing() const { return "writing " + publication->path(); }

  /// Joins what came in batches first: our bytes must not show how rows came in.
  arrow::Status write_columns() {
    ARROW_RETURN_NOT_OK(writer->NewRowGroup());
    for (int column = 0; column < schema->num_fields(); ++column) {
      arrow::ArrayVector parts;
      for (const auto& batch : pending) {
        parts.push_back(batch->column(column));
      }
      ARROW_ASSIGN_OR_RAISE(const std::shared_ptr<arrow::Array> whole, arrow::Concatenate(parts, table_pool()));
      ARROW_RETURN_NOT_OK(writer->WriteColumnChunk(cut_into_pieces(whole)));
    }
    return arrow::Status::OK();
  }

  Status flush() {
    if (pending.empty()) {
      return Status::ok();
    }
    DARKROOM_RETURN_IF_ARROW_ERROR(write_columns(), doing());
    pending.clear();
    pending_bytes = 0;
    return Status::ok();
  }

  Status append(const arrow::RecordBatch& batch) {
    std::vector<int64_t> sizes(static_cast<size_t>(batch.num_rows()));
    for (const auto& column : batch.columns()) {
      add_row_bytes(*column, sizes);
    }
    int64_t begin = 0;
    for (int64_t row = 0; row < batch.num_rows(); ++row) {
      pending_bytes += sizes[static_cast<size_t>(row)];
      if (pending_bytes >= row_group_bytes) {
        pending.push_back(batch.Slice(begin, row + 1 - begin));
        begin = row + 1;
        DARKROOM_RETURN_IF_ERROR(flush());
      }
    }
    if (begin < batch.num_rows()) {
      pending.push_back(batch.Slice(begin));
    }
    num_rows += batch.num_rows();
    return Status::ok();
  }

  Result<ShardRecord> finish(KeyValues footer, const std::function<Result<bool>()>& may_replace) {
    DARKROOM_RETURN_IF_ERROR(flush());
    ShardRecord record{.path = publication->path(), .content_hash = stream->begin_footer(), .num_rows = num_rows};
    DARKROOM_RETURN_IF_ARROW_ERROR(writer->AddKeyValueMetadata(make_footer_pairs(std::move(footer), record.content_hash)), doing());
    DARKROOM_RETURN_IF_ARROW_ERROR(writer->Close(), doing());
    seal_footer(stream->footer());
    DARKROOM_RETURN_IF_ERROR(publication->file().write_text(stream->footer()));
    record.num_bytes = stream->num_bytes();
    DARKROOM_ASSIGN_OR_RETURN(record.outcome, publication->publish(may_replace));
    return record;
  }
};

ShardWriter::ShardWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

ShardWriter::~ShardWriter() { state_->stream->abandon(); }

Result<std::unique_ptr<ShardWriter>> ShardWriter::open(FileSystem& files, const std::string& output_folder, const std::string& name,
                                                       std::shared_ptr<arrow::Schema> schema, const ShardOptions& options) {
  DARKROOM_RETURN_IF_ERROR(check_schema(*schema, options));
  DARKROOM_ASSIGN_OR_RETURN(auto properties, make_properties(*schema, options));
  auto state = std::make_unique<State>();
  DARKROOM_ASSIGN_OR_RETURN(state->publication, Publication::begin(files, output_folder, name));
  state->schema = std::move(schema);
  state->row_group_bytes = options.row_group_bytes;
  state->stream = std::make_shared<ShardStream>(state->publication->file());
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->set_use_threads(false)->build();
  auto writer = parquet::arrow::FileWriter::Open(*state->schema, table_pool(), state->stream, properties, arrow_properties);
  DARKROOM_RETURN_IF_ARROW_ERROR(writer.status(), state->doing());
  state->writer = *std::move(writer);
  return std::unique_ptr<ShardWriter>(new ShardWriter(std::move(state)));
}

int64_t ShardWriter::num_rows() const { return state_->num_rows; }

Status ShardWriter::write(const arrow::RecordBatch& batch) {
  DARKROOM_CHECK(!state_->is_spent, "a spent shard writer was used (path):", state_->publication->path());
  DARKROOM_CHECK(batch.schema()->Equals(*state_->schema, /*check_metadata=*/false),
                 "a batch has another schema than its shard (got):", batch.schema()->ToString());
  const Status status = state_->append(batch);
  state_->is_spent = !status.is_ok();
  return status;
}

Result<ShardRecord> ShardWriter::finish(KeyValues footer, const std::function<Result<bool>()>& may_replace) {
  DARKROOM_CHECK(!state_->is_spent, "a spent shard writer was used (path):", state_->publication->path());
  state_->is_spent = true;
  return state_->finish(std::move(footer), may_replace);
}

}  // namespace darkroom
