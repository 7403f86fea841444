#include "darkroom/ingest/decoding_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "darkroom/core/check.h"
#include "unit/image/webp_on_canvas.h"

namespace darkroom {
namespace {

constexpr size_t kWebpPixelBytes = 9;

/// Decodes nothing; each call lasts until it is let go.
class HeldDecoder : public PictureDecoder {
 public:
  struct Calls {
    std::atomic<int> under_way = 0;
    std::atomic<int> done = 0;
    std::counting_semaphore<> let_go{0};
  };
  explicit HeldDecoder(Calls& calls) : calls_(calls) {}

  Result<RowResult<ImageHeader>> check(std::span<const std::byte> bytes, const ImageLimits& limits) override {
    hold();
    return probe_image(bytes, limits);
  }
  Result<RowResult<DecodedSize>> transform(std::span<const std::byte>, const TransformOptions&, const ImageLimits&, const CropDraw&,
                                           std::span<uint8_t>) override {
    hold();
    return RowResult<DecodedSize>(DecodedSize{1, 1});
  }
  Result<RowResult<DecodedSize>> resize_to(std::span<const std::byte>, const DecodedSize&, const ImageLimits&,
                                           std::span<uint8_t>) override {
    hold();
    return RowResult<DecodedSize>(DecodedSize{2, 2});
  }

 private:
  void hold() {
    ++calls_.under_way;
    calls_.let_go.acquire();
    --calls_.under_way;
    ++calls_.done;
  }
  Calls& calls_;
};

std::string square_webp(uint32_t side) { return webp_on_canvas(side, side, 0, 0, side, side, {1, 2, 3, 255}); }
std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Threads that transform a picture each, with decoders of their own within one budget.
class Workers {
 public:
  explicit Workers(size_t limit_bytes) : budget(limit_bytes) {}

  void transform(const std::string& picture) {
    threads_.emplace_back([this, picture] {
      const auto decoder = decoder_within(budget, std::make_unique<HeldDecoder>(calls), stop.get_token());
      const auto result = decoder->transform(bytes_of(picture), {}, kAnySize, CropDraw{}, {});
      num_cancelled += result.status().code() == StatusCode::kCancelled ? 1 : 0;
    });
  }
  /// Until so many calls are in decoders, and so many wait for memory.
  void await(int num_under_way, size_t num_waiting) const {
    while (calls.under_way != num_under_way || budget.memory().num_waiting() != num_waiting) {
      std::this_thread::yield();
    }
  }
  void join() { threads_.clear(); }

  HeldDecoder::Calls calls;
  DecodingBudget budget;
  std::stop_source stop;
  std::atomic<int> num_cancelled = 0;

 private:
  std::vector<std::jthread> threads_;
};

TEST(DecodingBudget, decodes_two_large_pictures_one_after_the_other) {
  const std::string picture = square_webp(100);
  Workers workers(2 * kWebpPixelBytes * 100 * 100 - 1);
  workers.transform(picture);
  workers.transform(picture);
  workers.await(1, 1);
  workers.calls.let_go.release();
  workers.await(1, 0);
  EXPECT_EQ(workers.calls.done, 1);
  workers.calls.let_go.release();
  workers.join();
  EXPECT_EQ(workers.calls.done, 2);
  EXPECT_EQ(workers.budget.memory().peak_bytes(), kWebpPixelBytes * 100 * 100);
  EXPECT_EQ(workers.budget.memory().used_bytes(), 0u);
}

TEST(DecodingBudget, decodes_as_many_at_a_time_as_fit) {
  const std::string picture = square_webp(100);
  Workers workers(2 * kWebpPixelBytes * 100 * 100);
  workers.transform(picture);
  workers.transform(picture);
  workers.await(2, 0);
  workers.calls.let_go.release(2);
  workers.join();
  EXPECT_EQ(workers.calls.done, 2);
}

TEST(DecodingBudget, decodes_a_picture_larger_than_everything_alone) {
  Workers workers(1000);
  workers.transform(square_webp(4));
  workers.await(1, 0);
  workers.transform(square_webp(100));
  workers.await(1, 1);
  workers.calls.let_go.release();
  workers.await(1, 0);
  workers.transform(square_webp(4));
  workers.await(1, 1);
  EXPECT_EQ(workers.budget.memory().used_bytes(), kWebpPixelBytes * 100 * 100);
  workers.calls.let_go.release(2);
  workers.join();
  EXPECT_EQ(workers.calls.done, 3);
}

TEST(DecodingBudget, makes_nobody_wait_who_is_decoded_row_by_row_or_refused) {
  Workers workers(1);
  workers.transform(square_webp(100));
  workers.await(1, 0);
  const std::string png("\x89PNG\r\n\x1A\n\0\0\0\rIHDR\0\0\x03\xE8\0\0\x03\xE8\x08\x02\0\0\0\0\0\0\0", 33);  // 1000 x 1000.
  for (const std::string& picture : {png, std::string("no picture"), square_webp(16'384)}) {
    workers.transform(picture);
  }
  workers.await(4, 0);
  workers.calls.let_go.release(4);
  workers.join();
  EXPECT_EQ(workers.calls.done, 4);
}

TEST(DecodingBudget, ends_a_wait_for_memory_at_a_stop) {
  Workers workers(1);
  workers.transform(square_webp(10));
  workers.await(1, 0);
  workers.transform(square_webp(10));
  workers.await(1, 1);
  workers.stop.request_stop();
  workers.await(1, 0);
  workers.calls.let_go.release();
  workers.join();
  EXPECT_EQ(workers.calls.done, 1);
  EXPECT_EQ(workers.num_cancelled, 1);
}

TEST(DecodingBudget, bounds_each_task_of_a_decoder) {
  DecodingBudget budget(1);
  HeldDecoder::Calls calls;
  calls.let_go.release(3);
  std::stop_source stop;
  const auto decoder = decoder_within(budget, std::make_unique<HeldDecoder>(calls), stop.get_token());
  const std::string picture = square_webp(10);
  EXPECT_EQ(decoder->check(bytes_of(picture), kAnySize)->value().width, 10);
  EXPECT_EQ(decoder->transform(bytes_of(picture), {}, kAnySize, CropDraw{}, {})->value(), (DecodedSize{1, 1}));
  EXPECT_EQ(decoder->resize_to(bytes_of(picture), {1, 1}, kAnySize, {})->value(), (DecodedSize{2, 2}));
  const auto held = budget.acquire(kWebpPixelBytes * 10 * 10, {});
  stop.request_stop();
  EXPECT_EQ(decoder->check(bytes_of(picture), kAnySize).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(decoder->transform(bytes_of(picture), {}, kAnySize, CropDraw{}, {}).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(decoder->resize_to(bytes_of(picture), {1, 1}, kAnySize, {}).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(calls.done, 3);
}

}  // namespace
}  // namespace darkroom
