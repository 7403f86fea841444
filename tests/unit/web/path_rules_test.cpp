#include "darkroom/web/path_rules.h"
#include "support/rounds.h"

#include <gtest/gtest.h>
#include <time.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

namespace darkroom {
namespace {

using Patterns = std::vector<std::pair<std::string, bool>>;

std::optional<bool> match(const Patterns& patterns, const std::string& path, bool tie = true) {
  PathRules rules(tie);
  for (const auto& [pattern, verdict] : patterns) {
    rules.add(pattern, verdict);
  }
  rules.finish();
  return rules.match(canonical_path(path));
}

bool covers(const std::string& pattern, const std::string& path) { return match({{pattern, false}}, path).has_value(); }

TEST(CanonicalPath, is_the_one_form_of_equal_paths) {
  // The table of RFC 9309, section 2.2.2: each path as a rule matches itself as a URL in both spellings.
  const std::pair<const char*, const char*> equal[] = {{"/foo/bar?baz=quz", "/foo/bar?baz=quz"},
                                                       {"/foo/bar?baz=https://foo.bar", "/foo/bar?baz=https%3A%2F%2Ffoo.bar"},
                                                       {"/foo/bar/\xE3\x83\x84", "/foo/bar/%E3%83%84"},
                                                       {"/foo/bar/%62%61%7A", "/foo/bar/baz"},
                                                       {"/a%2ab", "/a%2Ab"},
                                                       {"/%7ejoe", "/~joe"},
                                                       {"/a b", "/a%20b"},
                                                       {"/a(1)", "/a%281%29"},
                                                       {"/100%", "/100%25"},
                                                       {"/%zz", "/%25zz"},
                                                       {"/%4", "/%254"},
                                                       {"/a#part", "/a"},
                                                       {"", "/"},
                                                       {"?a", "/?a"},
                                                       {"a", "/a"},
                                                       {"/a?b?c", "/a?b%3Fc"},
                                                       {"/\xFF", "/%ff"}};
  for (const auto& [one, other] : equal) {
    EXPECT_EQ(canonical_path(one), canonical_path(other)) << one;
  }
}

TEST(CanonicalPath, keeps_different_paths_apart) {
  const std::pair<const char*, const char*> different[] = {
      {"/a%2Fb", "/a/b"}, {"/a%3Fb", "/a?b"}, {"/a%2526", "/a%26"}, {"/A", "/a"}, {"/a/", "/a"}};
  for (const auto& [one, other] : different) {
    EXPECT_NE(canonical_path(one), canonical_path(other)) << one;
  }
  EXPECT_EQ(canonical_path("/a*$"), "/a%2A%24");  // No pattern, whatever the URL holds.
}

TEST(PathRules, a_pattern_matches_from_the_start_to_its_own_end) {
  EXPECT_TRUE(covers("/", "/"));
  EXPECT_TRUE(covers("/", "/anything?at=all"));
  EXPECT_TRUE(covers("/fish", "/fish"));
  EXPECT_TRUE(covers("/fish", "/fish.html"));
  EXPECT_TRUE(covers("/fish", "/fishheads/yummy.html"));
  EXPECT_TRUE(covers("/fish", "/fish.php?id=anything"));
  EXPECT_FALSE(covers("/fish", "/Fish.asp"));
  EXPECT_FALSE(covers("/fish", "/catfish"));
  EXPECT_FALSE(covers("/fish", "/?id=fish"));
  EXPECT_FALSE(covers("/fish/", "/fish"));
  EXPECT_TRUE(covers("/\xE3\x83\x84", "/%e3%83%84"));
  EXPECT_FALSE(covers("/a%2Fb", "/a/b"));
}

TEST(PathRules, stars_and_the_dollar_at_the_end_are_special) {
  EXPECT_TRUE(covers("/fish*", "/fish"));
  EXPECT_TRUE(covers("/*.php", "/index.php"));
  EXPECT_TRUE(covers("/*.php", "/filename.php?parameters"));
  EXPECT_FALSE(covers("/*.php", "/windows.PHP"));
  EXPECT_TRUE(covers("/*.php$", "/filename.php"));
  EXPECT_FALSE(covers("/*.php$", "/filename.php?parameters"));
  EXPECT_FALSE(covers("/*.php$", "/filename.php5"));
  EXPECT_TRUE(covers("/*.php$", "/a.php.php"));
  EXPECT_TRUE(covers("/fish*.php", "/fishheads/catfish.php?parameters"));
  EXPECT_FALSE(covers("/fish*.php", "/Fish.PHP"));
  EXPECT_TRUE(covers("/$", "/"));
  EXPECT_FALSE(covers("/$", "/a"));
  EXPECT_TRUE(covers("*", "/"));
  EXPECT_TRUE(covers("*.gif$", "/a/b.gif"));
  EXPECT_TRUE(covers("/**a***b", "/xaxb"));
  EXPECT_TRUE(covers("/a*a$", "/aa"));
  EXPECT_FALSE(covers("/a*a$", "/a"));
  EXPECT_TRUE(covers("/*aab", "/aaaaab"));
  EXPECT_TRUE(covers("/*abab$", "/abaabab"));
  EXPECT_TRUE(covers("/*u=/x", "/a?u=/x"));
  EXPECT_TRUE(covers("/a*$", "/abc"));
}

TEST(PathRules, behind_a_star_an_escaped_slash_is_one_of_the_path_or_any_of_the_query) {
  for (const char* path : {"/go?url=http%3A%2F%2Fx", "/go?url=http://x", "/go?a/b?url=http:%2F/x"}) {
    EXPECT_TRUE(covers("/*url=http%3A%2F%2F", path)) << path;
    EXPECT_TRUE(covers("/*url=http://", path)) << path;
  }
  EXPECT_TRUE(covers("/*%2Fb", "/a%2fb"));
  EXPECT_FALSE(covers("/*%2Fb", "/a/b"));
  EXPECT_FALSE(covers("/*%2Fb", "/a/b?c"));
  EXPECT_TRUE(covers("/*%2F*/x", "/a%2Fb?c=/x"));
  EXPECT_TRUE(covers("/*%2F*%2Fx$", "/a%2Fb?c=/x"));
  EXPECT_FALSE(covers("/*%3F", "/a?b"));  // The "?" that begins the query is none of it.
  EXPECT_TRUE(covers("/*%3F", "/a?b?c"));
  EXPECT_FALSE(covers("/a%2F*", "/a/b?/"));
}

TEST(PathRules, special_characters_are_meant_literally_when_escaped_or_elsewhere) {
  EXPECT_TRUE(covers("/path/file-with-a-%2A.html", "/path/file-with-a-*.html"));  // RFC 9309, section 2.2.3.
  EXPECT_FALSE(covers("/path/file-with-a-%2A.html", "/path/file-with-a-b.html"));
  EXPECT_TRUE(covers("/path/foo-%24", "/path/foo-$"));
  EXPECT_FALSE(covers("/path/foo-%24", "/path/foo-"));
  EXPECT_TRUE(covers("/a$b", "/a$bc"));
  EXPECT_FALSE(covers("/a$b", "/a"));
}

TEST(PathRules, the_longest_pattern_decides_in_any_order) {
  const Patterns patterns = {{"/", false}, {"/pic", true}, {"/pictures/", false}, {"/pictures/public/", true}, {"/*.png", false}};
  const std::pair<const char*, bool> expected[] = {{"/", false},
                                                   {"/pic", true},
                                                   {"/pictures", true},
                                                   {"/pictures/", false},
                                                   {"/pictures/a", false},
                                                   {"/pictures/public/a", true},
                                                   {"/pictures/public/a.png", true},
                                                   {"/pic.png", false},
                                                   {"/a.png", false}};
  Patterns turned(patterns.rbegin(), patterns.rend());
  for (const auto& [path, verdict] : expected) {
    EXPECT_EQ(match(patterns, path), verdict) << path;
    EXPECT_EQ(match(turned, path), verdict) << path;
  }
  EXPECT_EQ(match({{"/a", false}}, "/b"), std::nullopt);
  EXPECT_EQ(match({}, "/"), std::nullopt);
}

TEST(PathRules, between_equally_long_patterns_the_given_verdict_counts) {
  for (const bool tie : {false, true}) {
    EXPECT_EQ(match({{"/a", false}, {"/a", true}}, "/a", tie), tie);
    EXPECT_EQ(match({{"/a", true}, {"/a", false}}, "/a", tie), tie);
    EXPECT_EQ(match({{"/a", true}, {"/a", true}}, "/a", tie), true);
    EXPECT_EQ(match({{"/a*", false}, {"/*a", true}}, "/aa", tie), tie);
    EXPECT_EQ(match({{"/a*", true}, {"/*a", false}}, "/aa", tie), tie);
    EXPECT_EQ(match({{"/a*", false}, {"/ab", true}}, "/abc", tie), tie);
    EXPECT_EQ(match({{"/a*", true}, {"/ab", false}}, "/abc", tie), tie);
    EXPECT_EQ(match({{"/a%62", false}, {"/ab", true}}, "/ab", tie), tie);  // One pattern in two spellings.
  }
}

TEST(PathRules, a_pattern_without_a_slash_gets_one_and_an_empty_one_is_none) {
  EXPECT_TRUE(covers("private", "/private/a"));
  EXPECT_FALSE(covers("", "/"));
}

// The definition, by trying every length of every star.
bool naive_covers(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) {
    return true;
  }
  if (pattern == "$") {
    return path.empty();
  }
  if (pattern.front() == '*') {
    for (size_t skip = 0; skip <= path.size(); ++skip) {
      if (naive_covers(pattern.substr(1), path.substr(skip))) {
        return true;
      }
    }
    return false;
  }
  return !path.empty() && path.front() == pattern.front() && naive_covers(pattern.substr(1), path.substr(1));
}

std::optional<bool> naive_match(const Patterns& patterns, std::string_view path, bool tie) {
  std::optional<bool> verdict;
  size_t longest = 0;
  for (const auto& [pattern, said] : patterns) {
    if (naive_covers(pattern, path)) {
      if (pattern.size() > longest || !verdict) {
        verdict = said;
        longest = pattern.size();
      } else if (pattern.size() == longest && said != *verdict) {
        verdict = tie;
      }
    }
  }
  return verdict;
}

std::string random_text(std::mt19937_64& random, std::string_view letters, size_t longest) {
  std::string text = "/";
  for (size_t left = random() % longest; left > 0; --left) {
    text += letters[random() % letters.size()];
  }
  return text;
}

TEST(PathRules, equals_the_definition_on_random_patterns) {
  std::mt19937_64 random(20260);
  int num_matches = 0;
  for (int64_t round = 0; round < few_rounds(20'000); ++round) {
    Patterns patterns;
    for (uint64_t left = random() % 9; left > 0; --left) {
      patterns.emplace_back(random_text(random, "ab/*", 7) + (random() % 5 == 0 ? "$" : ""), random() % 2 == 0);
    }
    const bool tie = random() % 2 == 0;
    for (int i = 0; i < 4; ++i) {
      const std::string path = random_text(random, "ab/", 9);
      const auto expected = naive_match(patterns, path, tie);
      num_matches += expected ? 1 : 0;
      std::string shown;
      for (const auto& [pattern, verdict] : patterns) {
        shown += pattern + (verdict ? "+ " : "- ");
      }
      ASSERT_EQ(match(patterns, path, tie), expected) << "round " << round << ": " << shown << "on " << path;
    }
  }
  EXPECT_GT(num_matches, few_rounds(20'000));  // Otherwise it compares nothing with nothing.
}

TEST(PathRules, takes_over_the_patterns_of_others) {
  PathRules one(false), other(false);
  one.add("/a", true);
  other.add("/a/b", false);
  other.add("/*.png", false);
  one.add_all(other);
  one.finish();
  EXPECT_EQ(one.match("/a"), true);
  EXPECT_EQ(one.match("/a/b"), false);
  EXPECT_EQ(one.match("/x.png"), false);
  EXPECT_GT(one.num_bytes(), 0u);
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

TEST(PathRules, patterns_and_paths_made_to_be_slow_end_soon_with_no) {
  const std::string path = "/" + std::string(16'000, 'a');
  PathRules rules(true);
  for (int i = 0; i < 20'000; ++i) {
    rules.add("/*" + std::string(20, 'a') + "b" + std::to_string(i), true);
  }
  rules.finish();
  const double begin = cpu_seconds();
  EXPECT_EQ(rules.match(path), false);  // Though no pattern matches, and all of them would allow.
  EXPECT_LT(cpu_seconds() - begin, 1);  // 20,000 x 16,000 comparisons without the limit.
}

TEST(PathRules, one_long_pattern_is_matched_exactly) {
  std::string pattern = "/";
  for (int i = 0; i < 4000; ++i) {
    pattern += "*a";
  }
  EXPECT_TRUE(covers(pattern + "*b", "/" + std::string(8000, 'a') + "b"));
  EXPECT_FALSE(covers(pattern + "*b", "/" + std::string(8000, 'a')));
  EXPECT_TRUE(covers("/*" + std::string(8000, 'a') + "b", "/" + std::string(15'000, 'a') + "b"));
  EXPECT_FALSE(covers("/*" + std::string(8000, 'a') + "b", "/" + std::string(15'000, 'a')));
}

}  // namespace
}  // namespace darkroom
