#include "darkroom/web/opt_out.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace darkroom {
namespace {

constexpr OptOutRules kAll{.robots = true, .noai = true, .aipref = true};

bool tag_forbids(const std::string& value) { return header_opt_out("X-Robots-Tag", value, kAll, "darkroom").has_value(); }

TEST(RobotsTag, forbids_training_to_everybody_or_to_us) {
  for (const char* value :
       {"noai", "noimageai", "NoAI", "noindex, noai", "noindex,noimageai", " noai ", "nofollow ,\tnoai,", "darkroom: noai",
        "Darkroom: noai", "darkroom:noimageai", "*: noai", "otherbot: noindex, darkroom: noai",
        "otherbot: noindex, darkroom: nofollow, noai", "max-snippet:5, noai", "unavailable_after: 25 Jun 2010 15:00:00 PST, noai",
        "noai, otherbot: noindex", "max-image-preview:large, darkroom: noai",
        // Dates of RFC 822 and RFC 850 have a comma and colons.
        "unavailable_after: Fri, 25 Jun 2010 15:00:00 GMT, noai", "unavailable_after: Friday, 25-Jun-10 15:00:00 UTC, noimageai",
        "darkroom: unavailable_after: Fri, 25 Jun 2010 15:00:00 GMT, noai"}) {
    EXPECT_TRUE(tag_forbids(value)) << value;
  }
}

TEST(RobotsTag, allows_whatever_else) {
  for (const char* value :
       {"", ",", ":", "noindex", "noimageindex", "all", "none", "noaix", "no ai", "otherbot: noai", "otherbot: noindex, noai",
        "darkroomx: noai", "darkroom: noindex, otherbot: noai", "unavailable_after: noai", "max-snippet: noai", "noindex: darkroom",
        "\"noai\"", "otherbot: unavailable_after: Fri, 25 Jun 2010 15:00:00 GMT, noai"}) {
    EXPECT_FALSE(tag_forbids(value)) << value;
  }
}

TEST(RobotsTag, counts_only_when_asked_for_and_only_in_its_header) {
  EXPECT_FALSE(header_opt_out("X-Robots-Tag", "noai", {.noai = false, .aipref = true}, "darkroom"));
  EXPECT_FALSE(header_opt_out("X-Robots", "noai", kAll, "darkroom"));
  EXPECT_FALSE(header_opt_out("Content-Usage", "noai", kAll, "darkroom"));
  EXPECT_TRUE(header_opt_out("x-robots-tag", "noai", kAll, "darkroom"));
  EXPECT_FALSE(header_opt_out("X-Robots-Tag", "train-ai=n", kAll, "darkroom"));
}

TEST(TrainingPreference, reads_both_vocabularies) {
  for (const char* value : {"train-ai=n", "train-ai=no", "ai-train=no", "ai-train=n", "search=yes, ai-train=no", "search=yes,ai-train=no",
                            "Train-AI=N", "train-ai = n", "train-ai=n;reason=legal", "ai-train=no, ai-input=yes", "train-genai=n", "bots=n",
                            "x=\"a,b\", train-ai=n", "train-ai=n,", ",,train-ai=n", "search=?1, train-ai=n"}) {
    EXPECT_EQ(training_preference(value), false) << value;
  }
  for (const char* value : {"train-ai=y", "ai-train=yes", "train-genai=y", "bots=y", "search=n, train-ai=y"}) {
    EXPECT_EQ(training_preference(value), true) << value;
  }
  for (const char* value :
       {"", ",", "=", "=n", "train-ai", "train-ai=", "train-ai=\"n\"", "train-ai=?0", "train-ai=0", "train-ai=maybe", "search=n",
        "ai-use=n", "ai-input=no", "xtrain-ai=n", "train-ai-=n", "x=\"train-ai=n\"", "x=\"y\\\", train-ai=n\"", "x;train-ai=n"}) {
    EXPECT_EQ(training_preference(value), std::nullopt) << value;
  }
}

TEST(TrainingPreference, a_quotation_mark_without_its_end_hides_nothing) {
  for (const char* value : {"x=\", train-ai=n", "x=\"a,b\", y=\", train-ai=n", "x=\"\\\", train-ai=n", "train-ai=n, x=\""}) {
    EXPECT_EQ(training_preference(value), false) << value;
  }
  std::string many;
  for (int i = 0; i < 50'000; ++i) {
    many += "\"\\\",";  // Each mark opens a text that never ends; sought for each part, that would be 5e9 steps.
  }
  EXPECT_EQ(training_preference(many + "train-ai=n"), false);
}

TEST(TrainingPreference, the_key_that_fits_best_decides) {
  EXPECT_EQ(training_preference("bots=n, train-ai=y"), true);
  EXPECT_EQ(training_preference("train-ai=y, bots=n"), true);
  EXPECT_EQ(training_preference("train-ai=y, train-genai=n"), false);
  EXPECT_EQ(training_preference("train-genai=y, train-ai=n, bots=n"), true);
}

TEST(TrainingPreference, the_last_of_equal_keys_counts) {
  EXPECT_EQ(training_preference("train-ai=y, train-ai=n"), false);
  EXPECT_EQ(training_preference("train-ai=n, train-ai=y"), true);
  EXPECT_EQ(training_preference("train-ai=n, train-ai"), std::nullopt);  // As the vocabulary's own example.
}

TEST(ContentUsage, is_obeyed_as_a_header_when_asked_for) {
  for (const char* name : {"Content-Usage", "content-usage", "Content-Signal", "CONTENT-SIGNAL"}) {
    const auto error = header_opt_out(name, "search=y, train-ai=n", kAll, "darkroom");
    ASSERT_TRUE(error) << name;
    EXPECT_EQ(error->code, RowErrorCode::kOptedOut);
    EXPECT_EQ(error->detail, std::string(name) + ": search=y, train-ai=n");
    EXPECT_FALSE(header_opt_out(name, "train-ai=n", OptOutRules{}, "darkroom")) << name;
    EXPECT_FALSE(header_opt_out(name, "train-ai=y", kAll, "darkroom")) << name;
    EXPECT_FALSE(header_opt_out(name, "", kAll, "darkroom")) << name;
  }
  EXPECT_FALSE(header_opt_out("Content-Type", "train-ai=n", kAll, "darkroom"));
}

TEST(ContentUsage, a_detail_is_short_whatever_the_server_sends) {
  const auto error = header_opt_out("X-Robots-Tag", "noai, " + std::string(100'000, 'x'), kAll, "darkroom");
  ASSERT_TRUE(error);
  EXPECT_LE(error->detail.size(), 250u);
}

TEST(OptOutHeaders, any_bytes_are_read_without_harm) {
  std::mt19937_64 random(11);
  const std::string_view pieces[] = {
      "noai", ",", ":", "\"", "\\", ";", "=", "n", " ", "train-ai", "darkroom", "\xff", std::string_view("\0", 1)};
  for (int i = 0; i < 20'000; ++i) {
    std::string value;
    for (uint64_t left = random() % 12; left > 0; --left) {
      value += pieces[random() % std::size(pieces)];
    }
    (void)training_preference(value);
    (void)header_opt_out("X-Robots-Tag", value, kAll, "darkroom");
  }
}

}  // namespace
}  // namespace darkroom
