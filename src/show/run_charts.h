#pragma once

#include <string>

#include "run_folder.h"

namespace darkroom {

/// The curves of a run, and of another one (or null) over them: loss, gradient norm, learning rate, throughput. Over the steps,
/// or, where two runs take batches of different sizes, over the pictures seen.
std::string run_charts_html(const RunFolder& run, const RunFolder* other);

}  // namespace darkroom
