#include "darkroom/measure/retrieval.h"

#include <algorithm>

#include "darkroom/core/check.h"
#include "darkroom/core/random.h"

namespace darkroom {

ReducedPicture reduce_picture(const Image& picture) {
  DARKROOM_CHECK(picture.width % 2 == 0 && picture.height % 2 == 0,
                 "a picture of an odd size cannot be halved (width, height):", picture.width, picture.height);
  const auto channels = static_cast<size_t>(picture.num_channels);
  ReducedPicture reduced;
  reduced.reserve(picture.pixels.size() / 4);
  for (int y = 0; y < picture.height; y += 2) {
    const uint8_t* upper = picture.row(y);
    const uint8_t* lower = picture.row(y + 1);
    for (int x = 0; x < picture.width; x += 2) {
      for (size_t c = 0; c < channels; ++c) {
        const size_t left = static_cast<size_t>(x) * channels + c;
        const size_t right = left + channels;
        reduced.push_back(static_cast<uint16_t>(upper[left] + upper[right] + lower[left] + lower[right]));
      }
    }
  }
  return reduced;
}

int64_t squared_distance(const ReducedPicture& a, const ReducedPicture& b) {
  DARKROOM_CHECK(a.size() == b.size(), "pictures of different sizes are compared:", a.size(), b.size());
  int64_t sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const int32_t difference = int32_t{a[i]} - int32_t{b[i]};
    sum += difference * difference;
  }
  return sum;
}

int64_t rank_of_own(const ReducedPicture& painted, size_t own, std::span<const ReducedPicture> corpus) {
  DARKROOM_CHECK(own < corpus.size(), "a caption's own picture lies outside the corpus:", own);
  const int64_t own_distance = squared_distance(painted, corpus[own]);
  return std::count_if(corpus.begin(), corpus.end(),
                       [&](const ReducedPicture& picture) { return squared_distance(painted, picture) < own_distance; });
}

double share_within(std::span<const int64_t> ranks, int64_t limit) {
  const auto count = std::count_if(ranks.begin(), ranks.end(), [limit](int64_t rank) { return rank < limit; });
  return ranks.empty() ? 0.0 : static_cast<double>(count) / static_cast<double>(ranks.size());
}

std::vector<size_t> draw_rows(uint64_t seed, std::string_view name, size_t num_rows, size_t count) {
  DARKROOM_CHECK(count <= num_rows, "more rows are drawn than there are (drawn, rows):", count, num_rows);
  std::vector<uint32_t> order(num_rows);
  shuffled_order(CounterRandom(seed, Purpose::kSelect, 0, name), order);
  return {order.begin(), order.begin() + static_cast<ptrdiff_t>(count)};
}

}  // namespace darkroom
