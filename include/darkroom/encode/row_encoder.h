#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/core/row_error.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/picture_decoder.h"
#include "darkroom/image/transform.h"
#include "darkroom/nn/clip_text.h"
#include "darkroom/nn/placement.h"
#include "darkroom/nn/vae.h"
#include "darkroom/process/latents_dialect.h"
#include "darkroom/process/transform_row.h"
#include "darkroom/text/clip_tokenizer.h"

namespace darkroom {

/// The parts of a model folder that training never changes: what turns pictures into latents and captions into states.
/// Immutable once loaded; shared read-only by every encoder worker and the job that loaded it.
struct FrozenModels {
  AutoencoderKL vae{nullptr};
  ClipTextModel text_encoder{nullptr};
  std::unique_ptr<ClipTokenizer> tokenizer;
  std::string vae_fingerprint;
  std::string text_encoder_fingerprint;
};

/// Loads the VAE, the text encoder and the tokenizer; the networks go to `place`, their fingerprints are those of the float32 weights.
/// Errors: kNotFound (folder or part), kFailedPrecondition (another model's config, or a tokenizer whose ids the text encoder does not
/// have), kCorruptData.
Result<std::shared_ptr<const FrozenModels>> load_frozen_models(FileSystem& files, const std::string& model_folder, TokenizerDialect dialect,
                                                               const NetworkPlace& place = {});

/// Everything besides the models that decides a row's encoded values.
struct RowEncoderOptions {
  TransformOptions transform;
  LatentsKind latents = LatentsKind::kSample;
  torch::Dtype dtype = torch::kFloat16;  ///< Of the results: kFloat16 or kFloat32. The networks compute in their own type.
  bool with_states = true;               ///< Run the text encoder.
  /// Rows that the networks take in one call, always as many: what lacks is filled up with blank rows, because libraries choose their
  /// kernels by the shape. 1: a row alone.
  int rows_together = 1;
  uint64_t seed = 0;                                  ///< Of the posterior draw and the random crop.
  uint32_t epoch = 0;                                 ///< The process job always draws epoch 0.
  Status validate(const FrozenModels& models) const;  ///< kInvalidArgument naming the first bad field.
};

/// A batch after the encoders, in the order of its rows, on the CPU, contiguous.
struct EncodedRows {
  torch::Tensor latents_nchw;      ///< options.dtype [N, C, R/f, R/f], or [N, 2C, R/f, R/f] for moments.
  torch::Tensor states_btc;        ///< options.dtype [N, T, W]; undefined without states.
  torch::Tensor ids_bt;            ///< int64 [N, T].
  std::vector<uint8_t> is_finite;  ///< 0: the row's latents or states hold a NaN or an infinity (nan_latents).
};

/// The one code path from an image row to what training eats: the process job (offline) and the online source both use it.
/// Pixels stay bytes until the networks take them: encode() normalises. It works where the models lie and in their type; the posterior draw
/// is float32 in any case.
/// With rows_together 1 every row runs through the networks alone, so its bits depend on nothing but the row, the options, the models,
/// where they lie and the number of intra-op threads: not on the batch it came in. Hence online and offline training see equal bits.
/// Thread safety: const methods may run in many threads at once; on a GPU one of them asks for its work at a time, so that it holds the
/// networks' intermediate values once. The caller sets at::set_num_threads in its worker. A GPU without memory for the networks' work is
/// GpuMemoryUsedUp (core/used_up_memory.h).
class RowEncoder {
 public:
  /// Errors: those of RowEncoderOptions::validate.
  static Result<std::shared_ptr<const RowEncoder>> create(std::shared_ptr<const FrozenModels> models, const RowEncoderOptions& options);

  /// prepare_row with these options and models.
  Result<RowResult<PreparedRow>> prepare(const ImageRow& row, PictureDecoder& decoder) const;
  /// Runs the encoders over the rows; what comes out after a stop is not whole. REQUIRES: rows not empty, made by prepare() of an encoder
  /// with the same options.
  EncodedRows encode(std::span<const PreparedRow> rows, const std::stop_token& stop = {}) const;
  /// The states of the empty caption, options.dtype [T, W]: what caption dropout puts in place of a caption.
  torch::Tensor empty_caption_states() const;

  const RowEncoderOptions& options() const { return options_; }
  const FrozenModels& models() const { return *models_; }
  /// Where the pictures are encoded.
  const NetworkPlace& place() const { return vae_place_; }
  /// Latent shape of one row: {C or 2C, R/f, R/f}.
  std::vector<int64_t> latents_shape() const;
  /// Shape of one caption's states: {T, W}.
  std::vector<int64_t> states_shape() const;

 private:
  RowEncoder(std::shared_ptr<const FrozenModels> models, const RowEncoderOptions& options);

  void encode_part(std::span<const PreparedRow> rows, int64_t first, const torch::Tensor& is_finite_n, EncodedRows& encoded) const;
  torch::Tensor encode_images(std::span<const PreparedRow> rows) const;
  torch::Tensor load_images(std::span<const PreparedRow> rows) const;
  torch::Tensor encode_ids(const torch::Tensor& ids_bt) const;

  std::shared_ptr<const FrozenModels> models_;  // Shared by the workers' encoders and their owner.
  RowEncoderOptions options_;
  NetworkPlace vae_place_, text_place_;
  torch::Tensor pixel_values_;  // What the 256 values of a byte become for the VAE, where it lies; of a GPU alone.
  mutable std::mutex issuing_;  // Held while work is asked of a GPU.
};

}  // namespace darkroom
