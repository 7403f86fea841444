#include "darkroom/prompts/picture_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace darkroom {
namespace {

constexpr uint64_t kMostSeed = std::numeric_limits<uint64_t>::max();

std::string refused(std::string_view name, const FieldValue& value) {
  PictureFields fields;
  const Status status = set_picture_field(fields, name, value, std::vector<std::string>{"ddim", "euler"});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
  EXPECT_EQ(fields, PictureFields()) << name;
  return status.message();
}

bool takes(std::string_view name, const FieldValue& value) {
  PictureFields fields;
  return set_picture_field(fields, name, value, std::vector<std::string>{"ddim", "euler"}).is_ok();
}

TEST(PictureFields, each_takes_its_values_and_says_what_it_takes_instead) {
  const std::string nothing;
  EXPECT_EQ(refused("steps", uint64_t{0}), "must be a whole number from 1 to 1000000, got: 0");
  EXPECT_EQ(refused("steps", 2.5), "must be a whole number from 1 to 1000000, got: 2.5");
  EXPECT_EQ(refused("seed", -1.0), "must be a whole number from 0, got: -1");
  EXPECT_EQ(refused("seed", std::string("7")), "must be a whole number from 0, got: '7'");
  EXPECT_EQ(refused("guidance", std::string("high")), "must be a number, got: 'high'");
  EXPECT_EQ(refused("guidance", std::nan("")), "must be a number, got: nan");
  EXPECT_EQ(refused("eta", 1.5), "must be a number from 0 to 1, got: 1.5");
  EXPECT_EQ(refused("guidance_rescale", -0.1), "must be a number from 0 to 1, got: -0.1");
  EXPECT_EQ(refused("strength", uint64_t{0}), "must be a number above 0 to 1, got: 0");
  EXPECT_EQ(refused("width", uint64_t{1'000'001}), "must be a whole number from 0 to 1000000, got: 1000001");
  EXPECT_EQ(refused("prompt", uint64_t{3}), "must be a text in quotes, got: 3");
  EXPECT_EQ(refused("prompt", std::string("a\0b", 3)), "must not hold a NUL character");
  EXPECT_EQ(refused("prompt_syntax", std::string("a1111")), "must be one of plain, weighted, got: 'a1111'");
  EXPECT_EQ(refused("long_prompts", nothing), "must be one of auto, truncate, chunks, got: ''");
  EXPECT_EQ(refused("sampler", std::string("eular")), "must be one of ddim, euler, got: 'eular'");
  for (const char* size : {"", "512", "x", "512x", "x512", "0x64", "64x-1", "64x64x64", "64 x64", "64X64", "1000001x64"}) {
    EXPECT_EQ(refused("size", std::string(size)), "must be a size in quotes such as \"512x768\", got: '" + std::string(size) + "'");
  }
  for (const auto& [name, value] : std::vector<std::pair<const char*, FieldValue>>{{"steps", uint64_t{1}},
                                                                                   {"seed", kMostSeed},
                                                                                   {"guidance", -2.0},
                                                                                   {"guidance", uint64_t{7}},
                                                                                   {"eta", uint64_t{1}},
                                                                                   {"strength", 1.0},
                                                                                   {"width", uint64_t{0}},
                                                                                   {"sampler", std::string("euler")},
                                                                                   {"size", std::string("512x768")}}) {
    EXPECT_TRUE(takes(name, value)) << name;
  }
}

TEST(PictureFields, size_sets_both_sides) {
  PictureFields fields;
  ASSERT_TRUE(set_picture_field(fields, "size", std::string("512x768")).is_ok());
  EXPECT_EQ(fields.width, 512U);
  EXPECT_EQ(fields.height, 768U);
}

TEST(PictureFields, come_back_from_json_to_the_bit) {
  PictureFields fields{.prompt = "Äpfel \"rot\"\n",
                       .negative = "blurry",
                       .seed = kMostSeed,
                       .sampler = "euler_a",
                       .steps = 7,
                       .guidance = 0.1 + 0.2,
                       .guidance_rescale = 0.7,
                       .eta = 1,
                       .width = 64,
                       .height = 128,
                       .prompt_syntax = "weighted",
                       .long_prompts = "chunks",
                       .init_image = "a.png",
                       .strength = 0.3};
  const auto text = picture_fields_to_json(fields).dump();
  EXPECT_EQ(picture_fields_from_json(nlohmann::ordered_json::parse(text)).value(), fields);
  EXPECT_EQ(picture_field_names().size(), nlohmann::ordered_json::parse(text).size());
}

TEST(PictureFields, json_that_lacks_a_field_or_has_a_bad_one_is_refused_by_name) {
  auto object = picture_fields_to_json({});
  object["steps"] = "many";
  EXPECT_EQ(picture_fields_from_json(object).status().message(), "steps must be a whole number from 1 to 1000000, got: 'many'");
  object["steps"] = nlohmann::ordered_json::array();
  EXPECT_EQ(picture_fields_from_json(object).status().message(), "steps must be a number or a text");
  object.erase("steps");
  EXPECT_EQ(picture_fields_from_json(object).status().message(), "steps is missing");
}

}  // namespace
}  // namespace darkroom
