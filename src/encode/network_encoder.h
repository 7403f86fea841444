#pragma once

#include <memory>

#include "darkroom/encode/process_job.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/process/process_encoder.h"

namespace darkroom {

/// A RowEncoder as the process job takes it.
class NetworkEncoder : public ProcessEncoder {
 public:
  /// REQUIRES: made by make_encoder of these options.
  NetworkEncoder(std::shared_ptr<const RowEncoder> encoder, const ProcessOptions& options);

  const EncoderFacts& facts() const override { return facts_; }
  const ClipTokenizer& tokenizer() const override { return *encoder_->models().tokenizer; }
  /// Sets the thread's intra-op threads.
  void begin_worker() const override;
  StoredRows encode(std::span<const PreparedRow> rows, const std::stop_token& stop) const override;
  Result<std::string> publish_empty_caption(const Location& output) const override;
  Result<TriedEncoder> try_out() const override;
  Status paint_samples(const JobRun& run, const Location& picture) const override;

 private:
  const std::shared_ptr<const RowEncoder> encoder_;  // Shared with whoever asks it for more than the job does.
  const ProcessOptions options_;
  const EncoderFacts facts_;
};

}  // namespace darkroom
