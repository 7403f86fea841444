#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/paint/painter.h"
#include "darkroom/serve/step_engine.h"

namespace darkroom {

/// A painter as the server's batcher asks it. Sets OpenMP's number of threads where it is asked, because that is each thread's own; it
/// changes a picture's last bits.
class PainterEngine final : public StepEngine {
 public:
  /// A model whose own scheduler is not built is painted with another one, which the log names. Errors: kFailedPrecondition where no
  /// sampler takes the model.
  static Result<std::unique_ptr<PainterEngine>> create(std::unique_ptr<Painter> painter, int threads);

  Status check(const PictureSpec& spec) const override;
  Result<std::unique_ptr<EnginePicture>> begin(const PictureSpec& spec) override;
  void step(std::span<EnginePicture* const> pictures) override;
  Image preview(const EnginePicture& picture) override;
  Image finish(const EnginePicture& picture) override;

  /// What requests must know of it: of the samplers those that take this model.
  ModelFacts facts(std::string name) const;

 private:
  PainterEngine(std::unique_ptr<Painter> painter, int threads) : painter_(std::move(painter)), threads_(threads) {}
  PaintRequest request_of(const PictureSpec& spec) const;

  std::unique_ptr<Painter> painter_;
  int threads_;
  std::vector<std::string> samplers_;
  std::string default_sampler_;  // Empty: the model's scheduler.
};

}  // namespace darkroom
