#include "darkroom/core/hmac_sha256.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace darkroom {
namespace {

std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return hex;
}

// RFC 4231, section 4. Case 5 publishes the first 128 bits only.
TEST(HmacSha256, equals_rfc_4231) {
  std::string counted;
  for (char c = 1; c <= 25; ++c) {
    counted += c;
  }
  const std::string long_key(131, '\xaa');
  EXPECT_EQ(to_hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(to_hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(to_hex(hmac_sha256(std::string(20, '\xaa'), std::string(50, '\xdd'))),
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  EXPECT_EQ(to_hex(hmac_sha256(counted, std::string(50, '\xcd'))), "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  EXPECT_EQ(to_hex(hmac_sha256(std::string(20, '\x0c'), "Test With Truncation")).substr(0, 32), "a3b6167473100ee06e0c796c2955552b");
  EXPECT_EQ(to_hex(hmac_sha256(long_key, "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  EXPECT_EQ(to_hex(hmac_sha256(long_key,
                               "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
                               "hashed before being used by the HMAC algorithm.")),
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

// A key as long as a block is used as it is; one byte more and it is hashed. Values of Python 3.11's hmac module.
TEST(HmacSha256, keys_of_a_block_and_one_more) {
  EXPECT_EQ(to_hex(hmac_sha256("", "")), "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  EXPECT_EQ(to_hex(hmac_sha256(std::string(64, 'k'), "m")), "3b7a8d453e76edb519238a515105a57508d0f169f480ebeee120a9e7803289fa");
  EXPECT_EQ(to_hex(hmac_sha256(std::string(65, 'k'), "m")), "c2d7d4c2256ddb097409ec0c67e1d58fa1a007fc6932cac0d892a525d08af7cc");
}

TEST(EqualInConstantTime, looks_at_every_byte_and_at_the_lengths) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("token", "token"));
  EXPECT_FALSE(equal_in_constant_time("token", "tokem"));
  EXPECT_FALSE(equal_in_constant_time("token", "xoken"));
  EXPECT_FALSE(equal_in_constant_time("token", "toke"));
  EXPECT_FALSE(equal_in_constant_time("", "t"));
}

}  // namespace
}  // namespace darkroom
