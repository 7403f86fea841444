#include "demo/corpus_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

CorpusPictures corpus_of(const std::vector<std::string>& captions) {
  CorpusPictures corpus;
  corpus.captions = captions;
  for (size_t i = 0; i < captions.size(); ++i) {
    corpus.keys.push_back(std::to_string(i));
  }
  return corpus;
}

const CorpusPictures kCorpus = corpus_of({"boy: light", "boy: dark", "girl: light", "girl: dark", "cat", "dog"});

TEST(CorpusSplit, reads_the_captions_of_held_out_json) {
  const auto held_out = parse_held_out(R"({"captions": ["girl: dark", "boy: light"]})");
  ASSERT_TRUE(held_out.is_ok()) << held_out.status().to_string();
  EXPECT_THAT(*held_out, ElementsAre("boy: light", "girl: dark"));
}

TEST(CorpusSplit, refuses_what_is_not_held_out_json) {
  for (const char* text : {"", "[]", "{}", R"({"captions": "all"})", R"({"captions": [1]})"}) {
    const Status status = parse_held_out(text).status();
    EXPECT_EQ(status.code(), StatusCode::kCorruptData) << text;
    EXPECT_THAT(status.message(), HasSubstr("held_out.json"));
  }
}

TEST(CorpusSplit, every_row_is_held_out_or_for_training) {
  const auto split = split_corpus(kCorpus, {"boy: light", "girl: dark"});
  ASSERT_TRUE(split.is_ok()) << split.status().to_string();
  EXPECT_THAT(split->held_out, ElementsAre(0, 3));
  EXPECT_THAT(split->training, ElementsAre(1, 2, 4, 5));
}

TEST(CorpusSplit, names_a_held_out_caption_that_the_corpus_lacks) {
  const Status status = split_corpus(kCorpus, {"boy: light", "giraffe: dark"}).status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_THAT(status.message(), HasSubstr("giraffe: dark"));
}

TEST(CorpusSplit, draws_of_the_rows_given_always_the_same_ones) {
  const size_t rows[] = {10, 20, 30, 40, 50};
  const auto drawn = draw_from(rows, 1, "x", 3);
  EXPECT_EQ(drawn.size(), 3U);
  EXPECT_EQ(drawn, draw_from(rows, 1, "x", 3));
  EXPECT_NE(drawn, draw_from(rows, 1, "y", 3));
  EXPECT_THAT(draw_from(rows, 1, "x", 9), UnorderedElementsAre(10, 20, 30, 40, 50));
}

TEST(CorpusSplit, trains_on_the_prompts_and_never_on_held_out_rows) {
  const CorpusSplit split = *split_corpus(kCorpus, {"boy: light", "girl: dark"});
  const std::string prompts[] = {"dog"};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto rows = choose_subset_rows(kCorpus, split, prompts, seed, 3);
    ASSERT_TRUE(rows.is_ok()) << rows.status().to_string();
    EXPECT_EQ(rows->size(), 3U);
    EXPECT_THAT(*rows, ::testing::Contains(5));
    EXPECT_THAT(*rows, ::testing::IsSubsetOf(split.training));
    EXPECT_TRUE(std::is_sorted(rows->begin(), rows->end()));
  }
  EXPECT_THAT(*choose_subset_rows(kCorpus, split, prompts, 0, 100), ElementsAre(1, 2, 4, 5));
}

TEST(CorpusSplit, refuses_to_train_on_a_held_out_prompt_or_on_one_that_is_no_caption) {
  const CorpusSplit split = *split_corpus(kCorpus, {"boy: light"});
  const std::string held_out[] = {"boy: light"};
  EXPECT_EQ(choose_subset_rows(kCorpus, split, held_out, 0, 3).status().code(), StatusCode::kInternal);
  const std::string unknown[] = {"giraffe"};
  EXPECT_EQ(choose_subset_rows(kCorpus, split, unknown, 0, 3).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace darkroom
