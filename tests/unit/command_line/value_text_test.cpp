#include "value_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace darkroom {
namespace {

int64_t count_of(std::string_view text) {
  const auto value = parse_count(text);
  return value.is_ok() ? static_cast<int64_t>(*value) : -1;
}

int64_t bytes_of(std::string_view text) {
  const auto value = parse_bytes(text);
  return value.is_ok() ? static_cast<int64_t>(*value) : -1;
}

TEST(ValueText, counts_are_whole_numbers_with_exponents_and_decimal_units) {
  EXPECT_EQ(count_of("0"), 0);
  EXPECT_EQ(count_of("1000"), 1000);
  EXPECT_EQ(count_of("100e6"), 100'000'000);
  EXPECT_EQ(count_of("1.5e3"), 1500);
  EXPECT_EQ(count_of("1500e-2"), 15);
  EXPECT_EQ(count_of("10k"), 10'000);
  EXPECT_EQ(count_of("2.5 M"), 2'500'000);
  EXPECT_EQ(count_of("1G"), 1'000'000'000);
  EXPECT_EQ(static_cast<int64_t>(*parse_count("-3")), -3);
}

TEST(ValueText, counts_keep_every_digit_of_64_bits) {
  EXPECT_EQ(static_cast<uint64_t>(*parse_count("18446744073709551615")), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(static_cast<int64_t>(*parse_count("-9223372036854775808")), std::numeric_limits<int64_t>::min());
}

TEST(ValueText, what_is_no_count_is_refused) {
  for (const char* text :
       {"", " ", "abc", "1.5", "1e-1", "1x", "10 k k", "--1", "1e", "1e9999", "0x10", ".5", "1.", "1,000", "NaN", "inf", "\xff"}) {
    EXPECT_FALSE(parse_count(text).is_ok()) << text;
  }
  EXPECT_FALSE(parse_count("1e300").is_ok());
  EXPECT_FALSE(parse_count(std::string(1'000'000, '9')).is_ok());
}

TEST(ValueText, a_million_digits_are_refused_with_a_short_message) {
  EXPECT_LT(parse_count(std::string(1'000'000, '9')).status().message().size(), 300u);
  EXPECT_EQ(static_cast<int64_t>(*parse_count("0." + std::string(1'000'000, '0'))), 0);
}

TEST(ValueText, bytes_take_decimal_and_binary_units) {
  EXPECT_EQ(bytes_of("50MB"), 50'000'000);
  EXPECT_EQ(bytes_of("100e6"), 100'000'000);
  EXPECT_EQ(bytes_of("64KiB"), 65'536);
  EXPECT_EQ(bytes_of("1.5 GB"), 1'500'000'000);
  EXPECT_EQ(bytes_of("1.5 GiB"), 1'610'612'736);
  EXPECT_EQ(bytes_of("2TB"), 2'000'000'000'000);
  EXPECT_EQ(bytes_of("4096"), 4096);
  EXPECT_EQ(bytes_of("4096B"), 4096);
  EXPECT_EQ(bytes_of("1.0000000000000000000TiB"), int64_t{1} << 40);
  for (const char* text : {"50XB", "MB", "1.5", "0.3KiB", "50 M B", "50mb"}) {
    EXPECT_FALSE(parse_bytes(text).is_ok()) << text;
  }
}

// 2^88 + 1: times 2^40 it is 2^40 in 128 bits.
TEST(ValueText, a_size_beyond_128_bits_is_refused_and_does_not_wrap) {
  for (const char* text : {"309485009821345068724781057TiB", "1267650600228229401496703205376TiB", "1e30TiB", "1e27TB"}) {
    EXPECT_FALSE(parse_bytes(text).is_ok()) << text;
  }
}

TEST(ValueText, times_and_percentages_take_their_units) {
  EXPECT_EQ(*parse_seconds("20"), 20);
  EXPECT_EQ(*parse_seconds("500ms"), 0.5);
  EXPECT_EQ(*parse_seconds("2 min"), 120);
  EXPECT_EQ(*parse_seconds("1h"), 3600);
  EXPECT_EQ(*parse_minutes("5.5"), 5.5);
  EXPECT_EQ(*parse_minutes("90s"), 1.5);
  EXPECT_EQ(*parse_percent("60%"), 60);
  EXPECT_EQ(*parse_percent("60"), 60);
  EXPECT_EQ(*parse_number("+0.5"), 0.5);
  EXPECT_FALSE(parse_seconds("20x").is_ok());
  EXPECT_FALSE(parse_percent("60 percent").is_ok());
  for (const char* text : {"", "nan", "inf", "1e999", "0.5x", "1 2"}) {
    EXPECT_FALSE(parse_number(text).is_ok()) << text;
  }
}

TEST(ValueText, sizes_are_written_with_the_unit_that_keeps_them_exact) {
  EXPECT_EQ(format_bytes(50'000'000), "50 MB");
  EXPECT_EQ(format_bytes(65'536), "64 KiB");
  EXPECT_EQ(format_bytes(12'345), "12345 B");
  EXPECT_EQ(format_bytes(0), "0 B");
}

TEST(ValueText, values_in_messages_are_short_and_printable) {
  EXPECT_EQ(quote_value(""), "''");
  EXPECT_EQ(quote_value("plain"), "plain");
  EXPECT_EQ(quote_value("\x1b[31m"), "\\u001b[31m");
  EXPECT_EQ(quote_value("\xff"), "\xEF\xBF\xBD");
  EXPECT_LT(quote_value(std::string(1'000'000, 'a')).size(), 150u);
}

}  // namespace
}  // namespace darkroom
