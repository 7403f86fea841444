#include "resample_passes.h"

namespace darkroom {

GroupedRows::GroupedRows(int num_rows, int width, int num_channels) : width_(width), num_channels_(num_channels) {
  group_bytes_ = (num_samples() / kSampleBlock + 2) * kSampleBlock * kGroupRows;
  const auto num_bands = static_cast<size_t>((num_rows + kBandRows - 1) / kBandRows);
  bytes_ = std::make_unique_for_overwrite<uint8_t[]>(num_bands * kBandGroups * group_bytes_);
}

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
