#include "metrics_page.h"

#include <gtest/gtest.h>

#include <cmath>

namespace darkroom {
namespace {

TEST(MetricsPage, reads_what_a_registry_writes) {
  MetricsRegistry registry;
  registry.counter("darkroom_rows_total", "Rows.", {{"stage", "read"}}).add(5);
  registry.counter("darkroom_rows_total", "Rows.", {{"stage", "a \"b\" \\ \n c"}}).add(7);
  registry.gauge("darkroom_level", "A level.").set(-INFINITY);
  registry.histogram("darkroom_times", "Times.", {1.0}).observe(0.25);
  const auto page = MetricsPage::parse(registry.to_prometheus());
  ASSERT_TRUE(page.is_ok()) << page.status().message();
  EXPECT_EQ(page->find("darkroom_rows_total", {{"stage", "read"}}), 5);
  EXPECT_EQ(page->sum("darkroom_rows_total"), 12);
  EXPECT_EQ(page->samples("darkroom_rows_total")[0].label("stage"), "a \"b\" \\ ? c");
  EXPECT_EQ(page->find("darkroom_level"), -INFINITY);
  EXPECT_EQ(page->find("darkroom_times_bucket", {{"le", "+Inf"}}), 1);
  EXPECT_EQ(page->find("darkroom_rows_total", {{"stage", "write"}}), std::nullopt);
  EXPECT_EQ(page->value_or("darkroom_none", 3), 3);
}

TEST(MetricsPage, keeps_what_would_steer_a_terminal_away_from_it) {
  const auto page = MetricsPage::parse("x{a=\"\x1b[2J\xff\"} 1\n");
  ASSERT_TRUE(page.is_ok());
  EXPECT_EQ(page->samples("x")[0].label("a"), "?[2J?");
}

TEST(MetricsPage, names_the_line_that_is_no_sample) {
  for (const char* text : {"<html>", "x", "x y", "x{a=\"b\" 1", "x{a=\"b} 1", "x{a} 1", "x{a=\"b\"}1", "x{,} 1"}) {
    const auto page = MetricsPage::parse(std::string("# HELP x\nfine 1\n") + text + "\n");
    ASSERT_FALSE(page.is_ok()) << text;
    EXPECT_EQ(page.status().code(), StatusCode::kCorruptData);
    EXPECT_TRUE(page.status().message().ends_with("Line: 3")) << page.status().message();
  }
}

TEST(MetricsPage, of_nothing_is_empty) {
  const auto page = MetricsPage::parse("");
  ASSERT_TRUE(page.is_ok());
  EXPECT_TRUE(page->samples("x").empty());
}

}  // namespace
}  // namespace darkroom
