#include "darkroom/feed/canonical_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

std::unique_ptr<CanonicalOrder> make_order(std::vector<int32_t> blocks, const OrderSpec& spec) {
  auto order = CanonicalOrder::create(std::move(blocks), spec);
  EXPECT_TRUE(order.is_ok()) << order.status().to_string();
  return std::move(order).value();
}

std::vector<std::vector<SampleRef>> batches(CanonicalOrder& order, int64_t first, int64_t count) {
  std::vector<std::vector<SampleRef>> all;
  for (int64_t number = first; number < first + count; ++number) {
    all.push_back(order.batch(number).value());
  }
  return all;
}

struct Shape {
  std::vector<int32_t> blocks;
  OrderSpec spec;
};

std::vector<Shape> hostile_shapes() {
  return {
      {{1}, {.seed = 1, .num_lanes = 1, .batch_size = 1, .window_blocks = 1}},
      {{1}, {.seed = 1, .num_lanes = 8, .batch_size = 5, .window_blocks = 4}},                         // one row, five a batch
      {{7}, {.seed = 2, .num_lanes = 3, .batch_size = 64, .window_blocks = 16}},                       // fewer rows than B
      {{256, 256, 13}, {.seed = 3, .num_lanes = 2, .batch_size = 31, .window_blocks = 1}},             // last block short, B prime
      {{256, 256, 13}, {.seed = 3, .num_lanes = 64, .batch_size = 32, .window_blocks = 2}},            // more lanes than blocks
      {{256, 1, 256, 77, 256, 3}, {.seed = 4, .num_lanes = 4, .batch_size = 3, .window_blocks = 16}},  // B < C
      {std::vector<int32_t>(37, 16), {.seed = 5, .num_lanes = 5, .batch_size = 64, .window_blocks = 3}},
  };
}

TEST(canonical_order, gives_every_row_once_an_epoch) {
  for (const auto& shape : hostile_shapes()) {
    const int64_t num_rows = std::accumulate(shape.blocks.begin(), shape.blocks.end(), int64_t{0});
    auto order = make_order(shape.blocks, shape.spec);
    ASSERT_EQ(order->num_rows(), num_rows);
    // Lanes differ by at most their shares of a few epochs: twelve epochs of samples complete the first four.
    const int64_t num_batches = (12 * num_rows + shape.spec.batch_size - 1) / shape.spec.batch_size;
    std::map<uint32_t, std::multiset<int64_t>> seen;
    for (const auto& batch : batches(*order, 0, num_batches)) {
      ASSERT_EQ(static_cast<int64_t>(batch.size()), shape.spec.batch_size);
      for (const auto& sample : batch) {
        seen[sample.epoch].insert(sample.row);
      }
    }
    for (auto& [epoch, rows] : seen) {
      const std::set<int64_t> distinct(rows.begin(), rows.end());
      ASSERT_EQ(distinct.size(), rows.size()) << "a row twice in epoch " << epoch;
      if (epoch < 4) {
        ASSERT_EQ(static_cast<int64_t>(rows.size()), num_rows) << "a row lost in epoch " << epoch;
        ASSERT_EQ(*distinct.begin(), 0);
        ASSERT_EQ(*distinct.rbegin(), num_rows - 1);
      }
    }
  }
}

TEST(canonical_order, starts_at_any_batch_with_the_uninterrupted_sequence) {
  for (const auto& shape : hostile_shapes()) {
    auto whole = make_order(shape.blocks, shape.spec);
    const auto want = batches(*whole, 0, 40);
    for (const int64_t first : {0, 1, 7, 23, 39}) {
      auto resumed = make_order(shape.blocks, shape.spec);
      const auto got = batches(*resumed, first, 40 - first);
      ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin() + first));
    }
    EXPECT_EQ(whole->batch(3).value(), want[3]) << "going backwards";
  }
}

// Lanes without a sample in the last batch may have entered an epoch that an earlier batch lies before.
TEST(canonical_order, goes_back_from_any_batch_to_any) {
  const OrderSpec spec{.seed = 9, .num_lanes = 8, .batch_size = 4, .window_blocks = 2};
  const std::vector<int32_t> blocks(8, 1);
  auto order = make_order(blocks, spec);
  const auto want = batches(*order, 0, 6);
  for (int64_t from = 0; from < 6; ++from) {
    for (int64_t to = 0; to <= from; ++to) {
      auto again = make_order(blocks, spec);
      batches(*again, 0, from + 1);
      EXPECT_EQ(again->batch(to).value(), want[static_cast<size_t>(to)]) << from << " " << to;
    }
  }
}

TEST(canonical_order, draws_each_epoch_once_on_its_way_to_a_late_batch) {
  for (const auto& shape : hostile_shapes()) {
    auto there = make_order(shape.blocks, shape.spec);
    const int64_t num_batches = (40 * there->num_rows() + shape.spec.batch_size - 1) / shape.spec.batch_size;
    const auto samples = there->batch(num_batches).value();
    const uint32_t last_epoch =
        std::max_element(samples.begin(), samples.end(), [](const SampleRef& a, const SampleRef& b) { return a.epoch < b.epoch; })->epoch;
    EXPECT_EQ(there->num_draws(), int64_t{last_epoch} + 1);
  }
}

TEST(canonical_order, slices_make_up_the_batch) {
  const OrderSpec spec{.seed = 9, .num_lanes = 4, .batch_size = 24, .window_blocks = 2};
  auto order = make_order({100, 100, 100, 5}, spec);
  for (const int64_t number : {0, 1, 17}) {
    const auto want = order->batch(number).value();
    for (const int64_t count : {1, 2, 3, 8, 24}) {
      std::vector<SampleRef> got;
      for (int64_t first = 0; first < 24; first += count) {
        const auto part = order->slice(number, first, count).value();
        got.insert(got.end(), part.begin(), part.end());
      }
      ASSERT_EQ(got, want);
    }
  }
  EXPECT_TRUE(order->slice(0, 24, 0)->empty());
  EXPECT_THROW(static_cast<void>(order->slice(0, 20, 5)), CheckFailure);
}

TEST(canonical_order, changes_with_the_seed_and_between_epochs) {
  const OrderSpec spec{.seed = 1, .num_lanes = 1, .batch_size = 256, .window_blocks = 1};
  auto order = make_order({256}, spec);
  OrderSpec other = spec;
  other.seed = 2;
  auto reseeded = make_order({256}, other);
  const auto rows_of = [](const std::vector<SampleRef>& batch) {
    std::vector<int64_t> rows;
    for (const auto& sample : batch) {
      rows.push_back(sample.row);
    }
    return rows;
  };
  EXPECT_NE(rows_of(order->batch(0).value()), rows_of(order->batch(1).value()));
  EXPECT_NE(rows_of(order->batch(0).value()), rows_of(reseeded->batch(0).value()));
}

TEST(canonical_order, keeps_its_published_values) {
  auto order = make_order({4, 4, 2}, {.seed = 42, .num_lanes = 2, .batch_size = 5, .window_blocks = 2});
  std::vector<int64_t> rows;
  for (const auto& batch : batches(*order, 0, 2)) {
    for (const auto& sample : batch) {
      rows.push_back(sample.epoch * 100 + sample.row);
    }
  }
  EXPECT_EQ(rows, (std::vector<int64_t>{5, 3, 2, 8, 9, 1, 0, 107, 105, 106}));
}

TEST(canonical_order, refuses_an_empty_dataset_and_bad_numbers) {
  EXPECT_EQ(CanonicalOrder::create({}, {}).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(CanonicalOrder::create({1}, {.num_lanes = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CanonicalOrder::create({1}, {.batch_size = 0}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(CanonicalOrder::create({1}, {.window_blocks = 0}).status().code(), StatusCode::kInvalidArgument);
}

TEST(canonical_order, refuses_to_run_past_the_last_epoch_that_can_be_numbered) {
  auto order = make_order({1}, {.seed = 0, .num_lanes = 1, .batch_size = 1, .window_blocks = 1});
  EXPECT_TRUE(order->batch((1 << 24) - 1).is_ok());
  EXPECT_EQ(order->batch(1 << 24).status().code(), StatusCode::kFailedPrecondition);
}

// As a checkpoint of strangers names them: at once, and without a product that overflows.
TEST(canonical_order, refuses_a_batch_behind_all_epochs) {
  for (const auto& shape : hostile_shapes()) {
    auto order = make_order(shape.blocks, shape.spec);
    for (const int64_t number : {int64_t{1} << 38, int64_t{500'000'000'000'000'000}, INT64_MAX / shape.spec.batch_size, INT64_MAX}) {
      EXPECT_EQ(order->batch(number).status().code(), StatusCode::kFailedPrecondition) << number;
    }
    EXPECT_EQ(order->num_draws(), 0);
    EXPECT_TRUE(order->batch(3).is_ok());
  }
}

}  // namespace
}  // namespace darkroom
