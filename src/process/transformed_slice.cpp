#include "transformed_slice.h"

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/writer.h>
#include <arrow/util/byte_size.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/core/version.h"
#include "darkroom/process/arrived_batch.h"
#include "darkroom/process/latents_layout.h"
#include "darkroom/process/squares_batch.h"
#include "darkroom/tables/arrow_files.h"

namespace darkroom {
namespace {

constexpr const char* kWords = "darkroom.transformed";
constexpr const char* kSlice = "a slice of transformed rows";
constexpr int kOwnColumns = 5;  // Of a batch of squares; behind them are those that are carried along.

std::string hash_of(const std::vector<JobInput>& inputs) {
  Sha256 sha;
  for (const JobInput& input : inputs) {
    nlohmann::json line = {{"bytes", input.size_bytes}, {"tail_sha256", input.tail_sha256}, {"rows", input.num_rows}};
    set_file_name(line, input.name);
    sha.update(canonical_text(line));
  }
  return sha.finish_hex();
}

Status broken(std::string_view what, int64_t value) {
  return Status::corrupt_data(fmt::format("{} says what cannot be ({}):", kSlice, what), value);
}

template <typename T>
Result<T> taken(arrow::Result<T> result) {
  if (!result.ok()) {
    return from_arrow(result.status(), kSlice);
  }
  return std::move(result).ValueUnsafe();
}

Result<nlohmann::json> words_of(const arrow::Schema& schema) {
  const int at = schema.metadata() == nullptr ? -1 : schema.metadata()->FindKey(kWords);
  nlohmann::json words =
      at < 0 ? nlohmann::json() : nlohmann::json::parse(schema.metadata()->value(at), nullptr, /*allow_exceptions=*/false);
  if (!words.is_object()) {
    return Status::corrupt_data("a slice of transformed rows does not say what failed, columns:", schema.num_fields());
  }
  return words;
}

Result<int64_t> count_in(const nlohmann::json& words, const char* name) {
  const auto found = words.find(name);
  if (found == words.end() || !found->is_number_unsigned() || found->get<uint64_t>() > (uint64_t{1} << 62)) {
    return Status::corrupt_data("a slice of transformed rows lacks a count:", name);
  }
  return found->get<int64_t>();
}

}  // namespace

nlohmann::json transform_facts(const std::vector<JobInput>& inputs, const RowTransform& transform, const std::string& caption_column,
                               const std::vector<std::string>& keep_columns) {
  nlohmann::json facts = {{"transform", describe_transform(transform.transform)},
                          {"version", kVersion},
                          {"caption column", caption_column.empty() ? "auto" : caption_column},
                          {"kept columns", keep_columns},
                          {"image dataset", hash_of(inputs)}};
  if (transform.transform.crop == Crop::kRandom) {
    facts["seed"] = transform.seed;
  }
  return facts;
}

Result<std::string> write_transformed_slice(int resolution, const arrow::FieldVector& kept, const ProcessBatch& rows,
                                            int64_t picture_bytes) {
  DARKROOM_ASSIGN_OR_RETURN(auto batch, make_squares_batch(resolution, kept, rows));
  const nlohmann::json words = {{"failed", rows.tally.failed_rows},
                                {"invalid_captions", static_cast<uint64_t>(rows.tally.num_invalid_captions)},
                                {"picture_bytes", static_cast<uint64_t>(picture_bytes)}};
  batch = batch->ReplaceSchemaMetadata(arrow::key_value_metadata({kWords}, {words.dump()}));
  DARKROOM_ASSIGN_OR_RETURN(const auto sink, taken(arrow::io::BufferOutputStream::Create(int64_t{1} << 16, table_pool())));
  arrow::ipc::IpcWriteOptions options = arrow::ipc::IpcWriteOptions::Defaults();
  options.memory_pool = table_pool();
  options.use_threads = false;
  DARKROOM_ASSIGN_OR_RETURN(const auto writer, taken(arrow::ipc::MakeStreamWriter(sink, batch->schema(), options)));
  DARKROOM_RETURN_IF_ARROW_ERROR(writer->WriteRecordBatch(*batch), kSlice);
  DARKROOM_RETURN_IF_ARROW_ERROR(writer->Close(), kSlice);
  DARKROOM_ASSIGN_OR_RETURN(const auto bytes, taken(sink->Finish()));
  return bytes->ToString();
}

Status TransformedSlice::read_words(const nlohmann::json& words, int64_t num_rows) {
  DARKROOM_ASSIGN_OR_RETURN(num_invalid_captions_, count_in(words, "invalid_captions"));
  DARKROOM_ASSIGN_OR_RETURN(picture_bytes_, count_in(words, "picture_bytes"));
  const auto failed = words.find("failed");
  if (failed == words.end() || !failed->is_object() || num_invalid_captions_ > num_rows) {
    return broken("invalid captions", num_invalid_captions_);
  }
  for (const auto& [code, positions] : failed->items()) {
    for (const auto& position : positions) {
      if (!position.is_number_unsigned() || position.get<uint64_t>() >= static_cast<uint64_t>(num_rows)) {
        return Status::corrupt_data("a slice of transformed rows says that another one's row failed:", code);
      }
      failed_.emplace(position.get<int64_t>(), code);
    }
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    if (!failed_.contains(row)) {
      positions_.push_back(row);
    }
  }
  const auto num_good = static_cast<int64_t>(positions_.size());
  return num_good == squares_->num_rows() ? Status::ok() : broken("rows", squares_->num_rows());
}

Result<TransformedSlice> TransformedSlice::read(const std::string& bytes, int64_t num_rows, int resolution, size_t num_kept_columns) {
  DARKROOM_ASSIGN_OR_RETURN(auto batch, read_arrived_batch(bytes, kSlice));
  if (batch->num_columns() != kOwnColumns + static_cast<int>(num_kept_columns)) {
    return broken("columns", batch->num_columns());
  }
  DARKROOM_ASSIGN_OR_RETURN(SquareRows rows, SquareRows::open(*batch, resolution));
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json words, words_of(*batch->schema()));
  TransformedSlice slice(std::move(rows), batch);
  slice.num_bytes_ = static_cast<int64_t>(bytes.size());
  DARKROOM_RETURN_IF_ERROR(slice.read_words(words, num_rows));
  for (int64_t row = 0; row < slice.rows_.num_rows(); ++row) {
    if (const auto error = slice.rows_.error_of(row)) {
      return Status::corrupt_data("a slice of transformed rows holds a row that failed:", error->name());
    }
  }
  if (num_kept_columns > 0) {
    arrow::FieldVector fields(batch->schema()->fields().begin() + kOwnColumns, batch->schema()->fields().end());
    arrow::ArrayVector columns(batch->columns().begin() + kOwnColumns, batch->columns().end());
    const std::shared_ptr<const arrow::RecordBatch> views =
        arrow::RecordBatch::Make(arrow::schema(fields), batch->num_rows(), std::move(columns));
    std::vector<KeptRow> all;
    for (int64_t row = 0; row < views->num_rows(); ++row) {
      all.push_back({.columns = views, .row = row});
    }
    // Copies: these wait for their row to be written, and must not keep its pixels until then.
    DARKROOM_ASSIGN_OR_RETURN(arrow::ArrayVector own, copy_kept(fields, all));
    slice.kept_ = arrow::RecordBatch::Make(arrow::schema(std::move(fields)), batch->num_rows(), std::move(own));
    const auto num_bytes = arrow::util::ReferencedBufferSize(*slice.kept_);
    slice.kept_bytes_of_row_ = num_bytes.ok() && batch->num_rows() > 0 ? static_cast<size_t>(*num_bytes / batch->num_rows()) : 0;
  }
  return slice;
}

ProcessBatch TransformedSlice::batch(int64_t first, int64_t count, int64_t first_position) const {
  ProcessBatch batch{.first_position = first_position};
  batch.tally.rows_in = count;
  batch.kept.resize(kept_ == nullptr ? 0 : static_cast<size_t>(count));
  for (auto failed = failed_.lower_bound(first); failed != failed_.end() && failed->first < first + count; ++failed) {
    batch.count_failed(failed->second, first_position + failed->first - first);
  }
  const auto begin = std::ranges::lower_bound(positions_, first);
  for (auto good = begin; good != positions_.end() && *good < first + count; ++good) {
    const int64_t row = good - positions_.begin();
    batch.prepared.push_back(rows_.at(row).value());
    batch.positions.push_back(first_position + *good - first);
    if (kept_ != nullptr) {
      batch.kept[static_cast<size_t>(*good - first)] = {.columns = kept_, .row = row};
      batch.kept_bytes += kept_bytes_of_row_;
    }
  }
  return batch;
}

}  // namespace darkroom
