#include "darkroom/core/random.h"
#include "kernel_cases.h"

// diffusion_noise.cu gives the CPU's bits: a * clean + s * noise as two products and a sum in float32, and the draws of CounterRandom.

namespace darkroom::kernel_tests {
namespace {

void check_add_noise(bool with_velocity) {
  Draws draws(with_velocity ? 21 : 22);
  for (int shape = 0; shape < num_shapes() && !testing::Test::HasFailure(); ++shape) {
    const int64_t samples = draws.between(1, 9), row = draws.between(1, draws.chance(0.2) ? 1500 : 60), size = samples * row;
    const auto normal = [](Draws& d) { return d.normal(); };
    const Array<float> clean(size, draws, normal), noise(size, draws, normal),
        scales(2 * samples, draws, [](Draws&d) { return d.uniform(); });
    for (const uint64_t order : kOrders) {
      Array<float> noisy(size), velocity(size);
      run_in_order(order, [&] {
        return launch_add_noise(clean.data(), noise.data(), scales.data(), noisy.data(), with_velocity ? velocity.data() : nullptr, samples,
                                row, nullptr);
      });
      Array<float> want_noisy(size), want_velocity(size);
      for (int64_t i = 0; i < size; ++i) {
        const float signal = scales.data()[i / row * 2], share = scales.data()[i / row * 2 + 1];
        const float kept = signal * clean.data()[i], added = share * noise.data()[i];
        want_noisy.data()[i] = kept + added;
        const float turned = signal * noise.data()[i], removed = share * clean.data()[i];
        if (with_velocity) {
          want_velocity.data()[i] = turned - removed;
        }
      }
      EXPECT_TRUE(noisy.has_bits_of(want_noisy)) << samples << " x " << row;
      EXPECT_TRUE(velocity.has_bits_of(want_velocity)) << samples << " x " << row << ": velocity";
    }
  }
}

TEST(noise_kernel, noises_with_the_cpus_bits) { check_add_noise(false); }
TEST(noise_kernel, noises_and_gives_the_velocity_with_the_cpus_bits) { check_add_noise(true); }

TEST(noise_kernel, draws_the_cpus_normal_numbers) {
  Draws draws(23);
  for (int shape = 0; shape < num_shapes() && !testing::Test::HasFailure(); ++shape) {
    const int64_t samples = draws.between(1, 6), row = draws.between(1, draws.chance(0.1) ? 4000 : 50);
    const uint64_t seed = draws.bits();
    const auto purpose = static_cast<uint8_t>(draws.between(1, 8));
    std::vector<int64_t> coordinates;
    for (int64_t n = 0; n < samples; ++n) {
      coordinates.push_back(draws.between(0, (1 << 24) - 1));
      coordinates.push_back(static_cast<int64_t>(draws.bits()));
    }
    Array<float> want(samples * row);
    for (int64_t n = 0; n < samples; ++n) {
      const auto place = static_cast<size_t>(2 * n);
      const CounterRandom random(seed, static_cast<Purpose>(purpose), static_cast<uint32_t>(coordinates[place]),
                                 static_cast<uint64_t>(coordinates[place + 1]));
      random.fill_normal(std::span(want.data() + n * row, static_cast<size_t>(row)));
    }
    for (const uint64_t order : kOrders) {
      Array<float> out(samples * row);
      run_in_order(order, [&] { return launch_counter_normal(out.data(), seed, purpose, coordinates.data(), samples, row, nullptr); });
      EXPECT_TRUE(out.has_bits_of(want)) << samples << " x " << row << ", seed " << seed;
    }
  }
}

}  // namespace
}  // namespace darkroom::kernel_tests
