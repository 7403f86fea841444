#include "darkroom/text/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tiny_tokenizer.h"

// The goldens are recorded by tools/goldens/make_prompt_goldens.py from transformers 5.23.0 and open_clip_torch 3.3.0.
namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr PromptReading kWeightedReading = {.syntax = PromptSyntax::kWeighted};
constexpr PromptReading kPlainChunks = {.syntax = PromptSyntax::kPlain, .long_prompts = LongPrompts::kChunks};

const ClipTokenizer& hugging_face() { return tiny_tokenizer(TokenizerDialect::kHuggingFace); }

std::vector<nlohmann::json> read_prompt_goldens() {
  std::ifstream file(source_path("tests/golden/text/prompts.jsonl"));
  std::vector<nlohmann::json> goldens;
  for (std::string line; std::getline(file, line);) {
    goldens.push_back(nlohmann::json::parse(line));
  }
  return goldens;
}

std::vector<PromptChunk> chunks_of(const nlohmann::json& golden) {
  std::vector<PromptChunk> chunks;
  for (const auto& stored : golden) {
    PromptChunk chunk{.ids = stored.at("ids"), .weights = {}};
    chunk.ids.resize(ClipTokenizer::kContextLength, chunk.ids.back());
    for (const auto& run : stored.at("weights")) {
      chunk.weights.insert(chunk.weights.end(), run.at(1).get<size_t>(), static_cast<float>(run.at(0).get<double>()));
    }
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

std::vector<PromptChunk> chunks_of(const ClipTokenizer& tokenizer, const std::string& prompt, const PromptReading& reading) {
  return tokenize_prompt(tokenizer, prompt, reading).value().chunks;
}

TEST(PromptGoldens, parts_and_weights_equal_those_of_the_published_rule_to_the_bit) {
  const auto goldens = read_prompt_goldens();
  ASSERT_GT(goldens.size(), 250U);
  for (const auto& golden : goldens) {
    const auto parts = parse_weighted_prompt(golden.at("prompt").get<std::string>());
    if (golden.contains("fails")) {
      EXPECT_EQ(parts.status().code(), StatusCode::kInvalidArgument) << golden["prompt"];
      continue;
    }
    std::vector<PromptPart> want;
    for (const auto& part : golden.at("parts")) {
      want.push_back({part.at(0), part.at(1)});
    }
    EXPECT_EQ(parts.value(), want) << golden["prompt"];
  }
}

TEST(PromptGoldens, ids_and_weights_of_chunks_equal_those_of_the_published_rule) {
  for (const auto& golden : read_prompt_goldens()) {
    const std::string prompt = golden.at("prompt");
    EXPECT_EQ(chunks_of(hugging_face(), prompt, kPlainChunks), chunks_of(golden.at("plain"))) << prompt;
    if (golden.contains("fails")) {
      continue;
    }
    EXPECT_EQ(chunks_of(hugging_face(), prompt, kWeightedReading), chunks_of(golden.at("hf"))) << prompt;
    const auto& open_clip = golden.at(golden.contains("open_clip") ? "open_clip" : "hf");
    EXPECT_EQ(chunks_of(tiny_tokenizer(TokenizerDialect::kOpenClip), prompt, kWeightedReading), chunks_of(open_clip)) << prompt;
  }
}

TEST(WeightedPrompts, have_the_examples_that_are_published_with_the_rule) {
  const auto parts = [](const char* prompt) { return parse_weighted_prompt(prompt).value(); };
  EXPECT_THAT(parts("normal text"), ElementsAre(PromptPart{"normal text"}));
  EXPECT_THAT(parts("an (important) word"), ElementsAre(PromptPart{"an "}, PromptPart{"important", 1.1}, PromptPart{" word"}));
  EXPECT_THAT(parts("(unbalanced"), ElementsAre(PromptPart{"unbalanced", 1.1}));
  EXPECT_THAT(parts("\\(literal\\]"), ElementsAre(PromptPart{"(literal]"}));
  EXPECT_THAT(parts("(unnecessary)(parens)"), ElementsAre(PromptPart{"unnecessaryparens", 1.1}));
  EXPECT_THAT(parts("a (((house:1.3)) [on] a (hill:0.5), sun, (((sky)))."),
              ElementsAre(PromptPart{"a "}, PromptPart{"house", 1.5730000000000004}, PromptPart{" ", 1.1}, PromptPart{"on", 1.0},
                          PromptPart{" a ", 1.1}, PromptPart{"hill", 0.55}, PromptPart{", sun, ", 1.1},
                          PromptPart{"sky", 1.4641000000000006}, PromptPart{".", 1.1}));
}

TEST(WeightedPrompts, refuse_weights_that_are_no_finite_numbers_and_name_them) {
  for (const std::string weight : {"1.2.3", ".", "+", "-.", "..5"}) {
    const Status status = parse_weighted_prompt("a (red:" + weight + ") apple").status();
    if (weight == "+") {  // No digit at all: then it is text.
      EXPECT_TRUE(status.is_ok());
      continue;
    }
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << weight;
    EXPECT_THAT(status.message(), HasSubstr(weight));
  }
  EXPECT_FALSE(parse_weighted_prompt("(a:" + std::string(400, '9') + ")").is_ok());
  EXPECT_FALSE(parse_weighted_prompt("((a:1e) b:" + std::string(39, '9') + ")").is_ok());  // More than a float holds.
}

TEST(WeightedPrompts, may_have_so_many_open_brackets_and_no_more) {
  const auto nested = [](size_t depth) { return parse_weighted_prompt(std::string(depth, '[') + "a" + std::string(depth, ']')).status(); };
  EXPECT_TRUE(nested(kMostOpenBrackets).is_ok());
  EXPECT_EQ(nested(kMostOpenBrackets + 1).code(), StatusCode::kInvalidArgument);
}

TEST(WeightedPrompts, keep_bytes_that_are_no_utf8) {
  EXPECT_THAT(
      parse_weighted_prompt("\xff(\xc3 BREAK\x80)\xe2\x82").value(),
      ElementsAre(PromptPart{"\xff"}, PromptPart{"\xc3", 1.1}, PromptPart{"BREAK", -1.1}, PromptPart{"\x80", 1.1}, PromptPart{"\xe2\x82"}));
  EXPECT_THAT(parse_weighted_prompt("a \x80 BREAK").value(),  // The byte is no part of the space before it.
              ElementsAre(PromptPart{"a \x80"}, PromptPart{"BREAK", -1.0}, PromptPart{""}));
}

TEST(LongPrompt, a_plain_one_is_cut_as_clip_does_and_what_is_lost_is_named) {
  std::string prompt;
  for (int i = 0; i < 75; ++i) {
    prompt += "word ";
  }
  const auto whole = tokenize_prompt(hugging_face(), prompt, {}).value();
  EXPECT_EQ(whole.chunks.size(), 1U);
  EXPECT_EQ(whole.lost_text, "");
  const auto cut = tokenize_prompt(hugging_face(), prompt + "A Red, Apple\u00e9", {}).value();
  EXPECT_EQ(cut.chunks, whole.chunks);
  EXPECT_EQ(cut.lost_text, "a red , apple\u00e9");
  EXPECT_EQ(cut.chunks[0].ids, encode(hugging_face(), prompt));
}

TEST(LongPrompt, a_weighted_one_that_is_truncated_keeps_what_is_before_a_break) {
  const PromptReading reading = {.syntax = PromptSyntax::kWeighted, .long_prompts = LongPrompts::kTruncate};
  const auto cut = tokenize_prompt(hugging_face(), "a (cat:1.5) BREAK a dog", reading).value();
  ASSERT_EQ(cut.chunks.size(), 1U);
  EXPECT_EQ(cut.chunks[0].ids, encode(hugging_face(), "a cat"));
  EXPECT_THAT(std::span(cut.chunks[0].weights).first(4), ElementsAre(1.0F, 1.0F, 1.5F, 1.0F));
  EXPECT_EQ(cut.lost_text, "a dog");
  std::string words;
  for (int i = 0; i < 70; ++i) {
    words += "word ";
  }
  const auto filled = tokenize_prompt(hugging_face(), words + ", (one two three four five six:2)", reading).value();
  EXPECT_EQ(filled.chunks.size(), 1U);
  EXPECT_EQ(filled.chunks[0].weights[75], 2.0F);
  EXPECT_EQ(filled.lost_text, "five six");
}

TEST(LongPrompt, an_empty_chunk_is_that_of_an_empty_prompt) {
  for (const auto dialect : {TokenizerDialect::kHuggingFace, TokenizerDialect::kOpenClip}) {
    EXPECT_EQ(empty_chunk(tiny_tokenizer(dialect)).ids, encode(tiny_tokenizer(dialect), ""));
    EXPECT_FALSE(empty_chunk(tiny_tokenizer(dialect)).has_weights());
  }
}

TEST(AllTokens, are_those_of_the_whole_caption_and_spell_it) {
  const std::string caption = "A long caption, d\u00e9j\u00e0 vu " + std::string(500, 'x') + " \U0001F44D end";
  const std::vector<int32_t> all = hugging_face().encode_all(caption);
  const std::vector<int32_t> first = encode(hugging_face(), caption);
  EXPECT_GT(all.size(), 77U);
  EXPECT_TRUE(std::equal(first.begin() + 1, first.end() - 1, all.begin()));
  EXPECT_EQ(hugging_face().decode(all), "a long caption , d\u00e9j\u00e0 vu " + std::string(500, 'x') + " \U0001F44D end");
  EXPECT_EQ(hugging_face().decode({}), "");
}

}  // namespace
}  // namespace darkroom
