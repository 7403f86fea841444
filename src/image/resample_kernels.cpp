#include "resample_kernels.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "resample_kernels.cpp"
#define HWY_WANT_AVX3_DL  // The byte dot product of AVX-512 VNNI.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "filter_weights.h"

HWY_BEFORE_NAMESPACE();
namespace darkroom {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Sums = hn::CappedTag<int32_t, kBandRows>;
using SumVector = hn::Vec<Sums>;
using Block = hn::FixedTag<uint8_t, 16>;
using BlockVector = hn::Vec<Block>;

// How four bytes meet four weights. A weight of 22 fractional bits is cut into parts that the multiplier takes; each part
// has a sum of its own, and total() puts them together.
#if HWY_TARGET == HWY_AVX3_DL

constexpr int kParts = 3;  // Signed bytes.

HWY_INLINE void pack(const int32_t weights[4], uint32_t packed[kPackedWords]) {
  std::fill_n(packed, kPackedWords, 0);
  for (int i = 0; i < 4; ++i) {
    int32_t rest = weights[i];
    for (int part = 0; part < kParts; ++part) {
      const auto byte = static_cast<int8_t>(rest);
      packed[part] |= static_cast<uint32_t>(static_cast<uint8_t>(byte)) << (8 * i);
      rest = (rest - byte) >> 8;
    }
  }
}

HWY_INLINE void accumulate(SumVector (&sum)[kParts], SumVector quads, const uint32_t* packed) {
  // By hand, because Highway 1.0.3 asks for this target without naming AVX-512 VNNI to the compiler.
  for (int part = 0; part < kParts; ++part) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum[part].raw) : "v"(quads.raw), "m"(packed[part]));
  }
}

HWY_INLINE SumVector total(const SumVector (&sum)[kParts]) {
  return hn::Add(hn::Add(sum[0], hn::ShiftLeft<8>(sum[1])), hn::ShiftLeft<16>(sum[2]));
}

#elif HWY_ARCH_X86

constexpr int kParts = 2;  // 11 low bits and the rest; even and odd bytes as pairs of 16-bit numbers.
constexpr int kLowBits = 11;

HWY_INLINE uint32_t pair(int32_t low, int32_t high) {
  return static_cast<uint32_t>(static_cast<uint16_t>(low)) | static_cast<uint32_t>(static_cast<uint16_t>(high)) << 16;
}

HWY_INLINE void pack(const int32_t weights[4], uint32_t packed[kPackedWords]) {
  for (int odd = 0; odd < 2; ++odd) {
    const int32_t first = weights[odd];
    const int32_t second = weights[odd + 2];
    packed[odd] = pair(first & ((1 << kLowBits) - 1), second & ((1 << kLowBits) - 1));
    packed[odd + 2] = pair(first >> kLowBits, second >> kLowBits);
  }
}

HWY_INLINE void accumulate(SumVector (&sum)[kParts], SumVector quads, const uint32_t* packed) {
  const Sums sums;
  const hn::Repartition<int16_t, Sums> halves;
  const hn::Repartition<uint16_t, Sums> bits;
  const auto even = hn::BitCast(halves, hn::And(quads, hn::Set(sums, 0x00FF00FF)));
  const auto odd = hn::BitCast(halves, hn::ShiftRight<8>(hn::BitCast(bits, quads)));
  auto unused = hn::Zero(sums);  // x86 multiplies and adds neighbours, all of them into the returned sum.
  for (int part = 0; part < kParts; ++part) {
    const auto even_weights = hn::BitCast(halves, hn::Set(sums, static_cast<int32_t>(packed[2 * part])));
    const auto odd_weights = hn::BitCast(halves, hn::Set(sums, static_cast<int32_t>(packed[2 * part + 1])));
    sum[part] = hn::ReorderWidenMulAccumulate(sums, even, even_weights, sum[part], unused);
    sum[part] = hn::ReorderWidenMulAccumulate(sums, odd, odd_weights, sum[part], unused);
  }
}

HWY_INLINE SumVector total(const SumVector (&sum)[kParts]) { return hn::Add(sum[0], hn::ShiftLeft<kLowBits>(sum[1])); }

#else

constexpr int kParts = 1;  // 32-bit products, for every processor.

HWY_INLINE void pack(const int32_t weights[4], uint32_t packed[kPackedWords]) { std::memcpy(packed, weights, 4 * sizeof *weights); }

HWY_INLINE void accumulate(SumVector (&sum)[kParts], SumVector quads, const uint32_t* packed) {
  const Sums sums;
  const hn::Repartition<uint32_t, Sums> bits;
  const auto byte = hn::Set(sums, 0xFF);
  const auto weight = [&](int i) { return hn::Set(sums, static_cast<int32_t>(packed[i])); };
  const auto unsigned_quads = hn::BitCast(bits, quads);
  sum[0] = hn::Add(sum[0], hn::Mul(hn::And(quads, byte), weight(0)));
  sum[0] = hn::Add(sum[0], hn::Mul(hn::And(hn::BitCast(sums, hn::ShiftRight<8>(unsigned_quads)), byte), weight(1)));
  sum[0] = hn::Add(sum[0], hn::Mul(hn::And(hn::BitCast(sums, hn::ShiftRight<16>(unsigned_quads)), byte), weight(2)));
  sum[0] = hn::Add(sum[0], hn::Mul(hn::BitCast(sums, hn::ShiftRight<24>(unsigned_quads)), weight(3)));
}

HWY_INLINE SumVector total(const SumVector (&sum)[kParts]) { return sum[0]; }

#endif

void pack_quad(const int32_t weights[4], uint32_t packed[kPackedWords]) { pack(weights, packed); }

// kVectors neighbouring vectors of words, num_quads rows of words down: one byte for each word.
template <int kVectors>
HWY_INLINE void weigh_words(const uint8_t* words, size_t quad_bytes, int num_quads, const uint32_t* packed, uint8_t* out) {
  const Sums sums;
  const hn::Rebind<uint8_t, Sums> bytes;
  const size_t lanes = hn::Lanes(sums);
  SumVector sum[kVectors][kParts];
  for (auto& parts : sum) {
    parts[0] = hn::Set(sums, 1 << (FilterWeights::kFractionBits - 1));
    for (int part = 1; part < kParts; ++part) {
      parts[part] = hn::Zero(sums);
    }
  }
  for (int q = 0; q < num_quads; ++q, words += quad_bytes, packed += kPackedWords) {
    for (int v = 0; v < kVectors; ++v) {
      accumulate(sum[v], hn::LoadU(sums, reinterpret_cast<const int32_t*>(words) + static_cast<size_t>(v) * lanes), packed);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const auto value = hn::ShiftRight<FilterWeights::kFractionBits>(total(sum[v]));
    hn::StoreU(hn::DemoteTo(bytes, value), bytes, out + static_cast<size_t>(v) * lanes);
  }
}

// All words of a band's quad: kBandRows of them.
HWY_INLINE void weigh_rows_of_band(const uint8_t* words, size_t quad_bytes, int num_quads, const uint32_t* packed, uint8_t* out) {
  constexpr size_t kLanes = hn::MaxLanes(Sums());
  constexpr int kVectors = kLanes >= 8 ? static_cast<int>(kBandRows / kLanes) : 2;
  const size_t step = kVectors * hn::Lanes(Sums());
  for (size_t done = 0; done < kBandRows; done += step) {
    weigh_words<kVectors>(words + done * 4, quad_bytes, num_quads, packed, out + done);
  }
}

void weigh_band(const uint8_t* band, int num_channels, std::span<const QuadSpan> outputs, const uint32_t* packed, uint8_t* samples) {
  constexpr size_t kWordsBytes = size_t{kBandRows} * 4;
  const size_t quad_bytes = static_cast<size_t>(num_channels) * kWordsBytes;
  for (const QuadSpan& span : outputs) {
    const uint8_t* words = band + static_cast<size_t>(span.first) * quad_bytes;
    for (int c = 0; c < num_channels; ++c, words += kWordsBytes, samples += kBandRows) {
      weigh_rows_of_band(words, quad_bytes, span.count, packed + span.packed, samples);
    }
  }
}

void weigh_groups(const uint8_t* groups, size_t group_bytes, const QuadSpan& span, const uint32_t* packed, size_t num_samples,
                  uint8_t* out) {
  constexpr int kVectors = hn::MaxLanes(Sums()) >= 16 ? 4 : 2;
  const size_t step = kVectors * hn::Lanes(Sums());
  size_t done = 0;
  for (; done + step <= num_samples; done += step) {
    weigh_words<kVectors>(groups + done * 4, group_bytes, span.count, packed + span.packed, out + done);
  }
  if (done < num_samples) {
    uint8_t last[kSampleBlock];
    weigh_words<kVectors>(groups + done * 4, group_bytes, span.count, packed + span.packed, last);
    std::memcpy(out + done, last, num_samples - done);
  }
}

// The columns of a 4 x 4 matrix of words, whose rows are the blocks.
HWY_INLINE void transpose_words(BlockVector (&block)[4]) {
  const hn::FixedTag<uint32_t, 4> words;
  const hn::FixedTag<uint64_t, 2> pairs;
  const Block bytes;
  const auto a = hn::BitCast(words, block[0]);
  const auto b = hn::BitCast(words, block[1]);
  const auto c = hn::BitCast(words, block[2]);
  const auto d = hn::BitCast(words, block[3]);
  const auto low_ab = hn::BitCast(pairs, hn::InterleaveLower(words, a, b));
  const auto low_cd = hn::BitCast(pairs, hn::InterleaveLower(words, c, d));
  const auto high_ab = hn::BitCast(pairs, hn::InterleaveUpper(words, a, b));
  const auto high_cd = hn::BitCast(pairs, hn::InterleaveUpper(words, c, d));
  block[0] = hn::BitCast(bytes, hn::InterleaveLower(pairs, low_ab, low_cd));
  block[1] = hn::BitCast(bytes, hn::InterleaveUpper(pairs, low_ab, low_cd));
  block[2] = hn::BitCast(bytes, hn::InterleaveLower(pairs, high_ab, high_cd));
  block[3] = hn::BitCast(bytes, hn::InterleaveUpper(pairs, high_ab, high_cd));
}

void group_band(const uint8_t* samples, size_t num_samples, uint8_t* const groups[kBandRows / kGroupRows]) {
  const Block bytes;
  for (size_t s = 0; s < num_samples; s += 4) {
    BlockVector block[4];
    for (size_t i = 0; i < 4; ++i) {
      block[i] = hn::LoadU(bytes, samples + (s + i) * kBandRows);
    }
    transpose_words(block);
    for (size_t g = 0; g < 4; ++g) {
      hn::StoreU(block[g], bytes, groups[g] + s * 4);
    }
  }
}

// Bytes of one block of 16: of RGB only four whole pixels.
HWY_INLINE size_t block_step(int num_channels) { return num_channels == 3 ? 12 : 16; }

// One word a channel: the channel's bytes of four pixels. A block of grey is four quads of the one channel already.
HWY_INLINE BlockVector planar_order(int num_channels) {
  alignas(16) static constexpr uint8_t kOrders[3][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                                         {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, 12, 13, 14, 15},
                                                         {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}};
  return hn::Load(Block(), kOrders[num_channels == 1 ? 0 : num_channels - 2]);
}

// Four rows of one block, and where they lie within the words of the band.
HWY_INLINE void arrange_block(const uint8_t* const rows[4], size_t at, BlockVector order, size_t num_words, uint8_t* out) {
  const Block bytes;
  BlockVector block[4];
  for (int r = 0; r < 4; ++r) {
    block[r] = hn::TableLookupBytes(hn::LoadU(bytes, rows[r] + at), order);
  }
  transpose_words(block);
  for (size_t word = 0; word < num_words; ++word) {
    hn::StoreU(block[word], bytes, out + word * kBandRows * 4);
  }
}

void arrange_band(const uint8_t* const rows[kBandRows], size_t num_bytes, int num_channels, uint8_t* band) {
  const size_t step = block_step(num_channels);
  const size_t num_words = step / 4;
  const BlockVector order = planar_order(num_channels);
  for (size_t at = 0; at < num_bytes; at += step, band += num_words * kBandRows * 4) {
    uint8_t last[kBandRows][16] = {};
    const uint8_t* in[kBandRows];
    const bool is_whole = at + 16 <= num_bytes;
    for (int r = 0; r < kBandRows && !is_whole; ++r) {
      std::memcpy(last[r], rows[r] + at, std::min<size_t>(num_bytes - at, 16));
      in[r] = last[r];
    }
    for (int r = 0; r < kBandRows; r += 4) {
      arrange_block(is_whole ? rows + r : in + r, is_whole ? at : 0, order, num_words, band + r * 4);
    }
  }
}

void group_rows(const uint8_t* const rows[kGroupRows], size_t num_bytes, uint8_t* group) {
  const hn::CappedTag<uint8_t, kSampleBlock> bytes;
  const size_t lanes = hn::Lanes(bytes);
  size_t at = 0;
  for (; at + lanes <= num_bytes; at += lanes) {
    hn::StoreInterleaved4(hn::LoadU(bytes, rows[0] + at), hn::LoadU(bytes, rows[1] + at), hn::LoadU(bytes, rows[2] + at),
                          hn::LoadU(bytes, rows[3] + at), bytes, group + at * 4);
  }
  for (; at < num_bytes; ++at) {
    for (size_t r = 0; r < 4; ++r) {
      group[at * 4 + r] = rows[r][at];
    }
  }
}

template <class V>
HWY_INLINE void store_normalised(V values, float* out) {
  const hn::CappedTag<float, 16> floats;
  const hn::RebindToSigned<decltype(floats)> integers;
  const auto value = hn::ConvertTo(floats, hn::PromoteTo(integers, values));
  const auto share = hn::Div(value, hn::Set(floats, 255.0F));
  const auto half = hn::Set(floats, 0.5F);
  hn::StoreU(hn::Div(hn::Sub(share, half), half), floats, out);
}

void normalise_rgb(const uint8_t* pixels, size_t num_pixels, float* red, float* green, float* blue) {
  const hn::CappedTag<float, 16> floats;
  const hn::Rebind<uint8_t, decltype(floats)> bytes;
  const size_t lanes = hn::Lanes(floats);
  size_t done = 0;
  for (; done + lanes <= num_pixels; done += lanes) {
    hn::Vec<decltype(bytes)> r, g, b;
    hn::LoadInterleaved3(bytes, pixels + done * 3, r, g, b);
    store_normalised(r, red + done);
    store_normalised(g, green + done);
    store_normalised(b, blue + done);
  }
  for (; done < num_pixels; ++done) {
    const auto normalised = [&](size_t c) { return (static_cast<float>(pixels[done * 3 + c]) / 255.0F - 0.5F) / 0.5F; };
    red[done] = normalised(0);
    green[done] = normalised(1);
    blue[done] = normalised(2);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace darkroom
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace darkroom {

HWY_EXPORT(pack_quad);
HWY_EXPORT(arrange_band);
HWY_EXPORT(weigh_band);
HWY_EXPORT(group_band);
HWY_EXPORT(group_rows);
HWY_EXPORT(weigh_groups);
HWY_EXPORT(normalise_rgb);

size_t band_bytes(size_t num_bytes, int num_channels) {
  const size_t step = num_channels == 3 ? 12 : 16;
  return (num_bytes + step - 1) / step * step * kBandRows;
}

void pack_quad(const int32_t weights[4], uint32_t packed[kPackedWords]) { HWY_DYNAMIC_DISPATCH(pack_quad)(weights, packed); }

void arrange_band(const uint8_t* const rows[kBandRows], size_t num_bytes, int num_channels, uint8_t* band) {
  HWY_DYNAMIC_DISPATCH(arrange_band)(rows, num_bytes, num_channels, band);
}

void weigh_band(const uint8_t* band, int num_channels, std::span<const QuadSpan> outputs, const uint32_t* packed, uint8_t* samples) {
  HWY_DYNAMIC_DISPATCH(weigh_band)(band, num_channels, outputs, packed, samples);
}

void group_band(const uint8_t* samples, size_t num_samples, uint8_t* const groups[kBandRows / kGroupRows]) {
  HWY_DYNAMIC_DISPATCH(group_band)(samples, num_samples, groups);
}

void group_rows(const uint8_t* const rows[kGroupRows], size_t num_bytes, uint8_t* group) {
  HWY_DYNAMIC_DISPATCH(group_rows)(rows, num_bytes, group);
}

void weigh_groups(const uint8_t* groups, size_t group_bytes, const QuadSpan& span, const uint32_t* packed, size_t num_samples,
                  uint8_t* out) {
  HWY_DYNAMIC_DISPATCH(weigh_groups)(groups, group_bytes, span, packed, num_samples, out);
}

void normalise_rgb(const uint8_t* pixels, size_t num_pixels, float* red, float* green, float* blue) {
  HWY_DYNAMIC_DISPATCH(normalise_rgb)(pixels, num_pixels, red, green, blue);
}

}  // namespace darkroom
#endif
