#include "darkroom/core/sha256.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "darkroom/core/random.h"
#include "darkroom/core/sha256_blocks.h"

namespace darkroom {
namespace {

// Examples of FIPS 180-4 and NIST's long-message vector.
TEST(Sha256, equals_the_standard_examples) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, pieces_of_any_size_give_the_same_digest) {
  const std::string text(300, 'x');
  for (const size_t piece : {1, 3, 55, 56, 63, 64, 65, 128, 299}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) {
      hash.update(std::string_view(text).substr(at, piece));
    }
    EXPECT_EQ(hash.finish_hex(), sha256_hex(text)) << piece;
  }
}

constexpr Sha256State kStart = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

// The one block of "abc" and its digest, FIPS 180-2, appendix B.1. Also on a processor where Sha256 takes the other way.
TEST(Sha256, portable_code_gives_the_standard_example) {
  std::array<uint8_t, 64> block{'a', 'b', 'c', 0x80};
  block.back() = 24;
  Sha256State state = kStart;
  absorb_portable(state, block.data(), 1);
  EXPECT_EQ(state, (Sha256State{0xba7816bf, 0x8f01cfea, 0x414140de, 0x5dae2223, 0xb00361a3, 0x96177a9c, 0xb410ff61, 0xf20015ad}));
}

TEST(Sha256, the_processors_instructions_equal_portable_code) {
  if (!has_sha_instructions()) {
    GTEST_SKIP() << "this processor has no SHA instructions";
  }
  const CounterRandom random(3, Purpose::kSelect, 0, "blocks");
  std::vector<uint8_t> blocks(5 * 64);
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = static_cast<uint8_t>(random.below(i, 256));
  }
  for (const size_t num_blocks : {0, 1, 2, 5}) {
    Sha256State want = kStart;
    Sha256State got = kStart;
    absorb_portable(want, blocks.data(), num_blocks);
    absorb_with_instructions(got, blocks.data(), num_blocks);
    EXPECT_EQ(got, want) << num_blocks;
  }
}

}  // namespace
}  // namespace darkroom
