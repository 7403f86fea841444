#include "darkroom/core/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

namespace darkroom {
namespace {

std::string read_cpuinfo() {
  std::ifstream file("/proc/cpuinfo");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string architecture() {
  utsname names{};
  return uname(&names) == 0 ? std::string(names.machine) : std::string("unknown");
}

int64_t memory_bytes_of_the_machine() {
  const long num_pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGE_SIZE);
  return num_pages > 0 && page_bytes > 0 ? static_cast<int64_t>(num_pages) * page_bytes : 0;
}

}  // namespace

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

MachineFacts read_machine_facts() {
  MachineFacts facts;
  facts.processor = processor_name(read_cpuinfo());
  if (facts.processor.empty()) {
    facts.processor = architecture();
  }
  facts.num_cores = static_cast<int64_t>(std::thread::hardware_concurrency());
  facts.memory_bytes = memory_bytes_of_the_machine();
  return facts;
}

int num_processors() { return static_cast<int>(std::max(1U, std::thread::hardware_concurrency())); }

int64_t usable_memory_bytes(const std::string& control_group) {
  const int64_t machine_bytes = memory_bytes_of_the_machine();
  std::ifstream file(control_group + "/memory.max");  // "max" where there is no limit: no number.
  int64_t limit_bytes = 0;
  return file >> limit_bytes && limit_bytes > 0 ? std::min(machine_bytes, limit_bytes) : machine_bytes;
}

std::string processor_name(std::string_view cpuinfo) {
  constexpr std::string_view kField = "model name";
  for (size_t begin = 0; begin < cpuinfo.size();) {
    const size_t end = std::min(cpuinfo.find('\n', begin), cpuinfo.size());
    const std::string_view line = cpuinfo.substr(begin, end - begin);
    const size_t colon = line.find(':');
    if (line.starts_with(kField) && colon != std::string_view::npos) {
      const size_t first = line.find_first_not_of(" \t", colon + 1);
      const size_t last = line.find_last_not_of(" \t\r");
      return first == std::string_view::npos ? std::string() : std::string(line.substr(first, last - first + 1));
    }
    begin = end + 1;
  }
  return {};
}

}  // namespace darkroom
