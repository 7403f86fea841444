#include "darkroom/tables/shard_writer.h"

#include <arrow/array/concatenate.h>
#include <arrow/io/interfaces.h>
#include <arrow/table.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include "column_layout.h"
#include "darkroom/core/sha256.h"
#include "darkroom/files/posix_store.h"
#include "darkroom/tables/arrow_files.h"
#include "row_bytes.h"
#include "shard_footer.h"

namespace darkroom {

namespace {

// Part of the bytes: a change of what we write for the same rows changes this name.
constexpr const char* kCreatedBy = "darkroom version 1.0.0";

/// Bytes before the footer go to the file and into the hash; the footer is held back until it is sealed.
class ShardStream final : public arrow::io::OutputStream {
 public:
  explicit ShardStream(PendingObject& object) : object_(object) {}

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
    return to_arrow(object_.write(bytes));
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

  PendingObject& object_;
  Sha256 sha256_;
  Stage stage_ = Stage::kContent;
  std::string footer_;
  int64_t num_bytes_ = 0;
  bool closed_ = false;
};

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
  std::unique_ptr<Store> own_store;  // Of a writer among the files of a file system.
  std::unique_ptr<PendingObject> object;
  std::shared_ptr<arrow::Schema> schema;
  int64_t row_group_bytes = 0;
  std::shared_ptr<ShardStream> stream;  // Shared with Parquet's writer.
  std::unique_ptr<parquet::arrow::FileWriter> writer;
  std::vector<std::shared_ptr<arrow::RecordBatch>> pending;  // Rows of the row group that is being filled.
  int64_t pending_bytes = 0;
  int64_t num_rows = 0;
  bool is_spent = false;  // Finished, or an error came.

  std::string doing() const { return "writing " + object->describe(); }

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

  Result<ShardRecord> finish(KeyValues footer) {
    DARKROOM_RETURN_IF_ERROR(flush());
    ShardRecord record{.path = object->describe(), .content_hash = stream->begin_footer(), .num_rows = num_rows};
    DARKROOM_RETURN_IF_ARROW_ERROR(writer->AddKeyValueMetadata(make_footer_pairs(std::move(footer), record.content_hash)), doing());
    DARKROOM_RETURN_IF_ARROW_ERROR(writer->Close(), doing());
    seal_footer(stream->footer());
    DARKROOM_RETURN_IF_ERROR(object->write_text(stream->footer()));
    record.num_bytes = stream->num_bytes();
    DARKROOM_ASSIGN_OR_RETURN(record.outcome, object->publish());
    return record;
  }
};

ShardWriter::ShardWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}

ShardWriter::~ShardWriter() { state_->stream->abandon(); }

Result<std::unique_ptr<ShardWriter>> ShardWriter::open(const Location& output_folder, const std::string& name,
                                                       std::shared_ptr<arrow::Schema> schema, const ShardOptions& options) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  DARKROOM_RETURN_IF_ERROR(check_columns(*schema, options.codecs));
  DARKROOM_ASSIGN_OR_RETURN(auto properties, make_shard_properties(*schema, options.codecs, options.zstd_level, kCreatedBy));
  auto state = std::make_unique<State>();
  DARKROOM_ASSIGN_OR_RETURN(state->object, output_folder.store->begin_object(output_folder.path, name));
  state->schema = std::move(schema);
  state->row_group_bytes = options.row_group_bytes;
  state->stream = std::make_shared<ShardStream>(*state->object);
  const auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->set_use_threads(false)->build();
  auto writer = parquet::arrow::FileWriter::Open(*state->schema, table_pool(), state->stream, properties, arrow_properties);
  DARKROOM_RETURN_IF_ARROW_ERROR(writer.status(), state->doing());
  state->writer = *std::move(writer);
  return std::unique_ptr<ShardWriter>(new ShardWriter(std::move(state)));
}

Result<std::unique_ptr<ShardWriter>> ShardWriter::open(FileSystem& files, const std::string& output_folder, const std::string& name,
                                                       std::shared_ptr<arrow::Schema> schema, const ShardOptions& options) {
  std::unique_ptr<Store> store = make_posix_store(files, "file");
  DARKROOM_ASSIGN_OR_RETURN(std::unique_ptr<ShardWriter> writer,
                            open({.store = store.get(), .path = output_folder}, name, std::move(schema), options));
  writer->state_->own_store = std::move(store);
  return writer;
}

int64_t ShardWriter::num_rows() const { return state_->num_rows; }

Status ShardWriter::write(const arrow::RecordBatch& batch) {
  DARKROOM_CHECK(!state_->is_spent, "a spent shard writer was used (path):", state_->object->describe());
  DARKROOM_CHECK(batch.schema()->Equals(*state_->schema, /*check_metadata=*/false),
                 "a batch has another schema than its shard (got):", batch.schema()->ToString());
  const Status status = state_->append(batch);
  state_->is_spent = !status.is_ok();
  return status;
}

Result<ShardRecord> ShardWriter::finish(KeyValues footer) {
  DARKROOM_CHECK(!state_->is_spent, "a spent shard writer was used (path):", state_->object->describe());
  state_->is_spent = true;
  return state_->finish(std::move(footer));
}

}  // namespace darkroom
