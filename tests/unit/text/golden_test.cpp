#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "darkroom/core/sha256.h"
#include "darkroom/core/utf8.h"
#include "support/rounds.h"
#include "tiny_tokenizer.h"

// Recorded by tools/goldens/make_text_goldens.py from transformers 5.23.0, open_clip_torch 3.3.0 and ftfy 6.3.1.
namespace darkroom {
namespace {

using Json = nlohmann::json;

std::vector<Json> read_captions() {
  std::ifstream file(source_path("tests/golden/text/captions.jsonl"));
  std::vector<Json> captions;
  for (std::string line; std::getline(file, line);) {
    captions.push_back(Json::parse(line));
  }
  return captions;
}

std::string caption_of(const Json& golden) {
  std::string caption;
  for (int i = 0; i < golden.value("repeat", 1); ++i) {
    caption += golden["caption"].get<std::string>();
  }
  return caption;
}

TEST(TextGoldens, hugging_face_ids_equal_those_of_transformers) {
  const auto& tokenizer = tiny_tokenizer(TokenizerDialect::kHuggingFace);
  const std::vector<Json> captions = read_captions();
  ASSERT_GT(captions.size(), 2900u);
  for (const Json& golden : captions) {
    EXPECT_EQ(encode(tokenizer, caption_of(golden)), padded(golden["hf"])) << golden["caption"];
  }
}

TEST(TextGoldens, open_clip_ids_equal_those_of_open_clip_but_for_the_named_exclusions) {
  const auto& tokenizer = tiny_tokenizer(TokenizerDialect::kOpenClip);
  int num_excluded = 0;
  for (const Json& golden : read_captions()) {
    if (golden.contains("excluded")) {
      ++num_excluded;
      EXPECT_NE(unported(tokenizer, caption_of(golden)), Unported::kNothing) << golden["caption"];
      continue;
    }
    const Json& ids = golden.contains("open_clip") ? golden["open_clip"] : golden["hf"];
    EXPECT_EQ(encode(tokenizer, caption_of(golden)), padded(ids)) << golden["caption"];
  }
  EXPECT_EQ(num_excluded, 6);
}

std::string probe(char32_t c) {
  const std::string text = encode_utf8(std::u32string(1, c));
  return "a" + text + "1" + text + "'" + text + "'S" + text + "B";
}

// The ids between start and end as the golden hashes them.
std::string ids_line(const ClipTokenizer& tokenizer, const std::string& caption) {
  const std::vector<int32_t> ids = encode(tokenizer, caption);
  std::string line;
  for (size_t i = 1; ids[i] != 49407; ++i) {
    line += fmt::format("{}{}", i > 1 ? " " : "", ids[i]);
  }
  return line + "\n";
}

// Whether each code point is one that the open_clip hashes leave out.
std::vector<bool> read_left_out(const Json& golden) {
  std::vector<bool> left_out(0x110000);
  for (const std::string range : golden["unassigned"]) {
    const auto first = std::stoul(range, nullptr, 16);
    const auto last = std::stoul(range.substr(range.find('-') + 1), nullptr, 16);
    std::fill(left_out.begin() + static_cast<std::ptrdiff_t>(first), left_out.begin() + static_cast<std::ptrdiff_t>(last) + 1, true);
  }
  for (const auto& [code_point, reason] : golden["excluded"].items()) {
    left_out[std::stoul(code_point, nullptr, 16)] = true;
  }
  return left_out;
}

TEST(TextGoldens, every_code_point_is_cleaned_and_split_as_the_references_do) {
  std::ifstream file(source_path("tests/golden/text/code_points.json"));
  const Json golden = Json::parse(file);
  ASSERT_GT(golden["blocks"].size(), 800u);
  const std::vector<bool> left_out = read_left_out(golden);
  int64_t number = 0;
  for (const auto& [block, want] : golden["blocks"].items()) {
    if (number++ % kCaseStride != 0) {
      continue;
    }
    Sha256 hugging_face;
    Sha256 open_clip;
    const auto first = static_cast<char32_t>(std::stoul(block, nullptr, 16) * 256);
    for (char32_t c = first; c < first + 256; ++c) {
      if (c >= 0xD800 && c <= 0xDFFF) {
        continue;
      }
      hugging_face.update(ids_line(tiny_tokenizer(TokenizerDialect::kHuggingFace), probe(c)));
      if (!left_out[c]) {
        open_clip.update(ids_line(tiny_tokenizer(TokenizerDialect::kOpenClip), probe(c)));
      }
    }
    EXPECT_EQ(hugging_face.finish_hex().substr(0, 12), want[0]) << "hf, block " << block << "00";
    EXPECT_EQ(open_clip.finish_hex().substr(0, 12), want[1]) << "open_clip, block " << block << "00";
  }
}

}  // namespace
}  // namespace darkroom
