#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "darkroom/tables/where.h"

namespace darkroom {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Accepted {
  std::string text;
  std::string canonical;
};

const std::vector<Accepted>& accepted() {
  static const std::vector<Accepted> all = {
      // Comparisons.
      {"a = 1", "a = 1"},
      {"a=1", "a = 1"},
      {"  a  =  1  ", "a = 1"},
      {"a\t=\n1\r", "a = 1"},
      {"a != 1", "a != 1"},
      {"a <> 1", "a != 1"},
      {"a < 1", "a < 1"},
      {"a<=1", "a <= 1"},
      {"a > 1", "a > 1"},
      {"a>=1", "a >= 1"},
      {"1 < a", "1 < a"},
      {"1=1", "1 = 1"},
      {"'a'='b'", "'a' = 'b'"},
      {"a = b", "a = b"},
      {"a<b", "a < b"},
      {"a = TRUE", "a = TRUE"},
      {"a != false", "a != FALSE"},
      {"TRUE = a", "TRUE = a"},
      {"true = FALSE", "TRUE = FALSE"},
      {"a<-1", "a < -1"},
      {"a>+1", "a > 1"},
      // Numbers.
      {"a = 0", "a = 0"},
      {"a = -0", "a = 0"},
      {"a = -0.0e5", "a = 0"},
      {"a = 007", "a = 7"},
      {"a = 0.1", "a = 0.1"},
      {"a = .1", "a = 0.1"},
      {"a = 0.10", "a = 0.1"},
      {"a = 00.100", "a = 0.1"},
      {"a = 1.", "a = 1"},
      {"a = 1.0", "a = 1"},
      {"a = 1e0", "a = 1"},
      {"a = 1e3", "a = 1000"},
      {"a = 1E+3", "a = 1000"},
      {"a = 1e-3", "a = 0.001"},
      {"a = 12.5e1", "a = 125"},
      {"a = 12.5e-1", "a = 1.25"},
      {"a = 1e20", "a = 100000000000000000000"},
      {"a = 1e21", "a = 1e21"},
      {"a = 123456789012345678901", "a = 123456789012345678901"},
      {"a = 1234567890123456789012", "a = 1.234567890123456789012e21"},
      {"a = 0.000001", "a = 0.000001"},
      {"a = 0.0000001", "a = 1e-7"},
      {"a = -1.5e-7", "a = -1.5e-7"},
      {"a = 9223372036854775807", "a = 9223372036854775807"},
      {"a = 9223372036854775808", "a = 9223372036854775808"},
      {"a = -9223372036854775808", "a = -9223372036854775808"},
      {"a = -9223372036854775809", "a = -9223372036854775809"},
      {"a = 18446744073709551616", "a = 18446744073709551616"},
      {"a = 9007199254740993.00", "a = 9007199254740993"},
      {"a = 0.1234567890123456789012345", "a = 0.1234567890123456789012345"},
      {"a = 1e9998", "a = 1e9998"},
      {"a = 9.9e-9999", "a = 9.9e-9999"},
      {"a = 0e99999999999999999999", "a = 0"},
      // Texts.
      {"a = ''", "a = ''"},
      {"a = 'x'", "a = 'x'"},
      {"a = 'it''s'", "a = 'it''s'"},
      {"a = ''''", "a = ''''"},
      {"a = '\"'", "a = '\"'"},
      {"a = 'AND'", "a = 'AND'"},
      {"a = 'a\nb'", "a = 'a\nb'"},
      {"a = '\xC3\xA9\xF0\x9F\x98\x80'", "a = '\xC3\xA9\xF0\x9F\x98\x80'"},
      {"a = ' 1 '", "a = ' 1 '"},
      {"a='x'and b='y'", "a = 'x' AND b = 'y'"},
      // Names.
      {"URL = 'x'", "URL = 'x'"},
      {"url = 'x'", "url = 'x'"},
      {"_a1 = 1", "_a1 = 1"},
      {"ANDY = 1", "ANDY = 1"},
      {"nota = 1", "nota = 1"},
      {"inside = 1", "inside = 1"},
      {"nan = 1", "nan = 1"},
      {"between = 1", "between = 1"},
      {"\"url\" = 'x'", "\"url\" = 'x'"},
      {"\"my column\" = 1", "\"my column\" = 1"},
      {"\"and\" = 1", "\"and\" = 1"},
      {"\"a\"\"b\" = 1", "\"a\"\"b\" = 1"},
      {"\"'\" = 1", "\"'\" = 1"},
      {"\"json.width\" >= 512", "\"json.width\" >= 512"},
      {"\"\xC3\xA9\" = 1", "\"\xC3\xA9\" = 1"},
      // Columns and truths alone.
      {"a", "a"},
      {"\"a b\"", "\"a b\""},
      {"TRUE", "TRUE"},
      {"false", "FALSE"},
      {"NOT a", "NOT a"},
      {"a AND b", "a AND b"},
      {"(a)", "a"},
      // IN.
      {"a IN (1)", "a IN (1)"},
      {"a in(1,2,3)", "a IN (1, 2, 3)"},
      {"a NOT IN (1, 2)", "a NOT IN (1, 2)"},
      {"a not in ( 'x' , 'y' )", "a NOT IN ('x', 'y')"},
      {"a IN (TRUE, FALSE)", "a IN (TRUE, FALSE)"},
      {"a IN (2, 1, 2)", "a IN (2, 1, 2)"},
      {"a IN (1.0, -1e2)", "a IN (1, -100)"},
      {"1 IN (1, 2)", "1 IN (1, 2)"},
      {"'x' IN ('x')", "'x' IN ('x')"},
      {"NOT a IN (1)", "NOT a IN (1)"},
      {"NOT a NOT IN (1)", "NOT a NOT IN (1)"},
      // LIKE.
      {"a LIKE 'x%'", "a LIKE 'x%'"},
      {"a like '%'", "a LIKE '%'"},
      {"a NOT LIKE '%.gif'", "a NOT LIKE '%.gif'"},
      {"a LIKE''", "a LIKE ''"},
      {"'x' LIKE 'x_'", "'x' LIKE 'x_'"},
      {"\"a\" LIKE 'it''s%'", "\"a\" LIKE 'it''s%'"},
      // IS NULL.
      {"a IS NULL", "a IS NULL"},
      {"a is not null", "a IS NOT NULL"},
      {"\"a\"IS NULL", "\"a\" IS NULL"},
      {"5 IS NULL", "5 IS NULL"},
      {"NOT a IS NULL", "NOT a IS NULL"},
      // AND, OR, NOT and parentheses.
      {"a=1 AND b=2", "a = 1 AND b = 2"},
      {"a=1 and b=2 aNd c=3", "a = 1 AND b = 2 AND c = 3"},
      {"a=1 OR b=2", "a = 1 OR b = 2"},
      {"a=1 OR b=2 AND c=3", "a = 1 OR b = 2 AND c = 3"},
      {"(a=1 OR b=2) AND c=3", "(a = 1 OR b = 2) AND c = 3"},
      {"a=1 OR (b=2 AND c=3)", "a = 1 OR b = 2 AND c = 3"},
      {"(a=1 AND b=2) AND c=3", "a = 1 AND b = 2 AND c = 3"},
      {"a=1 AND (b=2 AND (c=3 AND d))", "a = 1 AND b = 2 AND c = 3 AND d"},
      {"(a=1 OR b=2) OR (c=3 OR d)", "a = 1 OR b = 2 OR c = 3 OR d"},
      {"((((a=1))))", "a = 1"},
      {"(a=1)AND(b=2)", "a = 1 AND b = 2"},
      {"NOT a=1", "NOT a = 1"},
      {"NOT (a=1)", "NOT a = 1"},
      {"not not a", "NOT NOT a"},
      {"NOT (NOT (a))", "NOT NOT a"},
      {"NOT (a AND b)", "NOT (a AND b)"},
      {"NOT (a OR b)", "NOT (a OR b)"},
      {"NOT a AND b", "NOT a AND b"},
      {"(NOT a) AND b", "NOT a AND b"},
      {"NOT (a AND (b OR c)) OR d", "NOT (a AND (b OR c)) OR d"},
      {"(a OR b) AND (c OR d)", "(a OR b) AND (c OR d)"},
      {"punsafe < 0.1 AND aesthetic >= 4.5 AND width >= 512", "punsafe < 0.1 AND aesthetic >= 4.5 AND width >= 512"},
      {"1<2AND 3<4", "1 < 2 AND 3 < 4"},
  };
  return all;
}

struct Refused {
  std::string text;
  int place;
  std::string found;
};

const std::string kEnd = "the end of the expression";

const std::vector<Refused>& refused() {
  static const std::vector<Refused> all = {
      // No condition.
      {"", 1, kEnd},
      {"   ", 4, kEnd},
      {"()", 2, ")"},
      {"( )", 3, ")"},
      {")", 1, ")"},
      {"(", 2, kEnd},
      {"AND", 1, "AND"},
      {"OR a", 1, "OR"},
      {"NOT", 4, kEnd},
      {"NOT NOT", 8, kEnd},
      {"NULL", 1, "NULL"},
      {"IN (1)", 1, "IN"},
      {"LIKE 'x'", 1, "LIKE"},
      {"IS NULL", 1, "IS"},
      {"= 1", 1, "="},
      {"< 1", 1, "<"},
      {", a", 1, ","},
      {"*", 1, "*"},
      {"SELECT * FROM t", 8, "*"},
      {"1", 2, kEnd},
      {"'x'", 4, kEnd},
      {"1 AND a", 3, "AND"},
      {"a AND 1", 8, kEnd},
      {"a AND 'x' OR b", 11, "OR"},
      {"(1)", 3, ")"},
      // What follows an operand.
      {"a b", 3, "b"},
      {"a 1", 3, "1"},
      {"a 'x'", 3, "'x'"},
      {"a -1", 3, "-1"},
      {"a - b", 3, "-"},
      {"a + 1 = 2", 3, "+"},
      {"a * 2 = 2", 3, "*"},
      {"a (b)", 3, "("},
      {"a NOT", 6, kEnd},
      {"a NOT = 1", 7, "="},
      {"a NOT NULL", 7, "NULL"},
      {"a NOT b", 7, "b"},
      {"a BETWEEN 1 AND 2", 3, "BETWEEN"},
      {"5px = 1", 2, "px"},
      {"1.2.3 = a", 4, ".3"},
      {"1e = a", 2, "e"},
      {"0x10 = a", 2, "x10"},
      {"a.b = 1", 2, "."},
      {"a[0] = 1", 2, "["},
      {"a::int = 1", 2, ":"},
      {"a TRUE", 3, "TRUE"},
      {"1 NOT 2", 7, "2"},
      // The right side of a comparison.
      {"a =", 4, kEnd},
      {"a = ", 5, kEnd},
      {"a = = 1", 5, "="},
      {"a == 1", 4, "="},
      {"a =< 1", 4, "<"},
      {"a => 1", 4, ">"},
      {"a ! = 1", 3, "!"},
      {"a !< 1", 3, "!"},
      {"a <=> 1", 5, ">"},
      {"a < > 1", 5, ">"},
      {"a = AND b", 5, "AND"},
      {"a = NOT b", 5, "NOT"},
      {"a = )", 5, ")"},
      {"a = (1)", 5, "("},
      {"a = NULL", 5, "NULL"},
      {"a != null", 6, "null"},
      {"a = ,", 5, ","},
      {"a = - 1", 5, "-"},
      {"a = --1", 5, "-"},
      {"a = +", 5, "+"},
      {"a = .", 5, "."},
      {"a = $1", 5, "$"},
      {"a = ?", 5, "?"},
      {"a = `b`", 5, "`"},
      {"a = \xE2\x80\x98x\xE2\x80\x99", 5, "\xE2\x80\x98"},
      {"a\xC2\xA0= 1", 2, "\xC2\xA0"},
      {"\xC3\xA9 = 1", 1, "\xC3\xA9"},
      {"'\xC3\xA9\xC3\xA9' = %", 8, "%"},
      {"a = 1e10000", 5, "1e10000"},
      {"a = 1e-10000", 5, "1e-10000"},
      {"a = 1e9999", 5, "1e9999"},
      {"a = -1e99999999999999999999", 5, "-1e99999999999999999999"},
      {"a < TRUE", 5, "TRUE"},
      {"a >= FALSE", 6, "FALSE"},
      {"TRUE < a", 6, "<"},
      {"FALSE >= 1", 7, ">="},
      {"1 = 'x'", 5, "'x'"},
      {"'x' < 1", 7, "1"},
      {"1 = TRUE", 5, "TRUE"},
      {"TRUE = 1", 8, "1"},
      {"FALSE != 'x'", 10, "'x'"},
      {"\"\" = 1", 1, "\"\""},
      {"a = \"\"", 5, "\"\""},
      // Behind a condition.
      {"a = 1 2", 7, "2"},
      {"a = 1 b = 2", 7, "b"},
      {"a = b = c", 7, "="},
      {"1 < a < 2", 7, "<"},
      {"a = 1,", 6, ","},
      {"a = 1;", 6, ";"},
      {"a = 1 -- comment", 7, "-"},
      {"a = 1 /* comment */", 7, "/"},
      {"a = 1 AND", 10, kEnd},
      {"a = 1 AND AND b", 11, "AND"},
      {"a = 1 OR", 9, kEnd},
      {"a = 1 OR OR b", 10, "OR"},
      {"a = 1 && b = 2", 7, "&"},
      {"a = 1 || b = 2", 7, "|"},
      {"a = 1 XOR b", 7, "XOR"},
      {"a = 1 NOT b", 7, "NOT"},
      {"!a", 1, "!"},
      {"a = 1)", 6, ")"},
      {"(a = 1", 7, kEnd},
      {"(a = 1 AND (b = 2)", 19, kEnd},
      {"((a = 1)", 9, kEnd},
      {"(a = 1] AND b", 7, "]"},
      {"(a) = 1", 5, "="},
      {"(a, b) = 1", 3, ","},
      {"a IS NULL NULL", 11, "NULL"},
      // IS.
      {"a IS", 5, kEnd},
      {"a IS NOT", 9, kEnd},
      {"a IS TRUE", 6, "TRUE"},
      {"a IS NOT 1", 10, "1"},
      {"a IS NOT NOT NULL", 10, "NOT"},
      {"a ISNULL", 3, "ISNULL"},
      {"a IS nullx", 6, "nullx"},
      // IN.
      {"a IN", 5, kEnd},
      {"a IN 1", 6, "1"},
      {"a IN ()", 7, ")"},
      {"a IN (", 7, kEnd},
      {"a IN (1", 8, kEnd},
      {"a IN (1,", 9, kEnd},
      {"a IN (1,)", 9, ")"},
      {"a IN (,1)", 7, ","},
      {"a IN (1 2)", 9, "2"},
      {"a IN (1; 2)", 8, ";"},
      {"a IN (b)", 7, "b"},
      {"a IN (\"b\")", 7, "\"b\""},
      {"a IN (1, b)", 10, "b"},
      {"a IN (NULL)", 7, "NULL"},
      {"a IN (1, null)", 10, "null"},
      {"a IN ((1))", 7, "("},
      {"a IN (1, 'x')", 10, "'x'"},
      {"a IN ('x', 1)", 12, "1"},
      {"a IN (TRUE, 0)", 13, "0"},
      {"1 IN ('x')", 7, "'x'"},
      {"TRUE IN (1)", 10, "1"},
      {"a IN (SELECT b)", 7, "SELECT"},
      {"a NOT IN 1", 10, "1"},
      {"a NOT NOT IN (1)", 7, "NOT"},
      // LIKE.
      {"a LIKE", 7, kEnd},
      {"a LIKE b", 8, "b"},
      {"a LIKE 1", 8, "1"},
      {"a LIKE \"x%\"", 8, "\"x%\""},
      {"a LIKE NULL", 8, "NULL"},
      {"a LIKE ('x')", 8, "("},
      {"1 LIKE 'x'", 3, "LIKE"},
      {"TRUE LIKE 'x'", 6, "LIKE"},
      {"a LIKE 'x!%' ESCAPE '!'", 14, "ESCAPE"},
      {"a ILIKE 'x'", 3, "ILIKE"},
      // Quotation marks that are not closed: the place where they open.
      {"a = 'x", 5, kEnd},
      {"a = '", 5, kEnd},
      {"a = 'it''s", 5, kEnd},
      {"a = 'it's'", 9, "s"},
      {"\"a = 1", 1, kEnd},
      {"b AND \"a\"\"", 7, kEnd},
  };
  return all;
}

TEST(where_grammar, reads_every_way_to_write_a_condition) {
  EXPECT_GE(accepted().size(), 120u);
  for (const auto& [text, canonical] : accepted()) {
    const auto expression = WhereExpression::parse(text);
    ASSERT_TRUE(expression.is_ok()) << text << ": " << expression.status().to_string();
    EXPECT_EQ(expression->canonical(), canonical) << text;
  }
}

TEST(where_grammar, the_canonical_form_is_its_own) {
  for (const auto& [text, canonical] : accepted()) {
    const auto again = WhereExpression::parse(canonical);
    ASSERT_TRUE(again.is_ok()) << canonical << ": " << again.status().to_string();
    EXPECT_EQ(again->canonical(), canonical);
  }
}

TEST(where_grammar, refuses_everything_else_and_says_where) {
  EXPECT_GE(refused().size(), 120u);
  for (const auto& [text, place, found] : refused()) {
    const auto expression = WhereExpression::parse(text);
    ASSERT_FALSE(expression.is_ok()) << text << " was read as " << expression->canonical();
    EXPECT_EQ(expression.status().code(), StatusCode::kInvalidArgument) << text;
    const std::string& message = expression.status().message();
    EXPECT_TRUE(message.starts_with("where expression, character " + std::to_string(place) + ": ")) << text << "\n" << message;
    EXPECT_TRUE(message.ends_with(", found: " + found)) << text << "\n" << message;
  }
}

std::string message_of(const std::string& text) { return WhereExpression::parse(text).status().message(); }

TEST(where_grammar, says_what_was_expected) {
  EXPECT_EQ(message_of("width"), "");
  EXPECT_EQ(message_of("width >= "),
            "where expression, character 10: expected a column, a number, a text, TRUE or FALSE, found: the end of the expression");
  EXPECT_EQ(message_of("AND"), "where expression, character 1: expected a condition, such as width >= 512, found: AND");
  EXPECT_EQ(message_of("a b"), "where expression, character 3: expected =, !=, <, <=, >, >=, IN, LIKE, IS, AND or OR, found: b");
  EXPECT_EQ(message_of("1 2"), "where expression, character 3: expected =, !=, <, <=, >, >=, IN, LIKE or IS, found: 2");
  EXPECT_THAT(message_of("a = NULL"), HasSubstr("write IS NULL"));
  EXPECT_THAT(message_of("a IN (NULL)"), HasSubstr("write IS NULL"));
  EXPECT_EQ(message_of("a IS 1"), "where expression, character 6: expected NULL or NOT NULL, found: 1");
  EXPECT_EQ(message_of("a IN (1 2)"), "where expression, character 9: expected a comma or ), found: 2");
  EXPECT_EQ(message_of("a IN 1"), "where expression, character 6: expected ( after IN, found: 1");
  EXPECT_EQ(message_of("a IN (1, 'x')"), "where expression, character 10: expected a number like 1, found: 'x'");
  EXPECT_EQ(message_of("TRUE = 1"), "where expression, character 8: expected TRUE or FALSE like TRUE, found: 1");
  EXPECT_EQ(message_of("a NOT 1"), "where expression, character 7: expected IN or LIKE after NOT, found: 1");
  EXPECT_EQ(message_of("a = 1e10000"), "where expression, character 5: expected a number between 1e-9999 and 1e9999, found: 1e10000");
  EXPECT_EQ(message_of("a = 'x"), "where expression, character 5: this text has no end; expected ', found: the end of the expression");
  EXPECT_EQ(message_of("(a"), "where expression, character 3: expected AND, OR or ), found: the end of the expression");
  EXPECT_EQ(message_of("a LIKE b"),
            "where expression, character 8: expected a pattern in single quotation marks, such as 'https://%', found: b");
  EXPECT_THAT(message_of("TRUE < a"), HasSubstr("have no order"));
  EXPECT_THAT(message_of("a < TRUE"), HasSubstr("have no order"));
  EXPECT_THAT(message_of("1 LIKE 'x'"), HasSubstr("LIKE is for texts"));
  EXPECT_THAT(message_of("a = \"\""), HasSubstr("a column name between the quotation marks"));
}

TEST(where_grammar, cuts_what_it_found_when_it_is_long) {
  const std::string long_word = "b" + std::string(500, 'x');
  EXPECT_TRUE(message_of("a " + long_word).ends_with(", found: " + long_word.substr(0, 60) + "..."));
  std::string umlauts;
  for (int i = 0; i < 60; ++i) {
    umlauts += "\xC3\xA9";
  }
  EXPECT_TRUE(message_of("a '" + umlauts + "'").ends_with(", found: '" + umlauts.substr(0, 118) + "..."));
}

TEST(where_grammar, wants_utf_8) {
  EXPECT_EQ(message_of("a = '\xFF'"), "where expression, byte 6: expected UTF-8, found: 0xFF");
  EXPECT_EQ(message_of("a = '\xC3'"), "where expression, byte 6: expected UTF-8, found: 0xC3");
}

std::string repeated(const std::string& part, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += part;
  }
  return text;
}

TEST(where_grammar, nests_64_deep) {
  EXPECT_EQ(WhereExpression::parse(repeated("(", 64) + "a" + repeated(")", 64))->canonical(), "a");
  EXPECT_EQ(WhereExpression::parse(repeated("NOT ", 64) + "a")->canonical(), repeated("NOT ", 64) + "a");
  // Of the deepest form with needed parentheses, the canonical form is as deep.
  const std::string deep = repeated("a AND (b OR ", 32) + repeated("NOT ", 32) + "c" + repeated(")", 32);
  EXPECT_EQ(WhereExpression::parse(deep)->canonical(), deep);

  EXPECT_EQ(message_of(repeated("(", 65) + "a" + repeated(")", 65)),
            "where expression, character 65: parentheses and NOTs nest deeper than 64, found: (");
  EXPECT_EQ(message_of(repeated("NOT ", 65) + "a"),
            "where expression, character 257: parentheses and NOTs nest deeper than 64, found: NOT");
  EXPECT_EQ(message_of(repeated("(NOT ", 32) + "(a" + repeated(")", 33)),
            "where expression, character 161: parentheses and NOTs nest deeper than 64, found: (");
  EXPECT_EQ(WhereExpression::parse(repeated("(a) AND ", 1000) + "(NOT b)").status().to_string(), "ok");  // Side by side is no depth.
}

TEST(where_grammar, is_at_most_64_kib_long) {
  const std::string longest = "a = '" + std::string(WhereExpression::kMaxBytes - 6, 'x') + "'";
  ASSERT_EQ(longest.size(), WhereExpression::kMaxBytes);
  EXPECT_EQ(WhereExpression::parse(longest)->canonical(), longest);
  EXPECT_EQ(message_of(longest + " "), "where expression: it may have 65536 bytes, found: 65537");
  EXPECT_EQ(message_of(std::string(10 << 20, '(')), "where expression: it may have 65536 bytes, found: 10485760");
  // What the canonical form adds counts, too: it would not be read back.
  EXPECT_EQ(message_of("a='" + std::string(WhereExpression::kMaxBytes - 4, 'x') + "'"),
            "where expression: with single spaces it may have 65536 bytes, found: 65538");
}

TEST(where_grammar, lists_its_columns_once_in_the_order_of_the_text) {
  EXPECT_THAT(WhereExpression::parse("b = 1 AND (a LIKE 'x' OR \"c d\" IS NULL) AND b < A AND 1 IN (2) AND NOT flag")->columns(),
              ElementsAre("b", "a", "c d", "A", "flag"));
  EXPECT_THAT(WhereExpression::parse("1 = 1")->columns(), IsEmpty());
}

}  // namespace
}  // namespace darkroom
