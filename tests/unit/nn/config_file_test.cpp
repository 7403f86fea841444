#include "darkroom/nn/config_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/files/memory_files.h"

namespace darkroom {
namespace {

using testing::HasSubstr;

Result<nlohmann::json> read(const std::string& text) {
  MemoryFileSystem files;
  EXPECT_TRUE(write_file_atomic(files, "/config.json", text).is_ok());
  return read_config_file(files, "/config.json");
}

TEST(ConfigFileTest, reads_numbers_that_are_not_finite_as_null) {
  const auto config = read(R"({"lambda_min_clipped": -Infinity, "a": [NaN, Infinity, -1.5]})");
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config.value(), nlohmann::json::parse(R"({"lambda_min_clipped": null, "a": [null, null, -1.5]})"));
}

TEST(ConfigFileTest, leaves_texts_alone) {
  const auto config = read(R"({"-Infinity": "NaN \" Infinity", "b\\": "NaN"})");
  ASSERT_TRUE(config.is_ok()) << config.status().message();
  EXPECT_EQ(config->at("-Infinity"), "NaN \" Infinity");
  EXPECT_EQ(config->at("b\\"), "NaN");
}

TEST(ConfigFileTest, refuses_what_is_no_object_naming_the_file) {
  for (const char* text : {"", "NaN", "[1]", "{\"a\": Infinite}", "{\"a\": nan}", "{\"a\\"}) {
    const auto config = read(text);
    ASSERT_FALSE(config.is_ok()) << text;
    EXPECT_EQ(config.status().code(), StatusCode::kCorruptData) << text;
    EXPECT_THAT(config.status().message(), HasSubstr("/config.json"));
  }
}

}  // namespace
}  // namespace darkroom
