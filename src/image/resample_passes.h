#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "darkroom/image/image.h"
#include "filter_weights.h"
#include "resample_kernels.h"

namespace darkroom {

/// Memory that a thread keeps for its next picture: asking the system for it anew costs as much as a tenth of the work.
class SpareBuffer {
 public:
  /// At least `size` bytes of any content.
  explicit SpareBuffer(size_t size);
  ~SpareBuffer();
  SpareBuffer(SpareBuffer&&) = default;
  SpareBuffer& operator=(SpareBuffer&&) = delete;

  uint8_t* data() { return bytes_.get(); }
  const uint8_t* data() const { return bytes_.get(); }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  size_t size_ = 0;
};

/// Rows between the two passes, four by four interleaved (resample_kernels.h).
class GroupedRows {
 public:
  GroupedRows(int num_rows, int width, int num_channels);

  int width() const { return width_; }
  int num_channels() const { return num_channels_; }
  size_t num_samples() const { return static_cast<size_t>(width_) * static_cast<size_t>(num_channels_); }
  size_t group_bytes() const { return group_bytes_; }
  uint8_t* group(int index) { return bytes_.data() + static_cast<size_t>(index) * group_bytes_; }
  const uint8_t* group(int index) const { return bytes_.data() + static_cast<size_t>(index) * group_bytes_; }

 private:
  int width_;
  int num_channels_;
  size_t group_bytes_;
  SpareBuffer bytes_;  // Room for whole bands.
};

/// The first pass: takes rows as they come, 16 at a time, and keeps only their resampled columns.
class ColumnsPass {
 public:
  /// `num_rows` rows will come. `horizontal` outlives the pass.
  ColumnsPass(const QuadWeights& horizontal, int num_channels, int num_rows);

  /// The next kBandRows rows, each of whole pictures' width; after the last row any readable row may stand. `upcoming` are
  /// the bytes of the next band, where they are known.
  void add_band(const uint8_t* const rows[kBandRows], std::span<const uint8_t> upcoming = {});
  GroupedRows finish() && { return std::move(result_); }

 private:
  const QuadWeights& horizontal_;
  GroupedRows result_;
  int num_bands_ = 0;
  size_t in_bytes_;
  size_t skipped_bytes_;
  std::vector<uint8_t> band_;
};

/// The second pass.
Image weigh_rows(const GroupedRows& rows, const QuadWeights& vertical);

/// Whether Pillow 13 resamples the rows of such a picture first: where that takes away much more than the columns would.
/// Pillow 12 and before never did. The 8-bit rounding between the passes makes the difference visible, by one level mostly.
bool rows_come_first(int from_width, int from_height, int to_width, int to_height);

}  // namespace darkroom
