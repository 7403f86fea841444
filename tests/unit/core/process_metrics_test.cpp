#include "darkroom/core/process_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <sstream>
#include <string>

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

TEST(ProcessMetrics, children_count_while_they_live_and_when_they_have_ended) {
  MetricsRegistry registry;
  const auto collection = collect_process_metrics(registry);
  const auto value_of = [&](const std::string& name) {
    std::istringstream text(registry.to_prometheus());
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with(name + " ")) {
        return std::stod(line.substr(name.size() + 1));
      }
    }
    return -1.0;
  };
  const double before = value_of("darkroom_children_cpu_seconds_total");
  ASSERT_GE(before, 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) {
    }
  }
  while (value_of("darkroom_children_cpu_seconds_total") < before + 0.05) {
  }
  EXPECT_GT(value_of("darkroom_children_resident_bytes"), 1e5);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const double after = value_of("darkroom_children_cpu_seconds_total");
  EXPECT_GE(after, before + 0.05);
  EXPECT_EQ(value_of("darkroom_children_resident_bytes"), 0);
  EXPECT_EQ(value_of("darkroom_children_cpu_seconds_total"), after);
}

}  // namespace
}  // namespace darkroom
