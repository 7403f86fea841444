#pragma once

#include <string>

#include "darkroom/core/status.h"

namespace darkroom {

/// Flags of `models forward`.
struct ForwardFlags {
  std::string model;
  std::string component;
  std::string inputs;
  std::string output;
  bool gradients = false;
  int threads = 1;
};

/// Runs one component of a model folder on given tensors and writes its outputs, with --gradients also every gradient
/// (names: docs/nn.md). Replaces an output of an earlier run. Errors: kNotFound (folder, file or tensor), kFailedPrecondition
/// (tensors that do not fit the model), those of the files.
Status run_forward(const ForwardFlags& flags);

}  // namespace darkroom
