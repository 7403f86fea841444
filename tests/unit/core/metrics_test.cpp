#include "darkroom/core/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <latch>
#include <limits>
#include <optional>
#include <thread>

#include "darkroom/core/check.h"

namespace darkroom {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

TEST(MetricsRegistry, writes_prometheus_text) {
  MetricsRegistry registry;
  EXPECT_EQ(registry.to_prometheus(), "");
  registry.histogram("house_wait_seconds", "Time until the first byte.", {0.5, 1.0, 32.0}, {{"host", "b"}}).observe(0.75);
  registry.gauge("house_queue_items", "Items that wait.").set(2.5);
  registry.counter("house_rows_total", "Rows by stage.", {{"stage", "write"}}).add(3);
  registry.counter("house_rows_total", "Rows by stage.", {{"stage", "read"}}).add();
  registry.seconds_counter("house_busy_seconds_total", "Time at work.").add(std::chrono::milliseconds(61250));
  EXPECT_EQ(registry.to_prometheus(),
            "# HELP house_busy_seconds_total Time at work.\n"
            "# TYPE house_busy_seconds_total counter\n"
            "house_busy_seconds_total 61.250000000\n"
            "# HELP house_queue_items Items that wait.\n"
            "# TYPE house_queue_items gauge\n"
            "house_queue_items 2.5\n"
            "# HELP house_rows_total Rows by stage.\n"
            "# TYPE house_rows_total counter\n"
            "house_rows_total{stage=\"read\"} 1\n"
            "house_rows_total{stage=\"write\"} 3\n"
            "# HELP house_wait_seconds Time until the first byte.\n"
            "# TYPE house_wait_seconds histogram\n"
            "house_wait_seconds_bucket{host=\"b\",le=\"0.5\"} 0\n"
            "house_wait_seconds_bucket{host=\"b\",le=\"1\"} 1\n"
            "house_wait_seconds_bucket{host=\"b\",le=\"32\"} 1\n"
            "house_wait_seconds_bucket{host=\"b\",le=\"+Inf\"} 1\n"
            "house_wait_seconds_sum{host=\"b\"} 0.75\n"
            "house_wait_seconds_count{host=\"b\"} 1\n");
}

TEST(MetricsRegistry, escapes_what_would_end_a_value_or_a_line) {
  MetricsRegistry registry;
  registry.gauge("g", "a \"help\" with C:\\ and\na line", {{"v", "a \"quote\", C:\\ and\na line"}});
  EXPECT_EQ(registry.to_prometheus(),
            "# HELP g a \"help\" with C:\\\\ and\\na line\n"
            "# TYPE g gauge\n"
            "g{v=\"a \\\"quote\\\", C:\\\\ and\\na line\"} 0\n");
}

TEST(MetricsRegistry, a_value_that_is_not_utf8_becomes_readable) {
  MetricsRegistry registry;
  auto& gauge = registry.gauge("g", "", {{"v", "caf\xe9"}});
  EXPECT_EQ(&registry.gauge("g", "", {{"v", "caf\xff"}}), &gauge);
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("g{v=\"caf\xef\xbf\xbd\"} 0\n"));
}

TEST(MetricsRegistry, the_same_name_and_labels_are_the_same_metric) {
  MetricsRegistry registry;
  auto& counter = registry.counter("rows_total", "", {{"a", "1"}, {"b", "2"}});
  EXPECT_EQ(&registry.counter("rows_total", "", {{"b", "2"}, {"a", "1"}}), &counter);
  EXPECT_NE(&registry.counter("rows_total", "", {{"a", "2"}, {"b", "1"}}), &counter);
  auto& histogram = registry.histogram("h", "", {1.0});
  EXPECT_EQ(&registry.histogram("h", "", {1.0}), &histogram);
  for (int i = 0; i < 200; ++i) {
    registry.counter("rows_total", "", {{"a", std::to_string(i)}, {"b", ""}}).add();
  }
  EXPECT_EQ(&registry.counter("rows_total", "", {{"a", "1"}, {"b", "2"}}), &counter);
  counter.add(7);
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("rows_total{a=\"1\",b=\"2\"} 7\n"));
}

TEST(MetricsRegistry, refuses_a_name_that_stands_for_something_else) {
  MetricsRegistry registry;
  registry.gauge("level", "help", {{"a", "1"}});
  registry.histogram("h", "help", {1.0, 2.0});
  const std::string before = registry.to_prometheus();
  EXPECT_THROW(registry.gauge("level", "other help", {{"a", "1"}}), CheckFailure);
  EXPECT_THROW(registry.gauge("level", "help", {{"b", "1"}}), CheckFailure);
  EXPECT_THROW(registry.gauge("level", "help"), CheckFailure);
  EXPECT_THROW(registry.gauge("level", "help", {{"a", "1"}, {"b", "1"}}), CheckFailure);
  EXPECT_THROW(registry.histogram("level", "help", {1.0}, {{"a", "1"}}), CheckFailure);
  EXPECT_THROW(registry.gauge("h", "help"), CheckFailure);
  EXPECT_THROW(registry.histogram("h", "help", {1.0, 3.0}), CheckFailure);
  EXPECT_EQ(registry.to_prometheus(), before);
}

TEST(MetricsRegistry, refuses_names_that_prometheus_would_misread) {
  MetricsRegistry registry;
  for (const char* name : {"", "1_total", "a b_total", "a-b_total", "a:b_total", "\xc3\xa9_total", "a\n_total"}) {
    EXPECT_THROW(registry.counter(name, ""), CheckFailure) << name;
  }
  EXPECT_THROW(registry.counter("rows", ""), CheckFailure);
  EXPECT_THROW(registry.counter("busy_seconds_total", ""), CheckFailure);
  EXPECT_THROW(registry.seconds_counter("busy_total", ""), CheckFailure);
  for (const char* name : {"x_total", "x_seconds_total", "x_bucket", "x_sum", "x_count"}) {
    EXPECT_THROW(registry.gauge(name, ""), CheckFailure) << name;
    EXPECT_THROW(registry.histogram(name, "", {1.0}), CheckFailure) << name;
  }
  for (const char* label : {"", "1", "a b", "__a", "a:b"}) {
    EXPECT_THROW(registry.gauge("g", "", {{label, "value"}}), CheckFailure) << label;
  }
  EXPECT_THROW(registry.gauge("g", "", {{"a", "1"}, {"b", "1"}, {"a", "2"}}), CheckFailure);
  EXPECT_THROW(registry.histogram("h", "", {1.0}, {{"le", "1"}}), CheckFailure);
  EXPECT_EQ(registry.to_prometheus(), "");
}

TEST(MetricsRegistry, refuses_bounds_that_do_not_ascend) {
  MetricsRegistry registry;
  for (const auto& bounds : std::vector<std::vector<double>>{{}, {1, 1}, {2, 1}, {1, kInfinity}, {-kInfinity, 1}, {kNotANumber}}) {
    EXPECT_THROW(registry.histogram("h", "", bounds), CheckFailure);
    EXPECT_THROW(Histogram{bounds}, CheckFailure);
  }
  EXPECT_EQ(registry.to_prometheus(), "");
}

TEST(MetricsRegistry, asks_its_callbacks_before_each_scrape) {
  MetricsRegistry registry;
  std::string calls;
  std::optional first = registry.collect([&](MetricsRegistry& given) {
    calls += 'a';
    given.gauge("depth", "").add(1);
  });
  const auto second = registry.collect([&](MetricsRegistry&) { calls += 'b'; });
  EXPECT_EQ(calls, "");
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("depth 1\n"));
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("depth 2\n"));
  EXPECT_EQ(calls, "abab");
  std::optional moved(std::move(*first));
  first.reset();
  registry.to_prometheus();
  EXPECT_EQ(calls, "ababab");
  moved.reset();
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("depth 3\n"));
  EXPECT_EQ(calls, "abababb");
}

TEST(MetricsRegistry, the_end_of_a_callback_waits_for_the_scrape_that_runs_it) {
  MetricsRegistry registry;
  std::latch entered(1);
  std::latch about_to_end(1);
  std::atomic<bool> has_run = false;
  std::optional collection = registry.collect([&](MetricsRegistry&) {
    entered.count_down();
    about_to_end.wait();
    for (int i = 0; i < 1000; ++i) {
      std::this_thread::yield();  // Time for a destructor that does not wait.
    }
    has_run = true;
  });
  std::jthread scraper([&] { registry.to_prometheus(); });
  entered.wait();
  about_to_end.count_down();
  collection.reset();
  EXPECT_TRUE(has_run);
}

TEST(MetricsRegistry, a_broken_callback_is_said_and_breaks_nothing_else) {
  MetricsRegistry registry;
  std::optional broken = registry.collect([](MetricsRegistry&) { DARKROOM_CHECK(false, "broken"); });
  EXPECT_THROW(registry.to_prometheus(), CheckFailure);
  broken.reset();
  EXPECT_EQ(registry.to_prometheus(), "");
}

TEST(Counter, never_falls) {
  Counter counter;
  counter.add(5);
  counter.add(0);
  counter.add(-3);
  counter.add(std::numeric_limits<int64_t>::min());
  EXPECT_EQ(counter.value(), 5);
  SecondsCounter seconds;
  seconds.add(std::chrono::nanoseconds(-1));
  EXPECT_EQ(seconds.value().count(), 0);
}

TEST(SecondsCounter, is_exact_to_the_nanosecond) {
  MetricsRegistry registry;
  auto& counter = registry.seconds_counter("x_seconds_total", "");
  counter.add(std::chrono::hours(24 * 365 * 100));
  for (int i = 0; i < 3; ++i) {
    counter.add(std::chrono::nanoseconds(1));
  }
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("x_seconds_total 3153600000.000000003\n"));
}

TEST(Gauge, shows_any_number) {
  MetricsRegistry registry;
  auto& gauge = registry.gauge("g", "");
  const std::pair<double, std::string> cases[] = {
      {0.1, "0.1"},        {-3.0, "-3"},         {1e300, "1e+300"},    {1.0 / 3, "0.3333333333333333"},
      {kInfinity, "+Inf"}, {-kInfinity, "-Inf"}, {kNotANumber, "NaN"}, {9007199254740991.0, "9007199254740991"}};
  for (const auto& [value, text] : cases) {
    gauge.set(value);
    EXPECT_THAT(registry.to_prometheus(), HasSubstr("\ng " + text + "\n"));
  }
  gauge.set(2);
  gauge.add(-0.5);
  EXPECT_EQ(gauge.value(), 1.5);
}

std::vector<int64_t> buckets_of(const Histogram& histogram) {
  std::vector<int64_t> buckets;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    buckets.push_back(histogram.bucket(i));
  }
  return buckets;
}

TEST(Histogram, a_bound_belongs_to_the_values_below_it) {
  Histogram histogram({-1.0, 0.0, 2.0});
  for (const double value : {-5.0, -1.0, std::nextafter(-1.0, 0.0), 0.0, -0.0, 2.0, std::nextafter(2.0, 3.0), 1e300}) {
    histogram.observe(value);
  }
  EXPECT_THAT(buckets_of(histogram), ElementsAre(2, 3, 1, 2));
}

TEST(Histogram, counts_what_is_not_finite_and_keeps_its_sum) {
  MetricsRegistry registry;
  auto& histogram = registry.histogram("h", "", {1.0, 2.0});
  for (const double value : {kNotANumber, -kNotANumber, kInfinity, -kInfinity, 1.5}) {
    histogram.observe(value);
  }
  EXPECT_THAT(buckets_of(histogram), ElementsAre(1, 1, 3));
  EXPECT_EQ(histogram.sum(), 1.5);
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("h_bucket{le=\"+Inf\"} 5\nh_sum 1.5\nh_count 5\n"));
}

TEST(Histogram, latencies_go_from_a_millisecond_to_a_quarter_of_an_hour) {
  const auto bounds = latency_bounds();
  ASSERT_EQ(bounds.size(), 21U);
  EXPECT_EQ(bounds.front(), 1.0 / 1024);
  EXPECT_EQ(bounds[10], 1.0);
  EXPECT_EQ(bounds.back(), 1024.0);
}

TEST(MetricsRegistry, threads_lose_no_count) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200000;
  Counter counter;
  SecondsCounter seconds;
  Gauge gauge;
  Histogram histogram({1.0, 2.0});
  std::latch all_ready(kThreads);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        all_ready.arrive_and_wait();
        const auto repeat = [](const auto& add) {  // Nothing between two adds, so that a switch of threads falls into one.
          for (int round = 0; round < kRounds; ++round) {
            add(round);
          }
        };
        repeat([&](int) { counter.add(2); });
        repeat([&](int) { seconds.add(std::chrono::nanoseconds(1)); });
        repeat([&](int) { gauge.add(thread % 2 == 0 ? 1 : -2); });
        repeat([&](int round) { histogram.observe(round % 4); });
      });
    }
  }
  constexpr int kTotal = kThreads * kRounds;
  EXPECT_EQ(counter.value(), 2 * kTotal);
  EXPECT_EQ(seconds.value().count(), kTotal);
  EXPECT_EQ(gauge.value(), -kTotal / 2);
  EXPECT_THAT(buckets_of(histogram), ElementsAre(kTotal / 2, kTotal / 4, kTotal / 4));
  EXPECT_EQ(histogram.sum(), 1.5 * kTotal);
}

TEST(MetricsRegistry, threads_may_register_count_and_scrape_at_once) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 500;
  MetricsRegistry registry;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&] {
        for (int round = 0; round < kRounds; ++round) {
          registry.counter("rows_total", "", {{"stage", std::to_string(round % 100)}}).add();
          registry.histogram("h", "", {1.0, 2.0}).observe(round % 4);
        }
      });
    }
    for (int i = 1; i <= 20; ++i) {
      const auto collection = registry.collect([](MetricsRegistry& given) { given.gauge("scrapes", "").add(1); });
      EXPECT_THAT(registry.to_prometheus(), HasSubstr("\nscrapes " + std::to_string(i) + "\n"));
    }
  }
  const std::string text = registry.to_prometheus();
  EXPECT_THAT(text, HasSubstr("rows_total{stage=\"0\"} 20\n"));
  EXPECT_THAT(text, HasSubstr("rows_total{stage=\"99\"} 20\n"));
  EXPECT_THAT(text, HasSubstr("h_count 2000\n"));
}

}  // namespace
}  // namespace darkroom
