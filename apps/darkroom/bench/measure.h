#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace darkroom {

/// Milliseconds of each of `repeats` runs, after two that are not counted.
std::vector<double> time_runs(int64_t repeats, const std::function<void()>& run);

/// The usual figures of a benchmark: `units` a run (pictures, steps, ...), `multiply_adds` a run (0: not counted).
nlohmann::json figures_of(const std::string& unit, std::vector<double> runs_ms, double units, int64_t multiply_adds);

double median(std::vector<double> values);
/// Floating-point operations a second, in 1e12, of a large float32 matrix product with this thread's settings.
double gemm_tflops();
/// Largest resident size of this process so far.
int64_t peak_memory_bytes();

}  // namespace darkroom
