#include "process_stages.h"

#include <algorithm>
#include <vector>

namespace darkroom {
namespace {

size_t held_bytes(const ProcessBatch& batch, size_t bytes_per_row) {
  size_t size_bytes = batch.kept_bytes;
  for (const PreparedRow& row : batch.prepared) {
    size_bytes += row.caption.size() + bytes_per_row;
  }
  return size_bytes;
}

}  // namespace

Status TransformStage::prepare(ProcessBatch& batch, const std::stop_token& stop) const {
  int64_t position = batch.first_position;
  for (ImageRow& row : batch.rows) {
    if (stop.stop_requested()) {
      return Status::cancelled("stopped before a picture was transformed");
    }
    DARKROOM_ASSIGN_OR_RETURN(RowResult<PreparedRow> prepared, prepare_row(row, how_, tokenizer_, *decoder_));
    std::string().swap(row.image);  // An assignment would keep the buffer.
    if (prepared.is_ok()) {
      batch.tally.num_unported_captions += prepared->unported == Unported::kNothing ? 0 : 1;
      batch.prepared.push_back(std::move(prepared).value());
      batch.positions.push_back(position);
    } else {
      batch.count_failed(prepared.error().name(), position);
    }
    ++position;
  }
  batch.rows.clear();
  return Status::ok();
}

Status TransformStage::process(ProcessPiece piece, Emitter<ProcessPiece>& out) {
  ProcessBatch& batch = piece.body;
  int64_t num_bytes = 0;
  for (const ImageRow& row : batch.rows) {
    num_bytes += static_cast<int64_t>(row.image.size());
  }
  TraceSpan span(piece.item->trace.for_piece(piece.position), "transform", piece.item->trace.context);
  span.set("darkroom.batch", piece.position);
  span.set("darkroom.rows", batch.tally.rows_in);
  DARKROOM_RETURN_IF_ERROR(prepare(batch, out.stop()));
  span.end();
  out.count(batch.tally.rows_in, num_bytes);
  piece.intake.set_held(held_bytes(batch, row_bytes_.prepared + row_bytes_.encoded));
  return out.emit(std::move(piece));
}

EncodeStage::EncodeStage(const ProcessEncoder& encoder, RowBytes row_bytes) : encoder_(encoder), row_bytes_(row_bytes) {
  encoder_.begin_worker();
}

Status EncodeStage::process(ProcessPiece piece, Emitter<ProcessPiece>& out) {
  ProcessBatch& batch = piece.body;
  TraceSpan span(piece.item->trace.for_piece(piece.position), "encode", piece.item->trace.context);
  span.set("darkroom.batch", piece.position);
  span.set("darkroom.rows", static_cast<int64_t>(batch.prepared.size()));
  if (!batch.prepared.empty()) {
    batch.encoded = encoder_.encode(batch.prepared, out.stop());
  }
  span.end();
  if (out.stop().stop_requested()) {
    return Status::cancelled("stopped while encoding");
  }
  for (PreparedRow& row : batch.prepared) {
    row.square = Image();
  }
  const std::vector<uint8_t>& is_finite = batch.encoded.is_finite;
  batch.tally.rows_out = std::count(is_finite.begin(), is_finite.end(), 1);
  for (size_t i = 0; i < is_finite.size(); ++i) {
    if (is_finite[i] == 0) {
      batch.count_failed(RowError{.code = RowErrorCode::kNanLatents}.name(), batch.positions[i]);
    }
  }
  out.count(static_cast<int64_t>(batch.prepared.size()), 0);
  piece.intake.set_held(held_bytes(batch, row_bytes_.encoded));
  return out.emit(std::move(piece));
}

}  // namespace darkroom
