#pragma once

#include <string>

#include "darkroom/tune/tune_report.h"

namespace darkroom {

/// A search as one page without network: the best recipe and the line that trains it, the trials, their curves, what each field did, speed
/// by batch, cost against quality. `best_recipe`: where best.toml lies. Thread safety: pure.
std::string render_tune_page(const TuneReport& report, const std::string& best_recipe);

}  // namespace darkroom
