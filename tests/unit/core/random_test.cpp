#include "darkroom/core/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>
#include "support/error_bound.h"

namespace darkroom {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, equals_the_published_known_answers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRandom, normals_equal_box_muller_of_libm_to_a_float_ulp) {
  const CounterRandom random(7, Purpose::kNoise, 3, "000000000042");
  for (uint64_t i = 0; i < 20000; i += 2) {
    const double radius = std::sqrt(-2 * std::log((random.bits(i) + 0.5) * 0x1p-32));
    const double angle = 2 * M_PI * (random.bits(i + 1) * 0x1p-32);
    EXPECT_TRUE(is_near(random.normal(i), radius * std::cos(angle), 1e-6)) << i;
    EXPECT_TRUE(is_near(random.normal(i + 1), radius * std::sin(angle), 1e-6)) << i;
  }
}

TEST(CounterRandom, normals_have_mean_zero_and_variance_one) {
  const CounterRandom random(1, Purpose::kNoise, 0, "a");
  std::vector<float> values(200000);
  random.fill_normal(values);
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += value;
    squares += static_cast<double>(value) * value;
  }
  const double count = static_cast<double>(values.size());
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2 / count));
}

TEST(CounterRandom, filling_equals_single_draws_from_any_start) {
  const CounterRandom random(9, Purpose::kPosterior, 0, "b");
  for (const uint64_t first : {0, 1, 2, 3, 5}) {
    for (const size_t size : {0, 1, 2, 3, 4, 7, 64}) {
      std::vector<float> values(size);
      random.fill_normal(values, first);
      for (size_t i = 0; i < size; ++i) {
        EXPECT_EQ(values[i], random.normal(first + i)) << first << " " << i;
      }
    }
  }
}

TEST(CounterRandom, seed_purpose_epoch_and_key_each_change_the_draw) {
  const CounterRandom base(1, Purpose::kNoise, 0, "k");
  EXPECT_NE(base.bits(0), CounterRandom(2, Purpose::kNoise, 0, "k").bits(0));
  EXPECT_NE(base.bits(0), CounterRandom(1, Purpose::kPosterior, 0, "k").bits(0));
  EXPECT_NE(base.bits(0), CounterRandom(1, Purpose::kNoise, 1, "k").bits(0));
  EXPECT_NE(base.bits(0), CounterRandom(1, Purpose::kNoise, 0, "l").bits(0));
  EXPECT_EQ(base.bits(0), CounterRandom(1, Purpose::kNoise, 0, "k").bits(0));
}

// The values that docs/formats/randomness.md prints; a change here breaks every recorded dataset and run.
TEST(CounterRandom, stays_what_the_format_page_says) {
  EXPECT_EQ(hash_key("000000000042"), 0xc4198ff42168f018ULL);
  const CounterRandom random(42, Purpose::kNoise, 0, "000000000042");
  EXPECT_EQ(random.bits(0), 3163035U);
  EXPECT_EQ(random.bits(5), 2616691050U);
}

TEST(ShuffledOrder, is_a_permutation_for_hostile_sizes) {
  for (const size_t size : {0, 1, 2, 3, 256, 257}) {
    std::vector<uint32_t> order(size);
    shuffled_order(CounterRandom(5, Purpose::kShuffle, 0, "epoch"), order);
    std::sort(order.begin(), order.end());
    for (size_t i = 0; i < size; ++i) {
      EXPECT_EQ(order[i], i);
    }
  }
}

}  // namespace
}  // namespace darkroom
