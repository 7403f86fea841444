#include "darkroom/tables/content_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace darkroom {
namespace {

std::string hash_in_steps(std::string_view text, size_t step) {
  ContentHash hash;
  for (size_t begin = 0; begin < text.size(); begin += step) {
    hash.update(std::as_bytes(std::span(text.substr(begin, step))));
  }
  return hash.hex();
}

std::string sample(size_t num_bytes) {
  std::string bytes(num_bytes, '\0');
  for (size_t i = 0; i < num_bytes; ++i) {
    bytes[i] = static_cast<char>((i * i + 7 * i + 3) / 5 % 251);
  }
  return bytes;
}

// What `xxhsum -H2` of xxHash 0.8.1 prints for the same bytes; the lengths lie on both sides of where XXH3 changes its way.
TEST(ContentHash, is_xxh3_of_128_bits) {
  EXPECT_EQ(hash_in_steps("", 1), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_in_steps("a", 1), "a96faf705af16834e6c632b61e964e1f");
  EXPECT_EQ(hash_in_steps("abc", 3), "06b05ab6733a618578af5f94892f3950");
  const std::pair<size_t, const char*> want[] = {
      {16, "55ba255e4f54f3cab740fc9a272a2fe1"},   {17, "2b033cc1a24cd0afe3801cbe7406dc41"},   {128, "ea6789f2813b95098388af739133095d"},
      {129, "aa60e7f611df6af5c3040b7a3cfdaa56"},  {240, "0c6322ddcb2090751875d731e21e17e8"},  {241, "6d0933e8063578dc3d1c08691f91a5e5"},
      {1024, "a615e40a8ce7c7fbdd24a4d9b9eb8be9"}, {1025, "cb084100d5a52c91809677ccfa736c40"}, {100'000, "e21e62537f141e5aab8bef912ff8a1ac"},
  };
  for (const auto& [num_bytes, hex] : want) {
    for (const size_t step : {size_t{1}, size_t{63}, size_t{64}, size_t{257}, num_bytes}) {
      EXPECT_EQ(hash_in_steps(sample(num_bytes), step), hex) << num_bytes << " bytes in steps of " << step;
    }
  }
}

TEST(ContentHash, tells_the_hash_so_far_and_goes_on) {
  const std::string bytes = sample(1025);
  ContentHash hash;
  hash.update(std::as_bytes(std::span(bytes)).first(1024));
  EXPECT_EQ(hash.hex(), "a615e40a8ce7c7fbdd24a4d9b9eb8be9");
  hash.update({});
  ContentHash moved = std::move(hash);
  moved.update(std::as_bytes(std::span(bytes)).last(1));
  EXPECT_EQ(moved.hex(), "cb084100d5a52c91809677ccfa736c40");
}

}  // namespace
}  // namespace darkroom
