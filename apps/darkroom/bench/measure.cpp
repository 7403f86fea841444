#include "measure.h"

#include <torch/torch.h>

#include <chrono>

#include "darkroom/core/median.h"
#include "darkroom/tensor/device_runtime.h"
#include "darkroom/tensor/kept_memory.h"
#include "darkroom/tensor/matrix_peak.h"

namespace darkroom {
namespace {

constexpr int64_t kGemmSide = 1536;
constexpr int64_t kGemmSideOnAGpu = 8192;
constexpr int64_t kGemmRepeats = 5;

}  // namespace

std::vector<double> time_runs(int64_t repeats, const torch::Device& device, const std::stop_token& stop, const std::function<void()>& run) {
  keep_freed_memory(device);  // As the verbs do.
  const int num_warm_up = device.is_cpu() ? kWarmUpRuns : kWarmUpRunsOnAGpu;
  for (int i = 0; i < num_warm_up && !stop.stop_requested(); ++i) {
    run();
  }
  synchronize(device);
  std::vector<double> runs_ms;
  for (int64_t i = 0; i < repeats && (i == 0 || !stop.stop_requested()); ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    synchronize(device);
    runs_ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return runs_ms;
}

double gemm_tflops(const BenchPlace& place) {
  return time_products(place.device, place.type, place.device.is_cpu() ? kGemmSide : kGemmSideOnAGpu, kGemmRepeats).tflops();
}

nlohmann::json figures_of(const std::string& unit, const std::vector<double>& runs_ms, double units, int64_t multiply_adds,
                          const BenchPlace& place) {
  nlohmann::json figures = speed_of(unit, runs_ms, units);
  figures["threads"] = at::get_num_threads();
  if (!place.device.is_cpu()) {
    figures["peak_device_memory_bytes"] = peak_memory_bytes(place.device);
  }
  figures["peak_memory_bytes"] = peak_memory_bytes(torch::kCPU);
  if (multiply_adds > 0) {
    const double tflops = 2.0 * static_cast<double>(multiply_adds) / (median(runs_ms) * 1e9);
    const double gemm = gemm_tflops(place);
    figures.update({{"tflops", tflops}, {"gemm_tflops", gemm}, {"gemm_share", tflops / gemm}});
  }
  return figures;
}

}  // namespace darkroom
