#include "darkroom/core/process_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace darkroom {
namespace {

TEST(ProcessMetrics, are_read_at_each_scrape) {
  MetricsRegistry registry;
  const auto collection = collect_process_metrics(registry);
  const auto again = collect_process_metrics(registry);  // Adds nothing twice.
  EXPECT_THAT(registry.to_prometheus(), testing::HasSubstr("darkroom_process_resident_bytes "));
  const SecondsCounter& processor =
      registry.seconds_counter("darkroom_process_cpu_seconds_total", "Processor time of the process, user and system.");
  const auto before = processor.value();
  EXPECT_GT(before, std::chrono::nanoseconds(0));
  EXPECT_GT(registry.gauge("darkroom_process_resident_bytes", "Resident memory of the process.").value(), 1e6);
  volatile uint64_t sum = 0;
  for (uint64_t i = 0; processor.value() == before; ++i) {
    sum = sum + i;
    if (i % 10'000'000 == 0) {
      registry.to_prometheus();
    }
  }
  timespec used{};
  ASSERT_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
  const auto since_start = std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
  EXPECT_LE(processor.value(), since_start + std::chrono::seconds(1));
}

}  // namespace
}  // namespace darkroom
