#include "darkroom/core/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace darkroom {
namespace {

/// `who`: RUSAGE_SELF, or RUSAGE_CHILDREN for the children that were waited for, and theirs.
std::chrono::nanoseconds used_processor_time(__rusage_who_t who) {
  rusage usage{};
  if (getrusage(who, &usage) != 0) {
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

struct LiveProcesses {
  std::chrono::nanoseconds processor{};
  int64_t resident_bytes = 0;
};

/// Adds what /proc/PID/stat (proc(5)) says of a process and of those of its own that it waited for; nothing of one that has gone.
void add_process(const std::string& pid, LiveProcesses& sum) {
  std::ifstream file("/proc/" + pid + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');  // The name may hold anything.
  if (name_end == std::string::npos) {
    return;
  }
  std::istringstream fields(text.substr(name_end + 1));
  std::array<std::string, 22> words;  // From the third field on: state, ..., utime (14), stime, cutime, cstime, ..., rss (24).
  std::ranges::for_each(words, [&](std::string& word) { fields >> word; });
  const auto number = [&](size_t field) { return static_cast<int64_t>(std::strtoll(words[field - 3].c_str(), nullptr, 10)); };
  sum.processor += std::chrono::nanoseconds((number(14) + number(15) + number(16) + number(17)) * (1'000'000'000 / sysconf(_SC_CLK_TCK)));
  sum.resident_bytes += number(24) * static_cast<int64_t>(sysconf(_SC_PAGE_SIZE));
}

/// The children that live, as the kernel lists them by the thread that started each. Nothing where it has no such lists.
LiveProcesses live_children() {
  LiveProcesses sum;
  std::error_code error;  // A thread may end meanwhile.
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream children(thread.path() / "children");
    for (std::string pid; children >> pid;) {
      add_process(pid, sum);
    }
  }
  return sum;
}

}  // namespace

MetricsRegistry::Collection collect_process_metrics(MetricsRegistry& metrics) {
  return metrics.collect([began = std::chrono::steady_clock::now()](MetricsRegistry& registry) {
    SecondsCounter& processor =
        registry.seconds_counter("darkroom_process_cpu_seconds_total", "Processor time of the process, user and system.");
    processor.add(used_processor_time(RUSAGE_SELF) - processor.value());
    registry.gauge("darkroom_process_resident_bytes", "Resident memory of the process.").set(static_cast<double>(resident_bytes()));
    SecondsCounter& of_children = registry.seconds_counter("darkroom_children_cpu_seconds_total",
                                                           "Processor time of the processes that this one started, live and ended.");
    // First those that ended: one that ends in between is counted once or, at this scrape, not at all, and a counter never falls.
    const std::chrono::nanoseconds ended = used_processor_time(RUSAGE_CHILDREN);
    const LiveProcesses live = live_children();
    of_children.add(std::max<std::chrono::nanoseconds>(ended + live.processor - of_children.value(), {}));
    registry.gauge("darkroom_children_resident_bytes", "Resident memory of the processes that this one started, each by itself.")
        .set(static_cast<double>(live.resident_bytes));
    registry.gauge("darkroom_process_uptime_seconds", "Time since the process began to count.")
        .set(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  });
}

}  // namespace darkroom
