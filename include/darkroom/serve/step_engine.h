#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/image/image.h"

namespace darkroom {

/// One picture that is asked for.
struct PictureSpec {
  std::string prompt = {};    ///< May be empty.
  std::string negative = {};  ///< What guidance leads away from.
  std::string sampler = {};   ///< Empty: the model's scheduler.
  int num_steps = 50;         ///< Inference steps.
  double guidance = 7.5;      ///< At most 1: none.
  uint64_t seed = 0;
  int width = 0;  ///< Pixels.
  int height = 0;
  int preview_every = 0;           ///< Steps from one preview to the next; 0: none are made.
  double eta = 0.0;                ///< Of ddim: 0 deterministic, 1 as noisy as ancestral sampling; others do not read it.
  bool has_weight_syntax = false;  ///< Whether brackets in the texts are weights, as in "(word:1.3)", or themselves.
  /// RGB of width x height to start from; none: from noise alone. Shared by the pictures of a request.
  std::shared_ptr<const Image> init_image = {};
  double strength = 0.8;  ///< With init_image: share of the steps that are taken, above 0 to 1.

  bool operator==(const PictureSpec&) const = default;

  /// Steps that are taken from a picture.
  int num_steps_from_image() const { return static_cast<int>(num_steps * strength); }
  /// Steps that are taken, all of them but with init_image.
  int num_steps_taken() const { return init_image == nullptr ? num_steps : num_steps_from_image(); }

  /// The most previews that there are: none after the last step.
  int num_previews() const { return preview_every > 0 ? std::max(0, num_steps_taken() - 1) / preview_every : 0; }

  /// What limits and fairness count in: pixels times steps. Reading the network's weights and starting its kernels take their time
  /// however small a picture is, so fewer than 64 x 64 pixels count as those; encoding the texts and decoding count as two steps,
  /// encoding an initial picture as a third, a preview as one.
  double cost() const {
    constexpr double kLeastPixels = 64.0 * 64.0;
    const double steps_around = init_image == nullptr ? 2.0 : 3.0;
    return std::max(static_cast<double>(width) * height, kLeastPixels) * (num_steps_taken() + steps_around + num_previews());
  }
};

/// What requests must know of the model that paints.
struct ModelFacts {
  std::string name;                   ///< As replies and `/v1/models` call it.
  int native_size = 512;              ///< Side of a picture where a request names none.
  int size_multiple = 8;              ///< Sides are multiples of it.
  std::vector<std::string> samplers;  ///< That a request may name.
  std::string default_sampler = {};   ///< What paints where a request names none.
};

/// What of a picture's texts a model does not read, because they are longer than it reads; empty: nothing.
struct UnreadTexts {
  std::string prompt = {};
  std::string negative = {};
};

/// A picture that an engine has begun.
class EnginePicture {
 public:
  virtual ~EnginePicture() = default;
  /// Calls of the network until it can be finished.
  virtual size_t num_calls_left() const = 0;
};

/// What paints, one network call at a time. Thread safety: any thread may check() and ask for unread(); of the rest and of the pictures'
/// ends none, one StepBatcher's thread asks.
class StepEngine {
 public:
  static constexpr int kMaxPreviewSide = 256;  ///< Of a preview, in pixels.
  static constexpr int kMostChunks = 32;       ///< Of the tokens of a prompt with weights, and of its negative text.

  virtual ~StepEngine() = default;
  /// Whether begin() would take the picture, whatever its seed. Quick. Errors: kInvalidArgument, of a request that does not fit the model.
  virtual Status check(const PictureSpec& spec) const = 0;
  /// Of a picture that check() takes. Quick.
  virtual UnreadTexts unread(const PictureSpec& spec) const = 0;
  /// Errors: as check().
  virtual Result<std::unique_ptr<EnginePicture>> begin(const PictureSpec& spec) = 0;
  /// Takes the next step of each, in one network call where their texts are of one length. Where it throws (memory that is used up,
  /// foremost), pictures whose calls left have changed have had their step, and the others are as they were. REQUIRES: not empty, of one
  /// size, each with calls left.
  virtual void step(std::span<EnginePicture* const> pictures) = 0;
  /// What a picture is about to become, as small as kMaxPreviewSide asks. Changes nothing of what comes of it. REQUIRES: a call was made.
  virtual Image preview(const EnginePicture& picture) = 0;
  /// Errors: kInternal, of a picture that is none. REQUIRES: no calls are left.
  virtual Result<Image> finish(const EnginePicture& picture) = 0;
};

/// A model that is loaded, with what paints it.
struct ServedModel {
  ModelFacts facts;
  std::unique_ptr<StepEngine> engine = {};  ///< Null: the batcher's own.
  double queue_cost = 0.0;                  ///< The batcher's bound on open costs is at least this one where an order of the model asks.
};

/// A model in use: as long as a copy lives it is not unloaded.
using HeldModel = std::shared_ptr<const ServedModel>;

}  // namespace darkroom
