#pragma once

#include <vector>

#include "decoders.h"
#include "filter_weights.h"
#include "resample_passes.h"

namespace darkroom {

/// Resizes an RGB picture while it is being decoded, so that only a band of its rows is ever in memory; equal to
/// resize_window of the whole picture.
class StreamedResize : public RowSink {
 public:
  /// Whether the columns pass comes first and changes something: else the whole picture is needed.
  static bool is_possible(int from_width, int from_height, int width, int height);

  /// REQUIRES: is_possible; the window as in resize_window.
  StreamedResize(int from_width, int from_height, int width, int height, Filter filter, const Window& window);
  StreamedResize(const StreamedResize&) = delete;
  StreamedResize& operator=(const StreamedResize&) = delete;

  /// The rows that the window depends on.
  PixelRows wanted_rows() const override { return {vertical_.first_input, vertical_.first_input + vertical_.num_inputs}; }
  uint8_t* row_at(int y) override;
  /// REQUIRES: every wanted row was asked for and written.
  Image finish() &&;

 private:
  void flush_band(int num_rows);

  QuadWeights horizontal_;
  QuadWeights vertical_;
  ColumnsPass pass_;
  size_t row_bytes_;
  std::vector<uint8_t> rows_;  // A band.
  int num_flushed_ = 0;
};

}  // namespace darkroom
