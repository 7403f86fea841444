#include "simulation.h"

#include <algorithm>
#include <cmath>

#include "plan_random.h"

namespace darkroom {
namespace {

SimulatedRun simulate_run(const LossSimulation& simulation, const PlanRandom& random) {
  SimulatedRun run;
  double saved = 0;
  for (uint32_t draw = 0;; draw += 2) {
    const double left = simulation.work_hours - saved;
    const double to_the_end = left + std::ceil(left / simulation.save_interval) * simulation.save_hours;
    const double until_loss = random.exponential(draw, simulation.hours_between);
    if (until_loss >= to_the_end) {
      run.hours += to_the_end;
      run.paid_hours += to_the_end;
      return run;
    }
    saved += std::min(left, std::floor(until_loss / (simulation.save_interval + simulation.save_hours)) * simulation.save_interval);
    run.hours += until_loss + random.exponential(draw + 1, simulation.wait_hours) + simulation.restart_hours;
    run.paid_hours += until_loss + simulation.restart_hours;
    run.num_losses += 1;
  }
}

}  // namespace

std::vector<SimulatedRun> simulate_losses(const LossSimulation& simulation, int64_t num_trials, uint64_t seed, std::string_view key) {
  std::vector<SimulatedRun> runs;
  runs.reserve(static_cast<size_t>(num_trials));
  for (int64_t trial = 0; trial < num_trials; ++trial) {
    runs.push_back(simulate_run(simulation, PlanRandom(seed, key, static_cast<uint32_t>(trial))));
  }
  return runs;
}

}  // namespace darkroom
