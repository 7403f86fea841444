#include "darkroom/web/robots.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace darkroom {
namespace {

bool allows(const std::string& robots, const std::string& path) { return RobotsRules::parse(robots, "darkroom").allows(path); }

std::optional<bool> trains(const std::string& robots, const std::string& path = "/a.jpg") {
  return RobotsRules::parse(robots, "darkroom").trains(path);
}

TEST(Robots, without_rules_everything_is_allowed) {
  for (const char* text : {"", "\n", "User-agent: *\n", "User-agent: *\nDisallow:\n", "User-agent: *\nDisallow:   # nothing\n",
                           "Disallow: /\n", "<!DOCTYPE html><html><body>Disallow: /</body></html>", "Disallow /",
                           "User-agent: *\nDisallow /\n", "User-agent: otherbot\nDisallow: /\n"}) {
    EXPECT_TRUE(allows(text, "/")) << text;
    EXPECT_TRUE(allows(text, "/a.jpg?b=c")) << text;
  }
}

TEST(Robots, lines_end_in_any_way_and_the_last_one_needs_no_end) {
  for (const char* text :
       {"User-agent: *\nDisallow: /p\n", "User-agent: *\r\nDisallow: /p\r\n", "User-agent: *\rDisallow: /p\r",
        "User-agent: *\nDisallow: /p", "\xEF\xBB\xBFUser-agent: *\nDisallow: /p", "\n\n  User-agent :\t*  \n\n\tDISALLOW\t:/p # private\n",
        "user-AGENT:*\ndisallow:/p", "User-agent: * # all\nDisallow: /p#art\n"}) {
    EXPECT_FALSE(allows(text, "/p/a.jpg")) << text;
    EXPECT_TRUE(allows(text, "/q")) << text;
  }
}

TEST(Robots, the_group_that_names_us_counts_alone) {
  const std::string text =
      "User-agent: *\nDisallow: /\n\nUser-agent: Darkroom\nDisallow: /private\n\nUser-agent: otherbot\nDisallow: /other\n";
  EXPECT_TRUE(allows(text, "/a"));
  EXPECT_TRUE(allows(text, "/other"));
  EXPECT_FALSE(allows(text, "/private/a"));
}

TEST(Robots, a_group_that_names_us_without_rules_allows_everything) {
  EXPECT_TRUE(allows("User-agent: *\nDisallow: /\nUser-agent: darkroom\n", "/a"));
  EXPECT_TRUE(allows("User-agent: *\nDisallow: /\nUser-agent: darkroom\nDisallow:\n", "/a"));
}

TEST(Robots, groups_of_one_agent_are_merged) {
  const std::string text =
      "User-agent: darkroom\nDisallow: /a\n\nUser-agent: x\nDisallow: /x\n\nUser-agent: darkroom\nDisallow: /b\nAllow: /a/ok\n";
  EXPECT_FALSE(allows(text, "/a"));
  EXPECT_FALSE(allows(text, "/b"));
  EXPECT_TRUE(allows(text, "/a/ok"));
  EXPECT_TRUE(allows(text, "/x"));
  EXPECT_FALSE(allows("User-agent: *\nDisallow: /a\nUser-agent: *\nDisallow: /b\n", "/a"));
}

TEST(Robots, agents_in_a_row_share_their_rules) {
  const std::string text = "User-agent: otherbot\nUser-agent: darkroom\n\nUser-agent: third\nDisallow: /p\n";
  EXPECT_FALSE(allows(text, "/p"));
  EXPECT_TRUE(allows("User-agent: darkroom\nDisallow:\nUser-agent: otherbot\nDisallow: /p\n", "/p"));
}

TEST(Robots, other_records_end_no_group) {
  EXPECT_FALSE(allows("User-agent: darkroom\nSitemap: https://x/s.xml\nUser-agent: otherbot\nDisallow: /p\n", "/p"));
  EXPECT_FALSE(allows("User-agent: darkroom\nCrawl-delay: 5\nDisallow: /p\n", "/p"));
  EXPECT_FALSE(allows("User-agent: darkroom\nDisallow: /a\nSitemap: https://x/s.xml\nDisallow: /p\n", "/p"));
}

TEST(Robots, the_agent_is_its_product_token) {
  const std::string ours = "\nDisallow: /p\n";
  for (const char* name : {"darkroom", "DARKROOM", "darkroom/1.0", "darkroom (+https://example.org)"}) {
    EXPECT_FALSE(allows("User-agent: " + std::string(name) + ours, "/p")) << name;
    EXPECT_FALSE(RobotsRules::parse("User-agent: darkroom" + ours, name).allows("/p")) << name;
  }
  for (const char* name :
       {"dark", "darkrooms", "darkroom-x", "mydarkroom", "x darkroom", "Mozilla/5.0 (compatible; darkroom)", "*bot", ""}) {
    EXPECT_TRUE(allows("User-agent: " + std::string(name) + ours, "/p")) << name;
  }
  EXPECT_FALSE(allows("User-agent: * (all)" + ours, "/p"));
  EXPECT_TRUE(RobotsRules::parse("User-agent: 123" + ours, "").allows("/p"));  // No token is no agent's.
}

TEST(Robots, allow_wins_over_an_equally_long_disallow) {
  EXPECT_TRUE(allows("User-agent: *\nDisallow: /p\nAllow: /p\n", "/p"));
  EXPECT_TRUE(allows("User-agent: *\nAllow: /p\nDisallow: /p\n", "/p"));
  EXPECT_FALSE(allows("User-agent: *\nAllow: /\nDisallow: /p\n", "/p"));
}

TEST(Robots, a_rule_matches_the_url_that_is_spelled_as_it_is) {
  EXPECT_FALSE(allows("User-agent: *\nDisallow: /*url=http%3A%2F%2F\n", "/go?url=http%3A%2F%2Fexample.org"));
}

TEST(Robots, its_own_file_is_always_allowed) {
  EXPECT_TRUE(allows("User-agent: *\nDisallow: /\n", "/robots.txt"));
  EXPECT_FALSE(allows("User-agent: *\nDisallow: /\n", "/robots.txt.jpg"));
}

std::string of_size(size_t num_bytes, const std::string& first) {
  std::string text = first;
  while (text.size() + 10 <= num_bytes) {
    text += "#........\n";
  }
  return text + std::string(num_bytes - text.size(), '\n');
}

TEST(Robots, counts_500_KiB_and_no_line_that_the_limit_cuts) {
  const std::string head = "User-agent: *\nDisallow: /first\n";
  const std::string rule = "Disallow: /last/part\n";
  for (const size_t short_by : {size_t{0}, size_t{1}, size_t{2}, size_t{8}, rule.size() - 1, rule.size(), rule.size() + 1}) {
    const std::string text = of_size(RobotsRules::kMaxBytes - short_by, head) + rule + std::string(1000, '#');
    EXPECT_FALSE(allows(text, "/first")) << short_by;
    EXPECT_TRUE(allows(text, "/la")) << short_by;
    EXPECT_TRUE(allows(text, "/")) << short_by;
    // Whole when its last letter is within the limit: the line's end need not be.
    EXPECT_EQ(allows(text, "/last/part"), short_by < rule.size() - 1) << short_by;
  }
  EXPECT_TRUE(allows("User-agent: *\n#" + std::string(600'000, '.') + "\nDisallow: /\n", "/a"));
  EXPECT_TRUE(allows(std::string(600'000, '.'), "/a"));
}

TEST(Robots, a_file_of_exactly_500_KiB_counts_whole) {
  const std::string rule = "Disallow: /last";
  EXPECT_FALSE(allows(of_size(RobotsRules::kMaxBytes - rule.size(), "User-agent: *\n") + rule, "/last"));
}

TEST(RobotsUsage, says_whether_we_may_train) {
  EXPECT_EQ(trains("User-agent: *\nContent-Usage: train-ai=n\n"), false);
  EXPECT_EQ(trains("User-agent: *\nContent-Usage: / train-ai=n\nAllow: /\n"), false);
  EXPECT_EQ(trains("User-agent: *\nContent-Signal: search=yes,ai-train=no\nAllow: /\n"), false);
  EXPECT_EQ(trains("User-agent: *\nContent-signal: search=yes, ai-train=yes\n"), true);
  EXPECT_EQ(trains("User-agent: *\nContent-Usage: search=n\n"), std::nullopt);
  EXPECT_EQ(trains("User-agent: *\nDisallow: /\n"), std::nullopt);
  EXPECT_EQ(trains(""), std::nullopt);
}

TEST(RobotsUsage, follows_the_drafts_example) {
  const std::string text =
      "User-Agent: *\nAllow: /\nDisallow: /never/\nContent-Usage: / train-ai=n\nContent-Usage: /ai-ok/ train-ai=y\n\n"
      "User-Agent: ExampleBot\nAllow: /\nContent-Usage: / train-ai=y\n";
  EXPECT_EQ(trains(text, "/test"), false);
  EXPECT_EQ(trains(text, "/ai-ok/test"), true);
  EXPECT_TRUE(allows(text, "/test"));
  EXPECT_FALSE(allows(text, "/never/test"));
  EXPECT_EQ(RobotsRules::parse(text, "examplebot").trains("/test"), true);
}

TEST(RobotsUsage, of_equally_long_patterns_the_one_that_forbids_counts) {
  EXPECT_EQ(trains("User-agent: *\nContent-Usage: / train-ai=y\nContent-Usage: / train-ai=n\n"), false);
  EXPECT_EQ(trains("User-agent: *\nContent-Usage: / train-ai=n\nContent-Signal: ai-train=yes\n"), false);
}

TEST(RobotsUsage, counts_for_the_group_it_stands_in_and_before_all_groups_for_everybody) {
  EXPECT_EQ(trains("User-agent: otherbot\nContent-Usage: train-ai=n\n"), std::nullopt);
  EXPECT_EQ(trains("User-agent: *\nContent-Usage: train-ai=n\nUser-agent: darkroom\nAllow: /\n"), std::nullopt);
  EXPECT_EQ(trains("Content-Signal: ai-train=no\nUser-agent: darkroom\nAllow: /\n"), false);
  EXPECT_EQ(trains("Content-Signal: ai-train=no\n"), false);
  EXPECT_EQ(trains("Content-Signal: ai-train=no\nUser-agent: darkroom\nContent-Usage: /a train-ai=y\n"), true);
}

TEST(RobotsUsage, a_preference_line_is_a_rule_and_ends_the_row_of_agents) {
  EXPECT_TRUE(allows("User-agent: darkroom\nContent-Usage: train-ai=n\nUser-agent: otherbot\nDisallow: /\n", "/a"));
}

TEST(Robots, any_bytes_are_read_without_harm) {
  std::mt19937_64 random(5);
  const std::string_view pieces[] = {"User-agent:",
                                     "Disallow:",
                                     "Allow:",
                                     "Content-Usage:",
                                     "*",
                                     "$",
                                     "/",
                                     "%",
                                     "%2",
                                     "%2f",
                                     "\n",
                                     "\r",
                                     " ",
                                     "#",
                                     "a",
                                     "darkroom",
                                     ":",
                                     "?",
                                     "\xEF\xBB\xBF",
                                     "\xff",
                                     std::string_view("\0", 1),
                                     "train-ai=n"};
  for (int i = 0; i < 20'000; ++i) {
    std::string text, path;
    for (uint64_t left = random() % 24; left > 0; --left) {
      text += pieces[random() % std::size(pieces)];
    }
    for (uint64_t left = random() % 6; left > 0; --left) {
      path += pieces[random() % std::size(pieces)];
    }
    const RobotsRules rules = RobotsRules::parse(text, "darkroom");
    (void)rules.allows(path);
    (void)rules.trains(path);
  }
}

}  // namespace
}  // namespace darkroom
