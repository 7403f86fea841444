#include "darkroom/tables/content_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <string_view>

#include "darkroom/core/check.h"

namespace darkroom {

struct ContentHash::State {
  XXH3_state_t xxh3;  // Aligned to 64 bytes, which `new` sees to.
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {
  DARKROOM_CHECK(XXH3_128bits_reset(&state_->xxh3) == XXH_OK, "XXH3 does not start");
}

ContentHash::~ContentHash() = default;
ContentHash::ContentHash(ContentHash&&) noexcept = default;
ContentHash& ContentHash::operator=(ContentHash&&) noexcept = default;

void ContentHash::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) {  // 0.8.1 takes no null pointer.
    DARKROOM_CHECK(XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size()) == XXH_OK, "XXH3 refused bytes (number):", bytes.size());
  }
}

std::string ContentHash::hex() const {
  constexpr std::string_view kDigits = "0123456789abcdef";
  XXH128_canonical_t canonical{};
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh3));
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace darkroom
