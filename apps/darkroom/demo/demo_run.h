#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include <nlohmann/json.hpp>

#include "darkroom/core/status.h"

namespace darkroom {

struct DemoOptions {
  std::string output = "demo-run";  ///< OUT.
  double minutes = 5.0;             ///< Training time; the other stages take about two and a half more on two cores.
  int64_t seed = 0;                 ///< Of the corpus, the encoding, the subset and the training.
  std::string model = {};           ///< Frozen parts, U-Net config and shipped weights; empty: models/tiny of the source folder.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// The whole chain on the demo corpus, afresh (docs/demo.md). `summary` fills up stage by stage, so a failed demo still tells
/// how far it came. Errors: those of its stages with the stage's name before them; kFailedPrecondition (another folder's
/// contents), kNotFound (something to be installed), kUnavailable (too slow a machine for the
/// planted web), kInternal (a trouble was lost or miscounted).
Status run_demo(const DemoOptions& options, nlohmann::json& summary, const std::stop_token& stop);

}  // namespace darkroom
