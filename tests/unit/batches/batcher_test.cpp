#include "darkroom/batches/batcher.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

namespace darkroom {
namespace {

/// Gives each sample's row as its latent; fails at one row.
class NumberedSource : public SampleSource {
 public:
  explicit NumberedSource(int64_t bad_row = -1) : bad_row_(bad_row) {}
  Result<Batch> read(std::span<const SampleRef> samples) override {
    Batch batch;
    std::vector<float> rows;
    for (const auto& sample : samples) {
      if (sample.row == bad_row_) {
        return Status::corrupt_data("a bad row:", sample.row);
      }
      rows.push_back(static_cast<float>(sample.row));
      batch.keys.push_back(std::to_string(sample.row));
    }
    batch.latents_nchw = torch::tensor(rows);
    return batch;
  }
  std::string describe(int64_t row) const override { return "row " + std::to_string(row); }

 private:
  int64_t bad_row_;
};

std::unique_ptr<CanonicalOrder> small_order() {
  return *CanonicalOrder::create({256, 100, 256, 31}, {.seed = 3, .num_lanes = 3, .batch_size = 16, .window_blocks = 2});
}

std::vector<std::vector<SampleRef>> first_batches(const BatcherOptions& options, int count) {
  Batcher batcher(small_order(), std::make_unique<NumberedSource>(), options);
  std::vector<std::vector<SampleRef>> batches;
  for (int i = 0; i < count; ++i) {
    auto batch = batcher.next();
    EXPECT_TRUE(batch.is_ok()) << batch.status().to_string();
    EXPECT_EQ(batch->number, options.first_batch + i);
    for (size_t j = 0; j < batch->samples.size(); ++j) {
      EXPECT_EQ(batch->keys[j], std::to_string(batch->samples[j].row));
    }
    batches.push_back(batch->samples);
  }
  return batches;
}

TEST(batcher, hands_out_the_canonical_order_however_far_ahead_it_works) {
  auto order = small_order();
  std::vector<std::vector<SampleRef>> want;
  for (int i = 0; i < 60; ++i) {
    want.push_back(*order->batch(i));
  }
  for (const int64_t num_ahead : {0, 1, 7}) {
    EXPECT_EQ(first_batches({.num_ahead = num_ahead}, 60), want);
  }
}

TEST(batcher, starts_at_a_position_and_takes_its_part_of_each_batch) {
  const auto whole = first_batches({}, 40);
  const auto resumed = first_batches({.first_batch = 23}, 17);
  EXPECT_TRUE(std::equal(resumed.begin(), resumed.end(), whole.begin() + 23));
  const auto second_half = first_batches({.first_sample = 8}, 3);
  for (size_t i = 0; i < second_half.size(); ++i) {
    EXPECT_EQ(second_half[i], std::vector<SampleRef>(whole[i].begin() + 8, whole[i].end()));
  }
  const auto middle = first_batches({.first_sample = 3, .num_samples = 2}, 2);
  EXPECT_EQ(middle[1], std::vector<SampleRef>(whole[1].begin() + 3, whole[1].begin() + 5));
}

TEST(batcher, gives_what_came_before_a_failure_and_then_the_failure_for_good) {
  auto order = small_order();
  const int64_t bad_row = (*order->batch(5))[3].row;
  for (const int64_t num_ahead : {0, 4}) {
    Batcher batcher(small_order(), std::make_unique<NumberedSource>(bad_row), {.num_ahead = num_ahead});
    int64_t num_good = 0;
    while (batcher.next().is_ok()) {
      ++num_good;
    }
    EXPECT_EQ(num_good, 5);
    EXPECT_EQ(batcher.next().status().code(), StatusCode::kCorruptData);
    EXPECT_EQ(batcher.describe(4), "row 4");
  }
}

TEST(batcher, can_be_dropped_at_any_time) {
  for (int i = 0; i < 20; ++i) {
    Batcher batcher(small_order(), std::make_unique<NumberedSource>(), {.num_ahead = 3});
    if (i % 2 == 0) {
      EXPECT_TRUE(batcher.next().is_ok());
    }
  }
}

/// Notes what it is told of and asked for.
class ToldSource : public NumberedSource {
 public:
  explicit ToldSource(std::vector<std::vector<SampleRef>>& told, std::vector<size_t>& told_before_read)
      : told_(told), told_before_read_(told_before_read) {}
  void expect(std::span<const SampleRef> samples) override { told_.emplace_back(samples.begin(), samples.end()); }
  Result<Batch> read(std::span<const SampleRef> samples) override {
    told_before_read_.push_back(told_.size());
    return NumberedSource::read(samples);
  }

 private:
  std::vector<std::vector<SampleRef>>& told_;
  std::vector<size_t>& told_before_read_;
};

TEST(batcher, tells_its_source_of_the_batches_that_come_and_of_none_behind_the_end) {
  const auto want = first_batches({.first_batch = 4, .first_sample = 3, .num_samples = 5}, 6);
  std::vector<std::vector<SampleRef>> told;
  std::vector<size_t> told_before_read;
  Batcher batcher(small_order(), std::make_unique<ToldSource>(told, told_before_read),
                  {.first_batch = 4, .first_sample = 3, .num_samples = 5, .num_ahead = 0, .num_expected = 2, .end_batch = 9});
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(batcher.next()->samples, want[i]);
  }
  EXPECT_EQ(told, want) << "the one behind the end is told of only because it is asked for";
  EXPECT_EQ(told_before_read, (std::vector<size_t>{3, 4, 5, 5, 5, 6}));
}

/// Waits in read() until it is told to stop.
class WaitingSource : public NumberedSource {
 public:
  Result<Batch> read(std::span<const SampleRef>) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_over_; });
    return Status::cancelled("waited for nobody");
  }
  void stop_waiting() override {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
};

TEST(batcher, ends_while_its_source_waits_for_somebody) {
  const Batcher batcher(small_order(), std::make_unique<WaitingSource>(), {.num_ahead = 1});
}

/// Gives nothing until nobody waits any more.
class SilentSource : public SampleSource {
 public:
  explicit SilentSource(std::stop_source& asked) : asked_(asked) {}
  Result<Batch> read(std::span<const SampleRef> /*samples*/) override {
    asked_.request_stop();
    std::unique_lock lock(mutex_);
    given_up_.wait(lock, [this] { return is_given_up_; });
    return Status::unavailable("nobody waits any more");
  }
  void stop_waiting() override {
    const std::lock_guard lock(mutex_);
    is_given_up_ = true;
    given_up_.notify_all();
  }
  std::string describe(int64_t /*row*/) const override { return ""; }

 private:
  std::stop_source& asked_;
  std::mutex mutex_;
  std::condition_variable given_up_;
  bool is_given_up_ = false;
};

TEST(batcher, a_stop_ends_the_wait_for_a_source_that_says_nothing) {
  std::stop_source stop;
  Batcher batcher(small_order(), std::make_unique<SilentSource>(stop), {.num_ahead = 2});
  EXPECT_EQ(batcher.next(stop.get_token()).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace darkroom
