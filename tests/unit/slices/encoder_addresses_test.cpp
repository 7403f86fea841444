#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/file_system.h"
#include "darkroom/slices/slice_fleet.h"
#include "darkroom/slices/slice_server.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

std::vector<std::string> shown(const std::string& text) {
  const auto addresses = read_encoder_addresses(text);
  EXPECT_TRUE(addresses.is_ok()) << addresses.status().to_string();
  std::vector<std::string> names;
  for (const EncoderAddress& address : addresses.is_ok() ? *addresses : std::vector<EncoderAddress>()) {
    names.push_back(address.to_string());
  }
  return names;
}

TEST(encoder_addresses, are_names_or_addresses_with_a_port) {
  EXPECT_EQ(shown("node-3:7000"), (std::vector<std::string>{"node-3:7000"}));
  EXPECT_EQ(shown("10.0.0.1:1, [::1]:65535,a.b:07"), (std::vector<std::string>{"10.0.0.1:1", "[::1]:65535", "a.b:7"}));
  EXPECT_EQ(shown("a:1,b:1,a:1"), (std::vector<std::string>{"a:1", "b:1"})) << "an address counts once";
}

TEST(encoder_addresses, that_are_none_are_refused_with_the_text) {
  for (const char* text : {"", "a", "a:", ":1", "a:0", "a:65536", "a:-1", "a:1x", "a:1,", ",a:1", "::1:7000", "http://a:1", "[]:1", "a b:1"}) {
    const auto addresses = read_encoder_addresses(text);
    EXPECT_EQ(addresses.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(addresses.status().message(), HasSubstr("HOST:PORT")) << text;
  }
}

TEST(encoder_addresses, are_read_from_a_file_line_by_line) {
  const TemporaryFolder folder;
  const std::string path = folder.path("encoders.txt");
  ASSERT_TRUE(write_file_atomic(local_files(), path, "# of the job\n\n a:1 \r\nb:2").is_ok());
  EXPECT_EQ(shown("@" + path), (std::vector<std::string>{"a:1", "b:2"}));
  ASSERT_TRUE(write_file_atomic(local_files(), path, "").is_ok());
  EXPECT_EQ(shown("@" + path), std::vector<std::string>()) << "a cluster that has none yet";
  ASSERT_TRUE(write_file_atomic(local_files(), path, "a:1\nb\n").is_ok());
  EXPECT_THAT(read_encoder_addresses("@" + path).status().message(), HasSubstr(path + ":2"));
  EXPECT_EQ(read_encoder_addresses("@" + folder.path("none")).status().code(), StatusCode::kNotFound);
}

TEST(listen_addresses, are_addresses_of_this_machine_with_a_port) {
  EXPECT_EQ(parse_listen_address("localhost:0")->to_string(), "127.0.0.1:0");
  EXPECT_EQ(parse_listen_address("0.0.0.0:7000")->to_string(), "0.0.0.0:7000");
  EXPECT_EQ(parse_listen_address("[::1]:7000")->to_string(), "[::1]:7000");
  for (const char* text : {"", "7000", "node-3:7000", "127.0.0.1:", "127.0.0.1:65536", "::1:7000", "[127.0.0.1]:1"}) {
    EXPECT_EQ(parse_listen_address(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace darkroom
