#include "darkroom/core/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

namespace darkroom {
namespace {

std::chrono::nanoseconds used_processor_time() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) {
    return {};
  }
  const auto of = [](const timeval& time) { return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec); };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

/// 0 where the system does not say.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t num_pages = 0;
  int64_t num_resident = 0;
  return file >> num_pages >> num_resident ? num_resident * static_cast<int64_t>(sysconf(_SC_PAGE_SIZE)) : 0;
}

}  // namespace

MetricsRegistry::Collection collect_process_metrics(MetricsRegistry& metrics) {
  return metrics.collect([began = std::chrono::steady_clock::now()](MetricsRegistry& registry) {
    SecondsCounter& processor =
        registry.seconds_counter("darkroom_process_cpu_seconds_total", "Processor time of the process, user and system.");
    processor.add(used_processor_time() - processor.value());
    registry.gauge("darkroom_process_resident_bytes", "Resident memory of the process.").set(static_cast<double>(resident_bytes()));
    registry.gauge("darkroom_process_uptime_seconds", "Time since the process began to count.")
        .set(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  });
}

}  // namespace darkroom
