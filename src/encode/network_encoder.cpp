#include "network_encoder.h"

#include <utility>

#include "darkroom/ingest/job_run.h"
#include "darkroom/process/latents_layout.h"
#include "empty_caption.h"
#include "encoder_of_options.h"
#include "process_picture.h"
#include "tried_encoder.h"

namespace darkroom {
namespace {

EncoderFacts facts_of(const RowEncoder& encoder, const ProcessOptions& options) {
  const FrozenModels& models = encoder.models();
  return {.vae_fingerprint = models.vae_fingerprint,
          .text_encoder_fingerprint = models.text_encoder_fingerprint,
          .scaling_factor = models.vae->config().scaling_factor,
          .latents_shape = encoder.latents_shape(),
          .states_shape = encoder.states_shape(),
          .element = encoder.options().dtype == torch::kFloat16 ? TensorElement::kFloat16 : TensorElement::kFloat32,
          .device = options.place.device.str(),
          .device_class = options.place.device_class(),
          .compute_type = std::string(float_type_name(options.place.type)),
          .takes_rows_together = go_together(options)};
}

/// The tensor's own memory. REQUIRES: contiguous, on the CPU, a row or more.
RowTensors bytes_of(const torch::Tensor& rows) {
  return {.bytes = {static_cast<const std::byte*>(rows.const_data_ptr()), rows.nbytes()},
          .row_bytes = rows.nbytes() / static_cast<size_t>(rows.size(0)),
          .owner = std::make_shared<const torch::Tensor>(rows)};
}

}  // namespace

NetworkEncoder::NetworkEncoder(std::shared_ptr<const RowEncoder> encoder, const ProcessOptions& options)
    : encoder_(std::move(encoder)), options_(options), facts_(facts_of(*encoder_, options)) {}

void NetworkEncoder::begin_worker() const { at::set_num_threads(options_.encoder_threads); }

StoredRows NetworkEncoder::encode(std::span<const PreparedRow> rows, const std::stop_token& stop) const {
  EncodedRows encoded = encoder_->encode(rows, stop);
  return {.latents = bytes_of(encoded.latents_nchw),
          .states = encoded.states_btc.defined() ? bytes_of(encoded.states_btc) : RowTensors(),
          .is_finite = std::move(encoded.is_finite)};
}

Result<std::string> NetworkEncoder::publish_empty_caption(const Location& output) const {
  return darkroom::publish_empty_caption(*encoder_, options_.encoder_threads, output);
}

Result<TriedEncoder> NetworkEncoder::try_out() const { return try_encoder(*encoder_, options_.encoder_threads); }

Status NetworkEncoder::paint_samples(const JobRun& run, const Location& picture) const {
  return write_process_picture(run, *encoder_, options_, make_layout(*this, options_, "", {}), picture);
}

}  // namespace darkroom
