#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/nn/model_folder.h"

namespace darkroom {

/// What was found about one network of a model.
struct PartReport {
  std::string name;  ///< "unet", "vae", "text_encoder" or "text_encoder_2".
  int64_t num_parameters = 0;
  std::string fingerprint;  ///< component_fingerprint.
};

/// Loads every network of a model, tells `on_part` about each as it is done, and sees whether every weight is a finite number and
/// the parts fit together. Returns the number of ids that the text encoder knows, 0 without one: a tokenizer may have as many.
/// Errors: kCorruptData (a weight that is NaN or infinite), kFailedPrecondition (parts of different models), kCancelled, those of loading.
Result<int64_t> check_model(const ModelFolder& model, const std::function<void(const PartReport&)>& on_part,
                            const std::stop_token& stop = {});

}  // namespace darkroom
