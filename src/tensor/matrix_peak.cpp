#include "darkroom/tensor/matrix_peak.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "darkroom/core/check.h"
#include "darkroom/tensor/device_runtime.h"

namespace darkroom {
namespace {

constexpr int64_t kBlock = 512, kMostSide = 8192;
constexpr int64_t kRepeats = 5;
constexpr double kLongEnoughMs = 1;  // What launching and waiting take is little beside it.

// Random numbers: a GPU draws less power, and so runs faster, on zeros and ones. A block of them again and again, because the CPU draws
// them.
torch::Tensor random_square(const torch::Device& device, torch::ScalarType type, int64_t side, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return torch::randn({kBlock, kBlock}, generator).to(device, type).repeat({side / kBlock, side / kBlock});
}

}  // namespace

double MatrixPeak::tflops() const {
  const auto n = static_cast<double>(side);
  return best_ms > 0 ? 2.0 * n * n * n / (best_ms * 1e9) : 0;
}

MatrixPeak time_products(const torch::Device& device, torch::ScalarType type, int64_t side, int64_t repeats) {
  DARKROOM_CHECK(side > 0 && side % kBlock == 0, "matrices are made of blocks (side):", side);
  const torch::NoGradGuard no_grad;
  const torch::Tensor a = random_square(device, type, side, 7), b = random_square(device, type, side, 8);
  torch::Tensor out = torch::empty_like(a);
  at::mm_out(out, a, b);
  synchronize(device);
  double best_ms = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < repeats; ++i) {
    const auto start = std::chrono::steady_clock::now();
    at::mm_out(out, a, b);
    synchronize(device);
    best_ms = std::min(best_ms, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  return {side, best_ms};
}

MatrixPeak measure_matrix_peak(const torch::Device& device, torch::ScalarType type) {
  int64_t side = kBlock;
  while (side < kMostSide && time_products(device, type, side, 1).best_ms < kLongEnoughMs) {
    side *= 2;
  }
  return time_products(device, type, side, kRepeats);
}

}  // namespace darkroom
