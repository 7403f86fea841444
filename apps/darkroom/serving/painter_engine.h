#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/paint/painter.h"
#include "darkroom/serve/step_engine.h"
#include "darkroom/tensor/gpu_turn.h"
#include "darkroom/tensor/lost_device.h"

namespace darkroom {

/// A painter as the server's batcher asks it. Sets OpenMP's number of threads where it is asked, because that is each thread's own; it
/// changes a picture's last bits.
class PainterEngine final : public StepEngine {
 public:
  /// A model whose own scheduler is not built is painted with another one, which the log names. Errors: kFailedPrecondition where no
  /// sampler takes the model.
  /// `gpu_turn` is held while the engine works or goes, so that engines of one GPU take turns; null: it need not. `lost` is told
  /// of a GPU that is.
  static Result<std::unique_ptr<PainterEngine>> create(std::unique_ptr<Painter> painter, int threads,
                                                       std::shared_ptr<GpuTurn> gpu_turn = nullptr, DeviceLost lost = {});
  ~PainterEngine() override;

  Status check(const PictureSpec& spec) const override;
  UnreadTexts unread(const PictureSpec& spec) const override;
  Result<std::unique_ptr<EnginePicture>> begin(const PictureSpec& spec) override;
  void step(std::span<EnginePicture* const> pictures) override;
  Image preview(const EnginePicture& picture) override;
  Result<Image> finish(const EnginePicture& picture) override;

  /// What requests must know of it: of the samplers those that take this model.
  ModelFacts facts(std::string name) const;

 private:
  PainterEngine(std::unique_ptr<Painter> painter, int threads, std::shared_ptr<GpuTurn> gpu_turn, DeviceLost lost)
      : painter_(std::move(painter)), threads_(threads), gpu_turn_(std::move(gpu_turn)), lost_(std::move(lost)) {}
  /// `work` in the engine's turn.
  template <typename Work>
  auto in_turn(const Work& work);
  PaintRequest request_of(const PictureSpec& spec) const;
  Status check_chunks(const PaintRequest& request) const;

  std::unique_ptr<Painter> painter_;
  int threads_;
  std::shared_ptr<GpuTurn> gpu_turn_;  // Shared by the engines of a GPU and whoever loads them.
  DeviceLost lost_;
  std::vector<std::string> samplers_;
  std::string default_sampler_;  // Empty: the model's scheduler.
};

}  // namespace darkroom
