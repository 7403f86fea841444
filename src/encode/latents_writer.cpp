#include "latents_writer.h"

#include <arrow/buffer.h>
#include <arrow/builder.h>

#include <utility>

#include "darkroom/tables/arrow_files.h"
#include "good_rows.h"

namespace darkroom {
namespace {

// Columns that are carried along may be large: then a row group ends sooner.
constexpr int64_t kLatentsGroupBytes = 256 << 20;

Status build_failure(const arrow::Status& status) {
  return from_arrow(status, "building a latents column", StatusCode::kResourceExhausted);
}

/// A tensor's memory as Arrow sees it; keeps the tensor alive.
class TensorBuffer : public arrow::Buffer {
 public:
  /// REQUIRES: contiguous, on the CPU.
  explicit TensorBuffer(torch::Tensor tensor)
      : Buffer(static_cast<const uint8_t*>(tensor.const_data_ptr()), static_cast<int64_t>(tensor.nbytes())), tensor_(std::move(tensor)) {}

 private:
  const torch::Tensor tensor_;
};

Result<std::shared_ptr<arrow::Array>> build_ids(const torch::Tensor& ids_bt, LatentsDialect dialect) {
  auto values = std::make_shared<arrow::UInt16Builder>();
  arrow::FixedSizeListBuilder lists(arrow::default_memory_pool(), values, ids_type(dialect));
  const int64_t* id = ids_bt.const_data_ptr<int64_t>();
  arrow::Status status;
  for (int64_t row = 0; row < ids_bt.size(0); ++row) {
    status &= lists.Append();
    for (int token = 0; token < ClipTokenizer::kContextLength; ++token) {
      status &= values->Append(static_cast<uint16_t>(*id++));
    }
  }
  auto array = lists.Finish();
  status &= array.status();
  if (!status.ok()) {
    return build_failure(status);
  }
  return *array;
}

/// key, caption, width and height of the rows chosen.
Result<arrow::ArrayVector> build_text_columns(const std::vector<PreparedRow>& rows, const std::vector<int64_t>& chosen) {
  arrow::StringBuilder keys, captions;
  arrow::Int32Builder widths, heights;
  arrow::Status status;
  for (const int64_t i : chosen) {
    const PreparedRow& row = rows[static_cast<size_t>(i)];
    status &= keys.Append(row.key);
    status &= captions.Append(row.caption);
    status &= widths.Append(row.width);
    status &= heights.Append(row.height);
  }
  arrow::ArrayVector columns(4);
  status &= keys.Finish(&columns[0]);
  status &= captions.Finish(&columns[1]);
  status &= widths.Finish(&columns[2]);
  status &= heights.Finish(&columns[3]);
  if (!status.ok()) {
    return build_failure(status);
  }
  return columns;
}

}  // namespace

Result<std::unique_ptr<LatentsWriter>> LatentsWriter::open(JobRun& run, const WorkItem& work, const LatentsLayout& layout) {
  std::unique_ptr<LatentsWriter> writer(new LatentsWriter(run, work, layout));
  const Location& output = run.output();
  DARKROOM_ASSIGN_OR_RETURN(auto object, output.store->begin_object(output.path, work.part_name()));
  const PagedShardOptions options{.row_group_bytes = kLatentsGroupBytes, .row_group_rows = kLatentsGroupRows};
  DARKROOM_ASSIGN_OR_RETURN(writer->shard_, PagedShardWriter::open(std::move(object), writer->schema_, options));
  return writer;
}

Status LatentsWriter::add(int64_t /*position*/, ProcessBatch batch) {
  tally_.add(batch.tally);
  run_.count_rows(batch.tally.rows_in, batch.tally.rows_by_error);
  return write_rows(batch);
}

Status LatentsWriter::write_rows(const ProcessBatch& batch) {
  const GoodRowsOfBatch good(batch.encoded);
  if (good.size() == 0) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(arrow::ArrayVector columns, build_text_columns(batch.prepared, good.numbers()));
  const auto wrap = [&](const std::vector<int64_t>& shape, const torch::Tensor& rows) {
    return wrap_tensors(layout_.form(), layout_.element, shape, std::make_shared<TensorBuffer>(good.of(rows)));
  };
  DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), wrap(layout_.latents_shape, batch.encoded.latents_nchw));
  if (layout_.has_states()) {
    DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), wrap(layout_.states_shape, batch.encoded.states_btc));
  }
  if (layout_.has_ids()) {
    DARKROOM_ASSIGN_OR_RETURN(columns.emplace_back(), build_ids(good.of(batch.encoded.ids_bt), layout_.dialect));
  }
  if (!layout_.kept.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(arrow::ArrayVector copied, copy_kept(layout_.kept, kept_of(batch, good)));
    DARKROOM_ASSIGN_OR_RETURN(copied, store_kept(layout_, std::move(copied)));
    columns.insert(columns.end(), copied.begin(), copied.end());
  }
  return shard_->write(*arrow::RecordBatch::Make(schema_, good.size(), std::move(columns)));
}

Result<std::unique_ptr<FinishedItem>> LatentsWriter::finish() {
  DARKROOM_ASSIGN_OR_RETURN(FinishedShard shard, shard_->finish(run_.plan().footer_of(work_, tally_, layout_.footer_pairs())));
  return std::unique_ptr<FinishedItem>(std::make_unique<FinishedPart>(std::move(shard), std::move(tally_)));
}

}  // namespace darkroom
