#include "measure.h"

#include <sys/resource.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>

namespace darkroom {
namespace {

constexpr int kWarmUpRuns = 2;
constexpr int64_t kGemmSide = 1536;
constexpr int64_t kGemmRepeats = 5;
constexpr int64_t kBytesAKilobyte = 1024;  // ru_maxrss

}  // namespace

std::vector<double> time_runs(int64_t repeats, const std::function<void()>& run) {
  for (int i = 0; i < kWarmUpRuns; ++i) {
    run();
  }
  std::vector<double> runs_ms;
  for (int64_t i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    runs_ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return runs_ms;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

double gemm_tflops() {
  const torch::NoGradGuard no_grad;
  const auto a = torch::ones({kGemmSide, kGemmSide}), b = torch::ones({kGemmSide, kGemmSide});
  torch::Tensor out = torch::empty_like(a);
  const double best_ms = [&] {
    const auto runs_ms = time_runs(kGemmRepeats, [&] { at::mm_out(out, a, b); });
    return *std::min_element(runs_ms.begin(), runs_ms.end());
  }();
  return 2.0 * static_cast<double>(kGemmSide * kGemmSide * kGemmSide) / (best_ms * 1e9);
}

int64_t peak_memory_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * kBytesAKilobyte;
}

nlohmann::json figures_of(const std::string& unit, std::vector<double> runs_ms, double units, int64_t multiply_adds) {
  const double middle = median(runs_ms);
  const auto [least, most] = std::minmax_element(runs_ms.begin(), runs_ms.end());
  nlohmann::json figures = {{"unit", unit},
                            {"per_second", units * 1e3 / middle},
                            {"ms", {{"min", *least}, {"median", middle}, {"max", *most}}},
                            {"threads", at::get_num_threads()}};
  if (multiply_adds > 0) {
    const double tflops = 2.0 * static_cast<double>(multiply_adds) / (middle * 1e9);
    const double gemm = gemm_tflops();
    figures.update({{"tflops", tflops}, {"gemm_tflops", gemm}, {"gemm_share", tflops / gemm}});
  }
  figures["peak_memory_bytes"] = peak_memory_bytes();
  return figures;
}

}  // namespace darkroom
