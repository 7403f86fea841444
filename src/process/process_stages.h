#pragma once

#include <memory>
#include <stop_token>
#include <utility>

#include "darkroom/image/picture_decoder.h"
#include "darkroom/process/process_batch.h"
#include "darkroom/process/process_encoder.h"
#include "darkroom/stream/pipeline.h"

namespace darkroom {

using ProcessStage = Stage<ProcessPiece, ProcessPiece>;

/// Of the CPU pool: decodes, transforms and tokenises.
class TransformStage : public ProcessStage {
 public:
  /// `tokenizer` outlives the stage; `decoder` was made by this worker.
  TransformStage(const RowTransform& how, const ClipTokenizer& tokenizer, std::unique_ptr<PictureDecoder> decoder, RowBytes row_bytes)
      : how_(how), tokenizer_(tokenizer), decoder_(std::move(decoder)), row_bytes_(row_bytes) {}
  Status process(ProcessPiece piece, Emitter<ProcessPiece>& out) override;

 private:
  Status prepare(ProcessBatch& batch, const std::stop_token& stop) const;

  const RowTransform how_;
  const ClipTokenizer& tokenizer_;
  const std::unique_ptr<PictureDecoder> decoder_;
  const RowBytes row_bytes_;
};

/// Of the encoder pool: runs the networks. Made on its worker's thread.
class EncodeStage : public ProcessStage {
 public:
  /// `encoder` outlives the stage.
  EncodeStage(const ProcessEncoder& encoder, RowBytes row_bytes);
  Status process(ProcessPiece piece, Emitter<ProcessPiece>& out) override;

 private:
  const ProcessEncoder& encoder_;
  const RowBytes row_bytes_;
};

}  // namespace darkroom
