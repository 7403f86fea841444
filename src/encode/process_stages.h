#pragma once

#include <memory>
#include <stop_token>
#include <utility>

#include "darkroom/encode/row_encoder.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/stream/pipeline.h"
#include "process_batch.h"

namespace darkroom {

using ProcessStage = Stage<ProcessPiece, ProcessPiece>;

/// Of the CPU pool: decodes, transforms and tokenises.
class TransformStage : public ProcessStage {
 public:
  /// `encoder` outlives the stage; `decoder` was made by this worker.
  TransformStage(const RowEncoder& encoder, std::unique_ptr<PictureDecoder> decoder, RowBytes row_bytes)
      : encoder_(encoder), decoder_(std::move(decoder)), row_bytes_(row_bytes) {}
  Status process(ProcessPiece piece, Emitter<ProcessPiece>& out) override;

 private:
  Status prepare(ProcessBatch& batch, const std::stop_token& stop) const;

  const RowEncoder& encoder_;
  const std::unique_ptr<PictureDecoder> decoder_;
  const RowBytes row_bytes_;
};

/// Of the encoder pool: normalises and runs the networks. Sets the worker's number of intra-op threads, which is part of the bits.
class EncodeStage : public ProcessStage {
 public:
  /// `encoder` outlives the stage.
  EncodeStage(const RowEncoder& encoder, int num_threads, RowBytes row_bytes);
  Status process(ProcessPiece piece, Emitter<ProcessPiece>& out) override;

 private:
  const RowEncoder& encoder_;
  const RowBytes row_bytes_;
};

}  // namespace darkroom
