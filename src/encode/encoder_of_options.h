#pragma once

#include <memory>
#include <stop_token>

#include "darkroom/core/result.h"
#include "darkroom/encode/process_job.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/stores/stores.h"
#include "darkroom/tensor/gpu_turn.h"

namespace darkroom {

/// options.batch_size, or the default where that is 0.
int batch_size_of(const ProcessOptions& options);

/// The storage type: what was asked for, else the one that the dialect was published with.
torch::Dtype storage_dtype(const ProcessOptions& options);

/// Whether the networks take a batch in one call.
bool go_together(const ProcessOptions& options);

/// The models that options.model names in any store, where options.place is; of a remote one only the frozen parts are fetched. Errors:
/// fetch_model_files', load_frozen_models'. `gpu_turn`, unless null, is held while they are loaded, and not while they are fetched.
Result<std::shared_ptr<const FrozenModels>> fetch_frozen_models(StoreSet& stores, const ProcessOptions& options, std::stop_token stop,
                                                                GpuTurn* gpu_turn = nullptr);

/// The encoder of a job with these options. Errors: RowEncoder::create's.
Result<std::shared_ptr<const RowEncoder>> make_encoder(std::shared_ptr<const FrozenModels> models, const ProcessOptions& options);

}  // namespace darkroom
