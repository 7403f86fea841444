#include "darkroom/serve/png_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "darkroom/image/png.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ModelFacts facts() { return {.name = "tiny", .native_size = 64, .size_multiple = 8, .samplers = {"ddim"}, .default_sampler = "pndm"}; }

PictureSpec spec() {
  return {.prompt = "a (red:1.3) apple,\nripe",
          .negative = "blurry: very",
          .sampler = "dpmpp_2m_karras",
          .num_steps = 20,
          .guidance = 7,
          .seed = 18446744073709551615U,
          .width = 64,
          .height = 128,
          .has_weight_syntax = true};
}

nlohmann::json info_of(const std::vector<PngText>& text) {
  const std::string png = encode_png(Image::filled(2, 3, 3, 7), text);
  return png_info(std::as_bytes(std::span(png))).value();
}

TEST(png_settings, a_pictures_settings_are_webuis_text) {
  EXPECT_THAT(
      settings_text(spec(), facts()),
      StartsWith("a (red:1.3) apple,\nripe\nNegative prompt: blurry: very\nSteps: 20, Sampler: DPM++ 2M, Schedule type: Karras, CFG "
                 "scale: 7, Seed: 18446744073709551615, Size: 64x128, Model: tiny, Version: darkroom "));
  EXPECT_THAT(settings_text({.prompt = "x", .num_steps = 4, .guidance = 7.5, .eta = 1}, facts(), 0.75),
              StartsWith("x\nSteps: 4, Sampler: PLMS, Schedule type: Automatic, CFG scale: 7.5, Seed: 0, Size: 0x0, Model: tiny, Denoising "
                         "strength: 0.75, Prompt syntax: plain, Eta: 1, Version: darkroom "));
}

TEST(png_settings, what_is_written_is_read_back) {
  for (const char* name : {"tiny", "a, b: \"c\"\\", "\xC3\xA9t\xC3\xA9"}) {
    ModelFacts model = facts();
    model.name = name;
    const nlohmann::json settings = parse_settings(settings_text(spec(), model));
    EXPECT_EQ(settings["Prompt"], "a (red:1.3) apple,\nripe");
    EXPECT_EQ(settings["Negative prompt"], "blurry: very");
    EXPECT_EQ(settings["Steps"], "20");
    EXPECT_EQ(settings["Sampler"], "DPM++ 2M");
    EXPECT_EQ(settings["Schedule type"], "Karras");
    EXPECT_EQ(settings["CFG scale"], "7");
    EXPECT_EQ(settings["Seed"], "18446744073709551615");
    EXPECT_EQ(settings["Size-1"], "64");
    EXPECT_EQ(settings["Size-2"], "128");
    EXPECT_EQ(settings["Model"], name);
    EXPECT_FALSE(settings.contains("Prompt syntax"));  // As webui reads it.
  }
}

TEST(png_settings, a_last_line_of_fewer_than_three_pairs_is_the_prompts) {
  EXPECT_EQ(parse_settings("a cat\nSteps: 1, Seed: 2")["Prompt"], "a cat\nSteps: 1, Seed: 2");
  EXPECT_EQ(parse_settings("a cat\nSteps: 1, Seed: 2, Size: 8x8")["Prompt"], "a cat");
  EXPECT_EQ(parse_settings("Steps: 1, Seed: 2, Size: 8xx8")["Size"], "8xx8");
  EXPECT_EQ(parse_settings("Steps: 1, Seed: 2, Size: 8x8")["Prompt"], "");
  EXPECT_EQ(parse_settings("")["Prompt"], "");
  EXPECT_EQ(parse_settings("a: \"b, c: \"d\", e: f, g: h")["g"], "h");
  EXPECT_EQ(parse_settings("a: \"b\\, c: d, e: f")["c"], "d");
}

TEST(png_settings, png_info_reads_the_chunk_of_webui) {
  const std::string text = settings_text(spec(), facts());
  const nlohmann::json info = info_of({{"parameters", text}, {"Title", "mine"}});
  EXPECT_EQ(info["info"], text);
  EXPECT_EQ(info["items"], (nlohmann::json{{"Title", "mine"}}));
  EXPECT_EQ(info["parameters"], parse_settings(text));
}

TEST(png_settings, png_info_reads_the_chunks_of_sample) {
  const nlohmann::json info = info_of({{"prompt", "a cat"},
                                       {"negative_prompt", "dog"},
                                       {"seed", "7"},
                                       {"sampler", "euler_a"},
                                       {"steps", "12"},
                                       {"guidance", "7.5"},
                                       {"eta", "0"},
                                       {"size", "64x128"},
                                       {"model", "models/tiny"}});
  EXPECT_THAT(info["info"].get<std::string>(), StartsWith("a cat\nNegative prompt: dog\nSteps: 12, Sampler: Euler a, "));
  EXPECT_EQ(info["parameters"]["Seed"], "7");
  EXPECT_EQ(info["parameters"]["Size-2"], "128");
  EXPECT_EQ(info["parameters"]["Model"], "models/tiny");
  EXPECT_EQ(info["parameters"]["Prompt syntax"], "plain");
  EXPECT_FALSE(info["parameters"].contains("Eta"));
  EXPECT_EQ(info["items"]["guidance"], "7.5");
}

TEST(png_settings, a_png_without_settings_has_none_and_what_is_no_png_is_refused) {
  EXPECT_EQ(info_of({}), (nlohmann::json{{"info", ""}, {"items", nlohmann::json::object()}, {"parameters", nlohmann::json::object()}}));
  std::string png = encode_png(Image::filled(2, 3, 3, 7), {{"parameters", "x"}});
  EXPECT_EQ(png_info(std::as_bytes(std::span("JFIF", 4))).status().code(), StatusCode::kInvalidArgument);
  png[png.find("parameters")] ^= 1;
  EXPECT_THAT(std::string(png_info(std::as_bytes(std::span(png))).status().message()), HasSubstr("image must be a PNG"));
}

TEST(png_settings, a_png_with_more_text_than_is_read_is_refused) {
  const std::string half(500'000, 'x');
  const std::string png = encode_png(Image::filled(2, 3, 3, 7), {{"a", half}, {"b", half}});
  EXPECT_THAT(std::string(png_info(std::as_bytes(std::span(png))).status().message()), HasSubstr("(bytes, bound): 1000002 1000000"));
}

TEST(png_settings, a_nul_of_a_prompt_can_be_written) {
  const std::string text = settings_text({.prompt = std::string("a\0b", 3)}, facts());
  EXPECT_THAT(text, StartsWith("a\xEF\xBF\xBD"
                               "b\n"));
  EXPECT_EQ(info_of({{"parameters", text}})["info"], text);
}

}  // namespace
}  // namespace darkroom
