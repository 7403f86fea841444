#include "encoder_of_options.h"

#include <string>
#include <utility>

#include "darkroom/files/file_system.h"
#include "darkroom/files/local_copy.h"
#include "darkroom/process/latents_layout.h"
#include "darkroom/stores/model_copy.h"

namespace darkroom {
namespace {

/// Of the files of a model folder those that load_frozen_models may read: the U-Net, most of it, stays where it is.
bool is_frozen_part(const std::string& name) {
  const bool is_in_root = name.find('/') == std::string::npos;
  return is_in_root || name.starts_with("vae/") || name.starts_with("text_encoder/") || name.starts_with("tokenizer/");
}

}  // namespace

int batch_size_of(const ProcessOptions& options) {
  return options.batch_size > 0 ? options.batch_size : default_batch_size(options.transform.resolution, options.place.device);
}

torch::Dtype storage_dtype(const ProcessOptions& options) {
  return options.dtype.value_or(published_element(options.dialect) == TensorElement::kFloat32 ? torch::kFloat32 : torch::kFloat16);
}

bool go_together(const ProcessOptions& options) {
  return options.batching == Batching::kTogether || (options.batching == Batching::kAuto && !options.place.device.is_cpu());
}

Result<std::shared_ptr<const FrozenModels>> fetch_frozen_models(StoreSet& stores, const ProcessOptions& options, std::stop_token stop,
                                                                GpuTurn* gpu_turn) {
  DARKROOM_ASSIGN_OR_RETURN(const LocalCopy model, fetch_model_files(stores, options.model, is_frozen_part, std::move(stop)));
  const auto turn = take_turn(gpu_turn);
  return load_frozen_models(local_files(), model.path(), options.tokenizer_dialect, options.place);
}

Result<std::shared_ptr<const RowEncoder>> make_encoder(std::shared_ptr<const FrozenModels> models, const ProcessOptions& options) {
  RowEncoderOptions encoder;
  encoder.transform = options.transform;
  encoder.latents = options.latents;
  encoder.dtype = storage_dtype(options);
  encoder.with_states = options.text != TextKind::kTokens;
  encoder.seed = options.seed;
  encoder.rows_together = go_together(options) ? batch_size_of(options) : 1;
  return RowEncoder::create(std::move(models), encoder);
}

}  // namespace darkroom
