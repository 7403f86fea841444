#pragma once

#include <cstddef>
#include <cstdint>

namespace darkroom {

/// Rows of a band that transpose_band handles at once.
inline constexpr int kBandRows = 16;

/// out[i] = clamp((2^21 + sum over k of weights[k] * rows[k * stride + i]) >> 22, 0, 255) for i < num_bytes: one output
/// sample of a resampling pass for num_bytes neighbours at once. Runs on the widest vectors of the processor; integer
/// sums are exact, so all processors give the same bytes.
void weigh_rows(const uint8_t* rows, size_t stride, const int32_t* weights, int num_rows, size_t num_bytes, uint8_t* out);

/// out[i * kBandRows + r] = rows[r][i] for i < num_bytes.
void transpose_band(const uint8_t* const rows[kBandRows], size_t num_bytes, uint8_t* out);

/// rows[r][i] = band[i * kBandRows + r] for i < num_bytes and r < num_rows.
void restore_band(const uint8_t* band, size_t num_bytes, uint8_t* const rows[kBandRows], int num_rows);

}  // namespace darkroom
