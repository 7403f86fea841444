#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/train/recipe.h"
#include "run_data.h"
#include "trained_part.h"

namespace darkroom {

/// The loss on rows that training does not see: the first validation.num_rows of a dataset, always with the draws of epoch 0
/// (a key's noise and timestep never change) and without caption dropout. Thread safety: none.
class Validation {
 public:
  virtual ~Validation() = default;
  /// The mean loss with the module's present weights, and, for the autoencoder, the mean PSNR in dB, as numbers of a metrics line:
  /// validation_loss, validation_psnr. Calls `get_on` before every batch. Errors: those of reading the dataset.
  virtual Result<nlohmann::ordered_json> score(const std::function<void()>& get_on) = 0;
};

/// `frozen` as open_latents takes them. What speaks against the dataset, also that it tells of other frozen parts or another dialect than
/// `training` does, makes `training` unfit. Errors: those of open_latents.
Result<std::unique_ptr<Validation>> make_diffusion_validation(StoreSet& stores, const Recipe& recipe, const UNetPart& part,
                                                              const SampleShapes& shapes, const FrozenModels* frozen, RunData& training);
Result<std::unique_ptr<Validation>> make_autoencoder_validation(StoreSet& stores, const Recipe& recipe, VaePart& part,
                                                                const std::string& decoder_program);

}  // namespace darkroom
