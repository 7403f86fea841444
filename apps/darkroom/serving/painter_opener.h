#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stop_token>
#include <string>

#include "darkroom/serve/model_shelf.h"
#include "opening/remote_models.h"
#include "painting/painter_flags.h"
#include "serving/painter_engine.h"

namespace darkroom {

/// Loads models as the server's shelf asks it, each the way in which `darkroom sample` would.
class ServedPainters final : public ModelOpener {
 public:
  /// `queue_cost`: of every model's orders; 0: 32 pictures of its own size.
  /// `lost`: PainterEngine's.
  ServedPainters(PainterFlags flags, int threads, double queue_cost, DeviceLost lost = {});

  /// Bytes of the weights in the types in which they compute. Errors: those of fetch_source and find_model.
  Result<int64_t> measure(const ModelEntry& model, const std::stop_token& stop) override;
  /// The folder of the autoencoder, as load_vae() takes it. Errors: as measure().
  Result<std::string> vae_folder(const ModelEntry& model, const std::stop_token& stop);
  Result<ServedModel> open(const ModelEntry& model, const std::stop_token& stop) override;

 private:
  Result<PainterSource> local_source(const ModelEntry& model, const std::stop_token& stop);

  const PainterFlags flags_;
  const int threads_;
  const double queue_cost_;
  const DeviceLost lost_;
  // A GPU does one thing at a time; shared with the engines.
  const std::shared_ptr<GpuTurn> gpu_turn_ = std::make_shared<GpuTurn>();
  std::map<std::string, PainterSource> sources_;  // By address.
  std::map<std::string, SourceCopies> copies_;    // Of remote ones, as long as the server runs.
};

/// What models may take where nothing else is asked for: three quarters of the memory of the GPU that they are placed on, or of what this
/// process may use. Errors: those of find_network_place.
Result<int64_t> usual_model_memory(const PainterFlags& flags);

}  // namespace darkroom
