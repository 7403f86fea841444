#include "darkroom/core/machine_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

class HostMetrics : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) { std::ofstream(folder_.path(name)) << text; }

  const TemporaryFolder folder_;
  MetricsRegistry registry_;
};

TEST_F(HostMetrics, are_those_of_the_whole_machine) {
  ASSERT_EQ(sysconf(_SC_CLK_TCK), 100);  // Of every Linux that this runs on; the numbers below are ticks.
  write("stat", "cpu  100 20 30 1000 50 1 2 3 40 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
  write("meminfo", "MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    700 kB\n");
  const auto collection = collect_host_metrics(registry_, folder_.path());
  const std::string first = registry_.to_prometheus();
  EXPECT_THAT(first, HasSubstr("darkroom_host_cpu_seconds_total{state=\"busy\"} 1.560000000\n"));
  EXPECT_THAT(first, HasSubstr("darkroom_host_cpu_seconds_total{state=\"idle\"} 10.500000000\n"));
  EXPECT_THAT(first, HasSubstr("darkroom_host_memory_bytes 1024000\n"));
  EXPECT_THAT(first, HasSubstr("darkroom_host_memory_available_bytes 716800\n"));
  write("stat", "cpu  200 20 30 1000 50 1 2 3 40 0\n");
  EXPECT_THAT(registry_.to_prometheus(), HasSubstr("darkroom_host_cpu_seconds_total{state=\"busy\"} 2.560000000\n"));
}

TEST_F(HostMetrics, are_absent_where_the_system_does_not_say) {
  write("stat", "no such thing");
  write("meminfo", "MemTotal:       1000 kB\n");
  const auto collection = collect_host_metrics(registry_, folder_.path());
  EXPECT_EQ(registry_.to_prometheus(), "");
}

TEST(GpuMetrics, are_absent_without_nvidias_library) {
  MetricsRegistry registry;
  const auto collection = collect_gpu_metrics(registry, "libdarkroom-no-such-library.so");
  EXPECT_EQ(registry.to_prometheus(), "");
}

TEST(GpuMetrics, are_absent_where_a_library_of_that_name_lacks_the_functions) {
  MetricsRegistry registry;
  const auto collection = collect_gpu_metrics(registry, "libm.so.6");
  EXPECT_EQ(registry.to_prometheus(), "");
}

TEST(GpuMetrics, are_what_the_library_says_of_each_gpu) {
  MetricsRegistry registry;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  const auto collection = collect_gpu_metrics(registry, folder / "fake_management/libnvidia-ml.so.1");
  const std::string text = registry.to_prometheus();
  EXPECT_THAT(text, HasSubstr("darkroom_gpu_memory_bytes{gpu=\"0\"} 80000\n"));
  EXPECT_THAT(text, HasSubstr("darkroom_gpu_memory_used_bytes{gpu=\"0\"} 30000\n"));
  EXPECT_THAT(text, HasSubstr("darkroom_gpu_utilization{gpu=\"0\"} 0.75\n"));
  EXPECT_THAT(text, HasSubstr("darkroom_gpu_memory_used_bytes{gpu=\"1\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("darkroom_gpu_utilization{gpu=\"1\"}")));
}

TEST(CostMetrics, grow_with_the_time_of_the_process) {
  MetricsRegistry registry;
  FakeClock clock;
  const auto collection = collect_cost_metrics(registry, 40.0, clock, clock.now());
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("darkroom_cost_dollars 0\n"));
  clock.advance(std::chrono::minutes(90));
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("darkroom_cost_dollars 60\n"));
  EXPECT_THAT(registry.to_prometheus(), HasSubstr("darkroom_price_dollars_per_hour 40\n"));
}

}  // namespace
}  // namespace darkroom
