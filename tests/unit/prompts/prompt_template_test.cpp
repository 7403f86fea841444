#include "darkroom/prompts/prompt_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string filled(std::string_view text, std::vector<std::string_view> words = {}) {
  const PromptTemplate parsed = PromptTemplate::parse(text).value();
  const std::string result = parsed.fill(words);
  EXPECT_EQ(parsed.filled_bytes(words), result.size());
  return result;
}

std::string failure(std::string_view text) {
  const auto parsed = PromptTemplate::parse(text);
  EXPECT_FALSE(parsed.is_ok()) << text;
  return parsed.is_ok() ? "" : parsed.status().message();
}

TEST(PromptTemplate, text_without_places_is_itself) {
  EXPECT_EQ(filled(""), "");
  EXPECT_EQ(filled("a red apple"), "a red apple");
  EXPECT_EQ(filled("Äpfel 🍎 (red:1.3) [b] \\("), "Äpfel 🍎 (red:1.3) [b] \\(");
}

TEST(PromptTemplate, places_are_filled_with_the_words_of_their_names) {
  const PromptTemplate parsed = PromptTemplate::parse("{a} and {b-2}, {a}").value();
  EXPECT_THAT(parsed.names(), ElementsAre("a", "b-2"));
  EXPECT_EQ(filled("{a} and {b-2}, {a}", {"x", "yy"}), "x and yy, x");
  EXPECT_EQ(filled("{a}", {"🍎"}), "🍎");
  EXPECT_EQ(filled("{a}", {""}), "");
  EXPECT_EQ(filled("{a}", {"{b}"}), "{b}");  // What is filled in is text: no place is looked for in it.
}

TEST(PromptTemplate, doubled_braces_are_characters) {
  EXPECT_EQ(filled("{{a}}"), "{a}");
  EXPECT_EQ(filled("{{{a}}}", {"x"}), "{x}");
  EXPECT_EQ(filled("{{{{"), "{{");
  EXPECT_EQ(filled("}}"), "}");
}

TEST(PromptTemplate, lone_braces_are_refused_with_their_place) {
  EXPECT_THAT(failure("a {b"), HasSubstr("has a '{' at character 3 that stands alone; write {{"));
  EXPECT_THAT(failure("é }"), HasSubstr("has a '}' at character 3"));
  EXPECT_THAT(failure("\xff\xbf }"), HasSubstr("has a '}' at character 4"));  // As everywhere: each ill-formed part is a character.
  EXPECT_THAT(failure("{"), HasSubstr("character 1"));
  EXPECT_THAT(failure("{}"), HasSubstr("'{' at character 1"));
  EXPECT_THAT(failure("{a b}"), HasSubstr("'{' at character 1"));
  EXPECT_THAT(failure("{a{b}}"), HasSubstr("'{' at character 1"));
  EXPECT_THAT(failure("{ä}"), HasSubstr("'{' at character 1"));
  EXPECT_THAT(failure("{{a}"), HasSubstr("'}' at character 4"));
  EXPECT_THAT(failure(std::string_view("a\0", 2)), HasSubstr("NUL at character 2"));
}

TEST(PromptTemplate, names_have_at_most_64_characters) {
  const std::string longest(64, 'n');
  EXPECT_EQ(filled("{" + longest + "}", {"x"}), "x");
  EXPECT_THAT(failure("{" + longest + "n}"), HasSubstr("character 1"));
}

}  // namespace
}  // namespace darkroom
