#include "resample_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "resample_kernels.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "filter_weights.h"

HWY_BEFORE_NAMESPACE();
namespace darkroom {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// kVectors registers of 32-bit sums run over all rows before they are stored, so every input byte is read once.
template <int kVectors>
HWY_INLINE void weigh_block(const uint8_t* rows, size_t stride, const int32_t* weights, int num_rows, uint8_t* out) {
  const hn::ScalableTag<int32_t> sums;
  const hn::Rebind<uint8_t, decltype(sums)> samples;
  const size_t lanes = hn::Lanes(sums);
  hn::Vec<decltype(sums)> sum[kVectors];
  for (auto& one : sum) {
    one = hn::Set(sums, 1 << (FilterWeights::kFractionBits - 1));
  }
  for (int k = 0; k < num_rows; ++k) {
    const auto weight = hn::Set(sums, weights[k]);
    const uint8_t* row = rows + static_cast<size_t>(k) * stride;
    for (int v = 0; v < kVectors; ++v) {
      const auto values = hn::PromoteTo(sums, hn::LoadU(samples, row + static_cast<size_t>(v) * lanes));
      sum[v] = hn::Add(sum[v], hn::Mul(values, weight));
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    hn::StoreU(hn::DemoteTo(samples, hn::ShiftRight<FilterWeights::kFractionBits>(sum[v])), samples, out + static_cast<size_t>(v) * lanes);
  }
}

void weigh_rows(const uint8_t* rows, size_t stride, const int32_t* weights, int num_rows, size_t num_bytes, uint8_t* out) {
  constexpr int kVectors = 4;
  const size_t lanes = hn::Lanes(hn::ScalableTag<int32_t>());
  size_t done = 0;
  for (; done + kVectors * lanes <= num_bytes; done += kVectors * lanes) {
    weigh_block<kVectors>(rows + done, stride, weights, num_rows, out + done);
  }
  for (; done + lanes <= num_bytes; done += lanes) {
    weigh_block<1>(rows + done, stride, weights, num_rows, out + done);
  }
  for (; done < num_bytes; ++done) {
    int32_t sum = 1 << (FilterWeights::kFractionBits - 1);
    for (int k = 0; k < num_rows; ++k) {
      sum += rows[static_cast<size_t>(k) * stride + done] * weights[k];
    }
    const int32_t value = sum >> FilterWeights::kFractionBits;
    out[done] = static_cast<uint8_t>(value < 0 ? 0 : value > 255 ? 255 : value);
  }
}

#if HWY_TARGET != HWY_SCALAR

// A 16 x 16 byte transposition: four rounds that interleave row r with row r + 8.
HWY_INLINE void transpose_16x16(hn::Vec<hn::FixedTag<uint8_t, 16>> (&tile)[16]) {
  const hn::FixedTag<uint8_t, 16> bytes;
  for (int round = 0; round < 4; ++round) {
    hn::Vec<decltype(bytes)> next[16];
    for (int r = 0; r < 8; ++r) {
      next[2 * r] = hn::InterleaveLower(bytes, tile[r], tile[r + 8]);
      next[2 * r + 1] = hn::InterleaveUpper(bytes, tile[r], tile[r + 8]);
    }
    for (int r = 0; r < 16; ++r) {
      tile[r] = next[r];
    }
  }
}

size_t transpose_tiles(const uint8_t* const rows[kBandRows], size_t num_bytes, uint8_t* out) {
  const hn::FixedTag<uint8_t, 16> bytes;
  size_t done = 0;
  for (; done + 16 <= num_bytes; done += 16) {
    hn::Vec<decltype(bytes)> tile[16];
    for (int r = 0; r < 16; ++r) {
      tile[r] = hn::LoadU(bytes, rows[r] + done);
    }
    transpose_16x16(tile);
    for (int r = 0; r < 16; ++r) {
      hn::StoreU(tile[r], bytes, out + (done + static_cast<size_t>(r)) * kBandRows);
    }
  }
  return done;
}

size_t restore_tiles(const uint8_t* band, size_t num_bytes, uint8_t* const rows[kBandRows], int num_rows) {
  const hn::FixedTag<uint8_t, 16> bytes;
  size_t done = 0;
  for (; done + 16 <= num_bytes; done += 16) {
    hn::Vec<decltype(bytes)> tile[16];
    for (int r = 0; r < 16; ++r) {
      tile[r] = hn::LoadU(bytes, band + (done + static_cast<size_t>(r)) * kBandRows);
    }
    transpose_16x16(tile);
    for (int r = 0; r < num_rows; ++r) {
      hn::StoreU(tile[r], bytes, rows[r] + done);
    }
  }
  return done;
}

#else

size_t transpose_tiles(const uint8_t* const*, size_t, uint8_t*) { return 0; }
size_t restore_tiles(const uint8_t*, size_t, uint8_t* const*, int) { return 0; }

#endif

void transpose_band(const uint8_t* const rows[kBandRows], size_t num_bytes, uint8_t* out) {
  for (size_t i = transpose_tiles(rows, num_bytes, out); i < num_bytes; ++i) {
    for (int r = 0; r < kBandRows; ++r) {
      out[i * kBandRows + static_cast<size_t>(r)] = rows[r][i];
    }
  }
}

void restore_band(const uint8_t* band, size_t num_bytes, uint8_t* const rows[kBandRows], int num_rows) {
  for (size_t i = restore_tiles(band, num_bytes, rows, num_rows); i < num_bytes; ++i) {
    for (int r = 0; r < num_rows; ++r) {
      rows[r][i] = band[i * kBandRows + static_cast<size_t>(r)];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace darkroom
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace darkroom {

HWY_EXPORT(weigh_rows);
HWY_EXPORT(transpose_band);
HWY_EXPORT(restore_band);

void weigh_rows(const uint8_t* rows, size_t stride, const int32_t* weights, int num_rows, size_t num_bytes, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(weigh_rows)(rows, stride, weights, num_rows, num_bytes, out);
}

void transpose_band(const uint8_t* const rows[kBandRows], size_t num_bytes, uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(transpose_band)(rows, num_bytes, out);
}

void restore_band(const uint8_t* band, size_t num_bytes, uint8_t* const rows[kBandRows], int num_rows) {
  HWY_DYNAMIC_DISPATCH(restore_band)(band, num_bytes, rows, num_rows);
}

}  // namespace darkroom
#endif
