#pragma once

#include <string>

#include "darkroom/plan/plan.h"

namespace darkroom {

/// A plan as one page without network: what it amounts to, published beside planned, cost by stage, offline or online, lost machines, the
/// business case, what is left out, and every figure with its formula or source. Thread safety: pure.
std::string render_plan_page(const Plan& plan);

}  // namespace darkroom
