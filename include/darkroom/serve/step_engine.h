#pragma once

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

  /// Pixels times steps: what limits and fairness count in.
  double cost() const { return static_cast<double>(width) * height * num_steps; }
};

/// What requests must know of the model that paints.
struct ModelFacts {
  std::string name;                   ///< As replies and `/v1/models` call it.
  int native_size = 512;              ///< Side of a picture where a request names none.
  int size_multiple = 8;              ///< Sides are multiples of it.
  std::vector<std::string> samplers;  ///< That a request may name.
};

/// A picture that an engine has begun.
class EnginePicture {
 public:
  virtual ~EnginePicture() = default;
  /// Calls of the network until it can be finished.
  virtual size_t num_calls_left() const = 0;
};

/// What paints, one network call at a time. Thread safety: none; one StepBatcher's thread asks it.
class StepEngine {
 public:
  virtual ~StepEngine() = default;
  /// Errors: kInvalidArgument, of a request that does not fit the model.
  virtual Result<std::unique_ptr<EnginePicture>> begin(const PictureSpec& spec) = 0;
  /// One network call that takes the next step of each. REQUIRES: not empty, of one size, each with calls left.
  virtual void step(std::span<EnginePicture* const> pictures) = 0;
  /// REQUIRES: no calls are left.
  virtual Image finish(const EnginePicture& picture) = 0;
};

}  // namespace darkroom
