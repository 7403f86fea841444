#pragma once

#include <optional>
#include <vector>

#include "darkroom/tune/tune_report.h"

namespace darkroom {

/// A trial as a study of the axes sees it: its settings with the recipe's own values where it changes nothing, and its loss at rung 0.
struct StudiedTrial {
  TrialSettings settings = {};
  double loss = 0;
};

/// What each axis did to these losses. Pure.
std::vector<AxisStudy> study_axes(const std::vector<SearchAxis>& axes, const std::vector<StudiedTrial>& trials);

}  // namespace darkroom
