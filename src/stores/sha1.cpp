#include "sha1.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace darkroom {

// FIPS 180-4, section 6.1.2.
void Sha1::absorb(const uint8_t* block) {
  std::array<uint32_t, 80> w;
  for (size_t t = 0; t < 16; ++t) {
    w[t] = uint32_t{block[4 * t]} << 24 | uint32_t{block[4 * t + 1]} << 16 | uint32_t{block[4 * t + 2]} << 8 | uint32_t{block[4 * t + 3]};
  }
  for (size_t t = 16; t < 80; ++t) {
    w[t] = std::rotl(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
  }
  auto [a, b, c, d, e] = state_;
  for (size_t t = 0; t < 80; ++t) {
    const uint32_t f = t < 20 ? (b & c) ^ (~b & d) : t < 40 || t >= 60 ? b ^ c ^ d : (b & c) ^ (b & d) ^ (c & d);
    const uint32_t k = t < 20 ? 0x5A827999 : t < 40 ? 0x6ED9EBA1 : t < 60 ? 0x8F1BBCDC : 0xCA62C1D6;
    const uint32_t next = std::rotl(a, 5) + f + e + k + w[t];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  state_ = {state_[0] + a, state_[1] + b, state_[2] + c, state_[3] + d, state_[4] + e};
}

void Sha1::update(std::span<const std::byte> bytes) {
  total_bytes_ += bytes.size();
  while (!bytes.empty()) {
    const size_t taken = std::min(bytes.size(), pending_.size() - pending_bytes_);
    std::memcpy(pending_.data() + pending_bytes_, bytes.data(), taken);
    bytes = bytes.subspan(taken);
    pending_bytes_ += taken;
    if (pending_bytes_ == pending_.size()) {
      absorb(pending_.data());
      pending_bytes_ = 0;
    }
  }
}

std::string Sha1::finish_hex() {
  const uint64_t num_bits = total_bytes_ * 8;
  constexpr std::array<std::byte, 1> kOne{std::byte{0x80}};
  constexpr std::array<std::byte, 1> kZero{std::byte{0}};
  update(kOne);
  while (pending_bytes_ != 56) {
    update(kZero);
  }
  std::array<std::byte, 8> length;
  for (size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<std::byte>(num_bits >> (56 - 8 * i));
  }
  update(length);
  return fmt::format("{:08x}{:08x}{:08x}{:08x}{:08x}", state_[0], state_[1], state_[2], state_[3], state_[4]);
}

}  // namespace darkroom
