#include "darkroom/core/sha256.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "../../../src/core/sha256_blocks.h"
#include "darkroom/core/random.h"

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

// Datasets, checkpoints and job fingerprints hold digests, so these must not depend on the processor.
TEST(Sha256, the_processors_instructions_and_plain_code_agree) {
  if (!has_sha_instructions()) {
    GTEST_SKIP() << "this processor has no SHA instructions: every digest here comes from the plain code";
  }
  const CounterRandom random(1, Purpose::kSelect, 0, "blocks");
  std::vector<uint8_t> blocks(64 * 50);
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = static_cast<uint8_t>(random.bits(i) >> 24);
  }
  for (const size_t num_blocks : {0, 1, 2, 49}) {
    std::array<uint32_t, 8> plain = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<uint32_t, 8> fast = plain;
    absorb_portable(plain, blocks.data(), num_blocks);
    absorb_by_instructions(fast, blocks.data(), num_blocks);
    EXPECT_EQ(fast, plain) << num_blocks;
  }
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

}  // namespace
}  // namespace darkroom
