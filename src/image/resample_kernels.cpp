#include "resample_kernels.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "resample_kernels.cpp"
#define HWY_WANT_AVX3_DL  // The byte dot product of AVX-512 VNNI.
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "filter_weights.h"

HWY_BEFORE_NAMESPACE();
namespace darkroom {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Blocks of 16 bytes that one vector holds. In a band each belongs to another group of rows.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
constexpr int kBlocks = 4;
#elif HWY_TARGET == HWY_AVX2
constexpr int kBlocks = 2;
#else
constexpr int kBlocks = 1;
#endif
using Block = hn::FixedTag<uint8_t, 16>;
using Blocks = hn::FixedTag<uint8_t, 16 * kBlocks>;
using BytesVector = hn::Vec<Blocks>;
using Sums = hn::FixedTag<int32_t, 4 * kBlocks>;
using SumVector = hn::Vec<Sums>;

// Clamps sums to bytes; block by block the words a, b, c, d.
HWY_INLINE BytesVector to_bytes(SumVector a, SumVector b, SumVector c, SumVector d) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return BytesVector{_mm512_packus_epi16(_mm512_packs_epi32(a.raw, b.raw), _mm512_packs_epi32(c.raw, d.raw))};
#elif HWY_TARGET == HWY_AVX2
  return BytesVector{_mm256_packus_epi16(_mm256_packs_epi32(a.raw, b.raw), _mm256_packs_epi32(c.raw, d.raw))};
#elif HWY_ARCH_X86
  return BytesVector{_mm_packus_epi16(_mm_packs_epi32(a.raw, b.raw), _mm_packs_epi32(c.raw, d.raw))};
#else
  const hn::Rebind<uint8_t, Sums> bytes;
  const hn::Half<Blocks> half;
  const auto low = hn::Combine(half, hn::DemoteTo(bytes, b), hn::DemoteTo(bytes, a));
  return hn::Combine(Blocks(), hn::Combine(half, hn::DemoteTo(bytes, d), hn::DemoteTo(bytes, c)), low);
#endif
}

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

// The samples of kVectors vectors of words, vector_bytes apart, over num_quads rows of words; not clamped yet.
template <int kVectors>
HWY_INLINE void weigh_words(const uint8_t* words, size_t vector_bytes, size_t quad_bytes, int num_quads, const uint32_t* packed,
                            SumVector (&out)[kVectors]) {
  const Sums sums;
  SumVector sum[kVectors][kParts];
  for (auto& parts : sum) {
    parts[0] = hn::Set(sums, 1 << (FilterWeights::kFractionBits - 1));
    for (int part = 1; part < kParts; ++part) {
      parts[part] = hn::Zero(sums);
    }
  }
  for (int q = 0; q < num_quads; ++q, words += quad_bytes, packed += kPackedWords) {
    for (int v = 0; v < kVectors; ++v) {
      accumulate(sum[v], hn::LoadU(sums, reinterpret_cast<const int32_t*>(words + static_cast<size_t>(v) * vector_bytes)), packed);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    out[v] = hn::ShiftRight<FilterWeights::kFractionBits>(total(sum[v]));
  }
}

constexpr size_t kChannelBytes = size_t{kBandRows} * 4;  // Of a band's quad.

// One word a channel of output x, of the rows of the vector's groups. Grey takes four outputs at once.
template <int kChannels>
HWY_INLINE BytesVector weigh_pixel(const uint8_t* band, std::span<const QuadSpan> outputs, size_t x, const uint32_t* packed) {
  constexpr size_t kQuadBytes = kChannels * kChannelBytes;
  if constexpr (kChannels == 1) {
    SumVector sample[4][1];
    for (size_t i = 0; i < 4; ++i) {
      const QuadSpan& span = outputs[std::min(x + i, outputs.size() - 1)];
      weigh_words<1>(band + static_cast<size_t>(span.first) * kQuadBytes, 0, kQuadBytes, span.count, packed + span.packed, sample[i]);
    }
    return to_bytes(sample[0][0], sample[1][0], sample[2][0], sample[3][0]);
  } else {
    SumVector sample[kChannels];
    const QuadSpan& span = outputs[x];
    weigh_words<kChannels>(band + static_cast<size_t>(span.first) * kQuadBytes, kChannelBytes, kQuadBytes, span.count, packed + span.packed,
                           sample);
    return to_bytes(sample[0], sample[1], sample[2], sample[kChannels - 1]);
  }
}

HWY_INLINE void store_blocks(BytesVector bytes, uint8_t* const* groups, size_t at) {
  const Block block;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const hn::Half<Blocks> half;
  const auto low = hn::LowerHalf(half, bytes);
  const auto high = hn::UpperHalf(half, bytes);
  hn::StoreU(hn::LowerHalf(block, low), block, groups[0] + at);
  hn::StoreU(hn::UpperHalf(block, low), block, groups[1] + at);
  hn::StoreU(hn::LowerHalf(block, high), block, groups[2] + at);
  hn::StoreU(hn::UpperHalf(block, high), block, groups[3] + at);
#elif HWY_TARGET == HWY_AVX2
  hn::StoreU(hn::LowerHalf(block, bytes), block, groups[0] + at);
  hn::StoreU(hn::UpperHalf(block, bytes), block, groups[1] + at);
#else
  hn::StoreU(bytes, block, groups[0] + at);
#endif
}

template <int kChannels>
HWY_INLINE void weigh_pixels(const uint8_t* band, std::span<const QuadSpan> outputs, const uint32_t* packed,
                             uint8_t* const groups[kBandGroups], std::span<const uint8_t> upcoming) {
  constexpr size_t kCacheLine = 64;
  constexpr size_t kPixels = kChannels == 1 ? 4 : 1;
  const size_t fetched = upcoming.size() * kPixels / outputs.size();
  const uint8_t* next = upcoming.data();
  for (size_t x = 0; x < outputs.size(); x += kPixels, next += fetched) {
    for (int g = 0; g < kBandGroups; g += kBlocks) {
      const BytesVector bytes = weigh_pixel<kChannels>(band + g * 16, outputs, x, packed);
      store_blocks(bytes, groups + g, x * kChannels * 4);  // Of RGB 12 bytes count, the next pixel overwrites the others.
    }
    for (size_t at = 0; at < fetched; at += kCacheLine) {
      hwy::Prefetch(next + at);
    }
  }
}

void weigh_band(const uint8_t* band, int num_channels, std::span<const QuadSpan> outputs, const uint32_t* packed,
                uint8_t* const groups[kBandGroups], std::span<const uint8_t> upcoming) {
  switch (num_channels) {
    case 1:
      return weigh_pixels<1>(band, outputs, packed, groups, upcoming);
    case 3:
      return weigh_pixels<3>(band, outputs, packed, groups, upcoming);
    default:
      return weigh_pixels<4>(band, outputs, packed, groups, upcoming);
  }
}

// to_bytes takes its vectors block by block; this puts the words of four neighbouring vectors into their order again.
HWY_INLINE BytesVector in_order(BytesVector bytes) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  return BytesVector{_mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), bytes.raw)};
#elif HWY_TARGET == HWY_AVX2
  return BytesVector{_mm256_permutevar8x32_epi32(bytes.raw, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))};
#else
  return bytes;
#endif
}

void weigh_groups(const uint8_t* groups, size_t group_bytes, const QuadSpan& span, const uint32_t* packed, size_t num_samples,
                  uint8_t* out) {
  constexpr size_t kStep = 16 * kBlocks;
  const Blocks bytes;
  const auto weigh = [&](size_t at) {
    SumVector sample[4];
    weigh_words<4>(groups + at * 4, kStep, group_bytes, span.count, packed + span.packed, sample);
    return in_order(to_bytes(sample[0], sample[1], sample[2], sample[3]));
  };
  size_t done = 0;
  for (; done + kStep <= num_samples; done += kStep) {
    hn::StoreU(weigh(done), bytes, out + done);
  }
  if (done < num_samples) {
    uint8_t last[kStep];
    hn::StoreU(weigh(done), bytes, last);
    std::memcpy(out + done, last, num_samples - done);
  }
}

// In each block the columns of a 4 x 4 matrix of words, whose rows are the four vectors.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void transpose_words(D bytes, V (&block)[4]) {
  const hn::Repartition<uint32_t, D> words;
  const hn::Repartition<uint64_t, D> pairs;
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

// One block of each group: row 0 of a block is rows[0], of the next one rows[kGroupRows].
HWY_INLINE BytesVector load_blocks(const uint8_t* const* rows, size_t at) {
  const Block bytes;
  const auto load = [&](int block) { return hn::LoadU(bytes, rows[block * kGroupRows] + at); };
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const hn::Half<Blocks> half;
  return hn::Combine(Blocks(), hn::Combine(half, load(3), load(2)), hn::Combine(half, load(1), load(0)));
#elif HWY_TARGET == HWY_AVX2
  return hn::Combine(Blocks(), load(1), load(0));
#else
  return load(0);
#endif
}

// How the bytes of a block go into words: one word a channel, the channel's bytes of four pixels. A block of RGB holds four
// whole pixels, one of grey is four quads already.
template <int kChannels>
HWY_INLINE BytesVector planar_order() {
  alignas(16) static constexpr uint8_t kOrders[3][16] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                                         {0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11, 12, 13, 14, 15},
                                                         {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15}};
  return hn::LoadDup128(Blocks(), kOrders[kChannels == 1 ? 0 : kChannels - 2]);
}

// The words of all rows at one place of them.
template <int kWords>
HWY_INLINE void arrange_words(const uint8_t* const rows[kBandRows], size_t at, BytesVector order, uint8_t* band) {
  const Blocks bytes;
  for (int group = 0; group < kBandGroups; group += kBlocks) {
    BytesVector block[4];
    for (int r = 0; r < kGroupRows; ++r) {
      block[r] = hn::TableLookupBytes(load_blocks(rows + group * kGroupRows + r, at), order);
    }
    transpose_words(bytes, block);
    for (int word = 0; word < kWords; ++word) {
      hn::StoreU(block[word], bytes, band + word * kBandRows * 4 + group * 16);
    }
  }
}

template <int kChannels>
HWY_INLINE void arrange(const uint8_t* const rows[kBandRows], size_t num_bytes, uint8_t* band) {
  constexpr int kWords = kChannels == 3 ? 3 : 4;
  const auto order = planar_order<kChannels>();
  size_t at = 0;
  for (; at + 16 <= num_bytes; at += kWords * 4, band += kWords * kBandRows * 4) {
    arrange_words<kWords>(rows, at, order, band);
  }
  uint8_t rest[kBandRows][32] = {};
  const uint8_t* rests[kBandRows];
  for (int r = 0; r < kBandRows; ++r) {
    std::memcpy(rest[r], rows[r] + at, num_bytes - at);
    rests[r] = rest[r];
  }
  for (size_t rest_at = 0; rest_at + at < num_bytes; rest_at += kWords * 4, band += kWords * kBandRows * 4) {
    arrange_words<kWords>(rests, rest_at, order, band);
  }
}

void arrange_band(const uint8_t* const rows[kBandRows], size_t num_bytes, int num_channels, uint8_t* band) {
  switch (num_channels) {
    case 1:
      return arrange<1>(rows, num_bytes, band);
    case 3:
      return arrange<3>(rows, num_bytes, band);
    default:
      return arrange<4>(rows, num_bytes, band);
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

// (value / 255 - 0.5) / 0.5 without a division. 1/255 = 1/256 + 1/65280: the first product is exact and the second one small, so their
// sum is the rounded quotient of each of the 256 values, with a fused multiplication or without (a test compares them all).
template <class V>
HWY_INLINE void store_normalised(V values, float* out) {
  const hn::CappedTag<float, 16> floats;
  const hn::RebindToSigned<decltype(floats)> integers;
  const auto value = hn::ConvertTo(floats, hn::PromoteTo(integers, values));
  const auto large_part = hn::Mul(value, hn::Set(floats, 1.0F / 256.0F));
  const auto share = hn::MulAdd(value, hn::Set(floats, 1.0F / 65280.0F), large_part);
  const auto centred = hn::Sub(share, hn::Set(floats, 0.5F));
  hn::StoreU(hn::Add(centred, centred), floats, out);
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

void weigh_band(const uint8_t* band, int num_channels, std::span<const QuadSpan> outputs, const uint32_t* packed,
                uint8_t* const groups[kBandGroups], std::span<const uint8_t> upcoming) {
  HWY_DYNAMIC_DISPATCH(weigh_band)(band, num_channels, outputs, packed, groups, upcoming);
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
