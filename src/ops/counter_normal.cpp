#include "darkroom/ops/counter_normal.h"

#include <ATen/Parallel.h>

#include <span>

#include "darkroom/core/check.h"
#include "references.h"

namespace darkroom {

torch::Tensor counter_normal(uint64_t seed, Purpose purpose, const torch::Tensor& coordinates_n2, at::IntArrayRef shape) {
  DARKROOM_CHECK(coordinates_n2.scalar_type() == torch::kInt64 && coordinates_n2.dim() == 2 && coordinates_n2.size(1) == 2 &&
                     coordinates_n2.is_contiguous(),
                 "coordinates are whole numbers [N, 2], got:", c10::str(coordinates_n2.sizes()));
  DARKROOM_CHECK(!shape.empty() && shape[0] == coordinates_n2.size(0), "a sample a row of the noise (rows, samples):", c10::str(shape),
                 coordinates_n2.size(0));
  torch::Tensor out = torch::empty(shape, torch::dtype(torch::kFloat32).device(coordinates_n2.device()));
  if (out.numel() > 0) {
    operations_for(out.device().type()).counter_normal(out, seed, static_cast<uint8_t>(purpose), coordinates_n2);
  }
  return out;
}

namespace reference {

void counter_normal(torch::Tensor& out, uint64_t seed, uint8_t purpose, const torch::Tensor& coordinates_n2) {
  constexpr int64_t kSamplesAThread = 4;
  const int64_t num_samples = out.size(0), row = out.numel() / num_samples;
  const int64_t* coordinates = coordinates_n2.const_data_ptr<int64_t>();
  float* draws = out.data_ptr<float>();
  at::parallel_for(0, num_samples, kSamplesAThread, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      const auto epoch = static_cast<uint32_t>(coordinates[2 * n]);
      const auto key_hash = static_cast<uint64_t>(coordinates[2 * n + 1]);
      const CounterRandom random(seed, static_cast<Purpose>(purpose), epoch, key_hash);
      random.fill_normal(std::span(draws + n * row, static_cast<size_t>(row)));
    }
  });
}

}  // namespace reference
}  // namespace darkroom
