#pragma once

#include <memory>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/encode/row_encoder.h"
#include "darkroom/files/file_system.h"
#include "darkroom/train/event_writer.h"
#include "darkroom/train/recipe.h"
#include "trained_part.h"

namespace darkroom {

/// What a run shows of itself every samples.every_steps: pictures in a folder and in TensorBoard. Same weights, same bytes.
class Previews {
 public:
  virtual ~Previews() = default;
  /// Makes the pictures with the module's present weights (the caller puts the EMA in place) and writes them into the new
  /// or existing `folder`.
  virtual Status make(FileSystem& files, const std::string& folder, int64_t step, EventWriter& events) = 0;
};

/// The recipe's fixed prompts, painted with fixed seeds. Errors: kInvalidArgument (the recipe asks for what cannot be painted), those of
/// reading the model folder.
Result<std::unique_ptr<Previews>> make_prompt_previews(const Recipe& recipe, const UNetPart& part,
                                                       std::shared_ptr<const FrozenModels> frozen);

/// Pictures of the dataset beside what the autoencoder makes of them (from the posterior's mean). `images_nchw` in [-1, 1].
std::unique_ptr<Previews> make_reconstruction_previews(const VaePart& part, torch::Tensor images_nchw, std::vector<std::string> keys);

}  // namespace darkroom
