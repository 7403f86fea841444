#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "bench_setup.h"

namespace darkroom {

/// Milliseconds of each of `repeats` runs, after some that are not counted (kWarmUpRuns, in which a graph is recorded). A run is over when
/// `device` is done with it. A stop request ends it after the run at hand; one is measured at least.
std::vector<double> time_runs(int64_t repeats, const torch::Device& device, const std::stop_token& stop, const std::function<void()>& run);
inline constexpr int kWarmUpRuns = 2;
inline constexpr int kWarmUpRunsOnAGpu = 5;

/// The usual figures of a benchmark: `units` a run (pictures, steps, ...), `multiply_adds` a run (0: not counted).
nlohmann::json figures_of(const std::string& unit, const std::vector<double>& runs_ms, double units, int64_t multiply_adds,
                          const BenchPlace& place);

/// Floating-point operations a second, in 1e12, of a large matrix product of the place's type on its device with this thread's settings.
double gemm_tflops(const BenchPlace& place);

}  // namespace darkroom
