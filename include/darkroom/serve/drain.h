#pragma once

#include <chrono>

#include "darkroom/serve/http_server.h"
#include "darkroom/serve/image_inputs.h"
#include "darkroom/serve/model_shelf.h"
#include "darkroom/serve/painting_service.h"
#include "darkroom/serve/step_batcher.h"

namespace darkroom {

/// What serves, and is to stop.
struct ServingParts {
  HttpServer& server;
  PaintingService& service;
  StepBatcher& batcher;
  ModelShelf* models = nullptr;     ///< Null: there is one model for good.
  PictureIntake* intake = nullptr;  ///< Null: requests have no pictures.
};

struct DrainOptions {
  std::chrono::milliseconds patience{25'000};   ///< For what is being painted; SIGKILL comes 30 s after SIGTERM.
  std::chrono::milliseconds last_words{2'000};  ///< For the replies to what was not done by then.
};

/// Takes no more orders, answers those who wait for a model, lets what is painted come to its end and every reply be sent; what is not
/// done by the end of the patience (painting, a safety checker's answer, a picture that is decoded) is answered 503. A network call or a
/// model that is loaded may still go on: StepBatcher::await_idle, ModelShelf::await_idle. Blocks for patience + last_words at most, beside
/// what a safety checker takes to heed its stop request.
void drain(const ServingParts& parts, const DrainOptions& options = {});

}  // namespace darkroom
