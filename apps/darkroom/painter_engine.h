#pragma once

#include <memory>

#include "darkroom/core/result.h"
#include "darkroom/paint/painter.h"
#include "darkroom/serve/step_engine.h"

namespace darkroom {

/// A painter as the server's batcher asks it. Sets OpenMP's number of threads where it is asked, because that is each thread's own; it
/// changes a picture's last bits.
class PainterEngine final : public StepEngine {
 public:
  PainterEngine(std::unique_ptr<Painter> painter, int threads) : painter_(std::move(painter)), threads_(threads) {}

  Result<std::unique_ptr<EnginePicture>> begin(const PictureSpec& spec) override;
  void step(std::span<EnginePicture* const> pictures) override;
  Image finish(const EnginePicture& picture) override;

  /// What requests must know of it.
  ModelFacts facts(std::string name) const;

 private:
  std::unique_ptr<Painter> painter_;
  int threads_;
};

}  // namespace darkroom
