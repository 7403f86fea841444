#include "streamed_resize.h"

#include <algorithm>
#include <utility>

namespace darkroom {
namespace {

constexpr int kChannels = 3;

QuadWeights vertical_weights(int from_height, int height, Filter filter, const Window& window) {
  return make_quad_weights(from_height == height ? make_identity_weights(window.top, window.height)
                                                 : make_filter_weights(from_height, height, filter, window.top, window.height));
}

}  // namespace

bool StreamedResize::is_possible(int from_width, int from_height, int width, int height) {
  return from_width != width && (from_height == height || !rows_come_first(from_width, from_height, width, height));
}

StreamedResize::StreamedResize(int from_width, int from_height, int width, int height, Filter filter, const Window& window)
    : horizontal_(make_quad_weights(make_filter_weights(from_width, width, filter, window.left, window.width))),
      vertical_(vertical_weights(from_height, height, filter, window)),
      pass_(horizontal_, kChannels, vertical_.num_inputs),
      row_bytes_(static_cast<size_t>(from_width) * kChannels),
      rows_(row_bytes_ * kBandRows) {}

uint8_t* StreamedResize::row_at(int y) {
  const int place = y - wanted_rows().first - num_flushed_;
  if (place < kBandRows) {
    return rows_.data() + static_cast<size_t>(place) * row_bytes_;
  }
  flush_band(kBandRows);
  return rows_.data();
}

void StreamedResize::flush_band(int num_rows) {
  const uint8_t* rows[kBandRows];
  for (int r = 0; r < kBandRows; ++r) {
    rows[r] = rows_.data() + static_cast<size_t>(std::min(r, num_rows - 1)) * row_bytes_;
  }
  pass_.add_band(rows);
  num_flushed_ += num_rows;
}

Image StreamedResize::finish() && {
  flush_band(vertical_.num_inputs - num_flushed_);
  return weigh_rows(std::move(pass_).finish(), vertical_);
}

}  // namespace darkroom
