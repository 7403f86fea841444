#include "resample_passes.h"

#include <utility>

namespace darkroom {
namespace {

constexpr size_t kLargestSpare = 8 << 20;  // Bounds what an idle thread holds.

struct Spare {
  std::unique_ptr<uint8_t[]> bytes;
  size_t size = 0;
};

Spare& thread_spare() {
  thread_local Spare spare;
  return spare;
}

size_t bytes_of_group(int width, int num_channels) {
  const size_t num_samples = static_cast<size_t>(width) * static_cast<size_t>(num_channels);
  return (num_samples / kSampleBlock + 2) * kSampleBlock * kGroupRows;
}

size_t num_groups(int num_rows) { return static_cast<size_t>((num_rows + kBandRows - 1) / kBandRows) * kBandGroups; }

}  // namespace

SpareBuffer::SpareBuffer(size_t size) {
  Spare spare = std::exchange(thread_spare(), {});
  if (spare.size < size) {
    spare = {std::make_unique_for_overwrite<uint8_t[]>(size), size};
  }
  bytes_ = std::move(spare.bytes);
  size_ = spare.size;
}

SpareBuffer::~SpareBuffer() {
  if (bytes_ && size_ <= kLargestSpare && size_ > thread_spare().size) {
    thread_spare() = {std::move(bytes_), size_};
  }
}

GroupedRows::GroupedRows(int num_rows, int width, int num_channels)
    : width_(width),
      num_channels_(num_channels),
      group_bytes_(bytes_of_group(width, num_channels)),
      bytes_(num_groups(num_rows) * group_bytes_) {}

ColumnsPass::ColumnsPass(const QuadWeights& horizontal, int num_channels, int num_rows)
    : horizontal_(horizontal), result_(num_rows, static_cast<int>(horizontal.spans.size()), num_channels) {
  const auto channels = static_cast<size_t>(num_channels);
  in_bytes_ = static_cast<size_t>(horizontal.num_inputs) * channels;
  skipped_bytes_ = static_cast<size_t>(horizontal.first_input) * channels;
  band_.resize(band_bytes(in_bytes_, num_channels));
}

void ColumnsPass::add_band(const uint8_t* const rows[kBandRows], std::span<const uint8_t> upcoming) {
  const uint8_t* in[kBandRows];
  for (int r = 0; r < kBandRows; ++r) {
    in[r] = rows[r] + skipped_bytes_;
  }
  arrange_band(in, in_bytes_, result_.num_channels(), band_.data());
  uint8_t* groups[kBandGroups];
  for (int g = 0; g < kBandGroups; ++g) {
    groups[g] = result_.group(num_bands_ * kBandGroups + g);
  }
  weigh_band(band_.data(), result_.num_channels(), horizontal_.spans, horizontal_.packed.data(), groups, upcoming);
  ++num_bands_;
}

Image weigh_rows(const GroupedRows& rows, const QuadWeights& vertical) {
  Image result = Image::filled(rows.width(), static_cast<int>(vertical.spans.size()), rows.num_channels());
  for (int y = 0; y < result.height; ++y) {
    const QuadSpan& span = vertical.spans[static_cast<size_t>(y)];
    weigh_groups(rows.group(span.first), rows.group_bytes(), span, vertical.packed.data(), rows.num_samples(), result.row(y));
  }
  return result;
}

bool rows_come_first(int from_width, int from_height, int to_width, int to_height) {
  return to_height < from_height && int64_t{from_height} - to_height > 2 * (int64_t{from_width} - to_width);
}

}  // namespace darkroom
