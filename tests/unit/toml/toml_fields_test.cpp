#include "darkroom/toml/toml_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "darkroom/toml/parse_toml.h"

namespace darkroom {
namespace {

constexpr const char* kMachine = R"(name = "p5"
share = 0.5
count = 3
bought = "2026-11-23"
kind = "spot"
[[price]]
dollars = 2
[[price]]
dollars = 3
)";

/// What `take` makes of the fields of `text`, called my.toml.
std::string failure_of(const std::string& text, const std::function<void(TomlFields&)>& take) {
  const auto table = parse_toml(text, "my.toml");
  EXPECT_TRUE(table.is_ok()) << table.status().message();
  TomlFields fields(*table, "my.toml", "");
  take(fields);
  const Status status = fields.finish();
  EXPECT_TRUE(status.is_ok() || status.code() == StatusCode::kInvalidArgument);
  return status.message();
}

TEST(TomlFields, gives_every_field_once_it_is_asked_for) {
  std::vector<double> dollars;
  EXPECT_EQ(failure_of(kMachine,
                       [&](TomlFields& fields) {
                         EXPECT_EQ(fields.text("name"), "p5");
                         EXPECT_EQ(fields.number("share"), 0.5);
                         EXPECT_EQ(fields.count("count"), 3);
                         EXPECT_EQ(fields.date("bought"), "2026-11-23");
                         EXPECT_EQ(fields.choice("kind", {"spot", "reserved"}), "spot");
                         EXPECT_EQ(fields.number_or("watts", 7), 7);
                         EXPECT_EQ(fields.count_or("hosts", 8), 8);
                         EXPECT_EQ(fields.text_or("region", "any"), "any");
                         for (TomlFields& price : fields.tables("price")) {
                           dollars.push_back(price.number("dollars"));
                           EXPECT_TRUE(price.finish().is_ok());
                         }
                       }),
            "");
  EXPECT_EQ(dollars, (std::vector<double>{2, 3}));
}

TEST(TomlFields, a_failure_names_file_line_field_and_value) {
  const auto number_to_one = [](TomlFields& fields) { fields.number("a", {.least = 0, .most = 1}); };
  const auto above_zero = [](TomlFields& fields) { fields.number("a", kAboveZero); };
  const auto count = [](TomlFields& fields) { fields.count("a"); };
  const auto text = [](TomlFields& fields) { fields.text("a"); };
  const auto date = [](TomlFields& fields) { fields.date("a"); };
  const auto choice = [](TomlFields& fields) { fields.choice("a", {"x", "y"}); };
  const auto tables = [](TomlFields& fields) { fields.tables("a"); };
  const auto table = [](TomlFields& fields) { fields.table("a"); };
  const auto list = [](TomlFields& fields) { fields.list("a"); };
  const auto texts = [](TomlFields& fields) { fields.texts("a"); };
  const struct {
    std::string text;
    std::function<void(TomlFields&)> take;
    std::string message;
  } cases[] = {
      {"\na = 1.5", number_to_one, "my.toml, line 2: a must be a number from 0 to 1, got: 1.5"},
      {"a = 0", above_zero, "my.toml, line 1: a must be a number above 0, got: 0"},
      {"a = nan", above_zero, "my.toml, line 1: a must be a number above 0, got: nan"},
      {"a = true", above_zero, "my.toml, line 1: a must be a number above 0, got: true"},
      {"a = -1", count, "my.toml, line 1: a must be a whole number from 0, got: -1"},
      {"a = 1.5", count, "my.toml, line 1: a must be a whole number from 0, got: 1.5"},
      {"a = ''", text, "my.toml, line 1: a must be a text in quotes that is not empty, got: ''"},
      {"a = '23.11.2026'", date, "my.toml, line 1: a must be a date in quotes such as \"2026-11-23\", got: '23.11.2026'"},
      {"a = 'z'", choice, "my.toml, line 1: a must be one of x, y, got: 'z'"},
      {"a = [1]", tables, "my.toml, line 1: a must be tables ([[a]]), got: [ 1 ]"},
      {"a = 1", table, "my.toml, line 1: a must be a table, got: 1"},
      {"[[a]]", table, "my.toml, line 1: a must be a table, got: [ {} ]"},
      {"a = 1", list, "my.toml, line 1: a must be a list that is not empty, got: 1"},
      {"a = []", list, "my.toml, line 1: a must be a list that is not empty, got: []"},
      {"a = ['', 1]", texts, "my.toml, line 1: a must be a list of texts in quotes, got: 1"},
      {"b = 1", text, "my.toml, line 1: a is missing"},
      {"a = 'x'\nbb = 1", text, "my.toml, line 2: there is no field 'bb'; did you mean 'a'?"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(failure_of(one.text, one.take), one.message) << one.text;
  }
}

TEST(TomlFields, the_first_failure_stays) {
  EXPECT_EQ(failure_of("a = 1\nb = 2",
                       [](TomlFields& fields) {
                         fields.text("a");
                         fields.text("b");
                         fields.fail("b", "is wrong");
                       }),
            "my.toml, line 1: a must be a text in quotes that is not empty, got: 1");
}

TEST(TomlFields, a_field_of_a_list_of_tables_is_named_with_its_place) {
  EXPECT_EQ(failure_of("[[price]]\nx = 1\n[[price]]\n",
                       [](TomlFields& fields) {
                         std::vector<TomlFields> prices = fields.tables("price");
                         ASSERT_EQ(prices.size(), 2U);
                         EXPECT_EQ(prices[0].count("x"), 1);
                         EXPECT_EQ(prices[1].count("x"), 0);
                         EXPECT_EQ(prices[1].where(), "my.toml, line 3: [[price]] 2");
                         EXPECT_EQ(prices[1].finish().message(), "my.toml, line 3: [[price]] 2 x is missing");
                       }),
            "");
}

TEST(TomlFields, lists_tables_and_raw_fields_are_given_as_they_stand) {
  EXPECT_EQ(failure_of("texts = ['', 'b']\nmixed = [1, 'b']\nraw = 7\n[below]\nx = 1\n[below.deeper]\ny = 2\n",
                       [](TomlFields& fields) {
                         EXPECT_EQ(fields.texts("texts"), (std::vector<std::string>{"", "b"}));
                         EXPECT_EQ(fields.list("mixed").size(), 2U);
                         EXPECT_TRUE(fields.node("raw")->is_integer());
                         EXPECT_EQ(fields.node("absent"), nullptr);
                         EXPECT_TRUE(fields.list("absent").empty());
                         EXPECT_FALSE(fields.table("absent").has_value());
                         std::optional<TomlFields> below = fields.table("below");
                         ASSERT_TRUE(below.has_value());
                         EXPECT_EQ(below->count("x"), 1);
                         EXPECT_EQ(below->table("deeper")->place(), "[below] deeper");
                         EXPECT_EQ(below->placed("here").where(), "my.toml, line 4: here");
                         EXPECT_TRUE(below->finish().is_ok());
                       }),
            "");
}

TEST(TomlFields, a_failure_of_a_table_below_is_taken_over_unless_there_is_one) {
  const auto adopt = [](TomlFields& fields) {
    fields.node("a");
    fields.adopt(Status::ok());
    fields.adopt(Status::invalid_argument("below"));
    fields.adopt(Status::invalid_argument("later"));
  };
  EXPECT_EQ(failure_of("a = 1", adopt), "below");
}

TEST(TomlFields, a_long_value_is_shown_in_part) {
  const std::string message = failure_of("a = '" + std::string(100'000, 'x') + "'", [](TomlFields& fields) { fields.count("a"); });
  EXPECT_LT(message.size(), 300U);
  EXPECT_THAT(message, testing::EndsWith("xxx..."));
}

}  // namespace
}  // namespace darkroom
