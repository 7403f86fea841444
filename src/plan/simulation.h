#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace darkroom {

/// Training that loses machines: times between losses are exponential, and so is the wait for another machine. A checkpoint comes after
/// every `save_interval` of work and at the end; what was done since the last one is done again. No loss comes during a restart.
/// REQUIRES: positive interval and times between; their expected loss stays below the work (add_losses() looks).
struct LossSimulation {
  double work_hours = 0;
  double hours_between = 1;
  double save_interval = 1;
  double save_hours = 0;
  double wait_hours = 0;  ///< Mean; not paid.
  double restart_hours = 0;
};

struct SimulatedRun {
  double hours = 0;
  double paid_hours = 0;
  int64_t num_losses = 0;
};

/// `num_trials` runs, each a function of (seed, trial, key) alone. Thread safety: pure.
std::vector<SimulatedRun> simulate_losses(const LossSimulation& simulation, int64_t num_trials, uint64_t seed, std::string_view key);

}  // namespace darkroom
