#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace darkroom {

// The kernels of both resampling passes. Both weigh quads: four neighbours along the pass, in the four bytes of a 32-bit
// word, so that one dot-product instruction takes four inputs. Integer sums are exact (modulo 2^32), so all processors
// give the same bytes.

/// Rows of a band, the unit of the columns pass.
inline constexpr int kBandRows = 16;
/// Rows of a group, the unit of the rows pass. A group stores its rows interleaved: byte 4 * i + r is sample i of row r.
inline constexpr int kGroupRows = 4;
inline constexpr int kBandGroups = kBandRows / kGroupRows;
/// Groups hold samples in multiples of this, and at least as many bytes more than they need.
inline constexpr size_t kSampleBlock = 64;
/// 32-bit words of a quad's four packed weights.
inline constexpr size_t kPackedWords = 4;

/// Quads that one output sample weighs.
struct QuadSpan {
  int first = 0;
  int count = 0;
  size_t packed = 0;  ///< Where its weights begin, in words.
};

/// Packs four weights of 22 fractional bits as the processor's dot product wants them. |weight| <= 2^23.
void pack_quad(const int32_t weights[4], uint32_t packed[kPackedWords]);

/// The number of bytes that arrange_band writes for rows of num_bytes.
size_t band_bytes(size_t num_bytes, int num_channels);

/// Sorts the rows of a band into quads of pixels: band[((q * num_channels + c) * kBandRows + r) * 4 + i] is channel c of
/// pixel 4 * q + i of row r, zero beyond the last pixel. REQUIRES: num_channels 1, 3 or 4.
void arrange_band(const uint8_t* const rows[kBandRows], size_t num_bytes, int num_channels, uint8_t* band);

/// The columns pass of a band: output pixel x goes into the band's groups as their samples from x * num_channels on, and
/// kSampleBlock bytes beyond the last one may be written. Meanwhile `upcoming`, what arrange_band will read next, is fetched
/// into the cache.
void weigh_band(const uint8_t* band, int num_channels, std::span<const QuadSpan> outputs, const uint32_t* packed,
                uint8_t* const groups[kBandGroups], std::span<const uint8_t> upcoming);

/// Interleaves num_bytes bytes of the rows of a group.
void group_rows(const uint8_t* const rows[kGroupRows], size_t num_bytes, uint8_t* group);

/// The rows pass of one output row: num_samples bytes from span.count groups, group_bytes apart, the first at `groups`.
void weigh_groups(const uint8_t* groups, size_t group_bytes, const QuadSpan& span, const uint32_t* packed, size_t num_samples,
                  uint8_t* out);

/// The planes of a picture of 3 channels as the autoencoder wants them: (value / 255 - 0.5) / 0.5 in float32.
void normalise_rgb(const uint8_t* pixels, size_t num_pixels, float* red, float* green, float* blue);

}  // namespace darkroom
