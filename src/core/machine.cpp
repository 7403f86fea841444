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

/// The files of a control group's memory. Linux documents version 2 in admin-guide/cgroup-v2.rst, version 1 in cgroup-v1/memory.rst.
struct ControlGroupVersion {
  std::string_view controller;  // In /proc/self/cgroup.
  std::string_view folder;      // Below the hierarchy's root.
  std::string_view limit;
  std::string_view used;
  std::string_view unused_file_pages;  // The name of a line of memory.stat.
};

constexpr ControlGroupVersion kControlGroupVersions[] = {
    {"", "", "memory.max", "memory.current", "inactive_file"},
    {"memory", "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"},
};

// 0 where there is no file, or no number in it ("max": no limit).
int64_t number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : 0;
}

int64_t number_named(std::string_view wanted, const std::string& path) {
  std::ifstream file(path);
  std::string name;
  for (int64_t number = 0; file >> name >> number;) {
    if (name == wanted) {
      return number;
    }
  }
  return 0;
}

// "/a/b" of the line "4:memory:/a/b", or "0::/a/b" without a controller; empty for the root.
std::string own_group(const std::string& membership, std::string_view controller) {
  std::ifstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second != line.npos && std::string_view(line).substr(first + 1, second - first - 1) == controller) {
      const std::string group = line.substr(second + 1);
      return group.starts_with('/') && group != "/" ? group : "";
    }
  }
  return {};
}

// Takes the least of what is known and of what the group in `folder` leaves.
void add_group(const std::string& folder, const ControlGroupVersion& version, ControlGroupMemory& least) {
  const auto in = [&](std::string_view name) { return folder + "/" + std::string(name); };
  const int64_t limit = number_in(in(version.limit));
  if (limit <= 0 || limit >= memory_bytes_of_the_machine()) {  // Version 1 says "none" with a number that no machine has.
    return;
  }
  const int64_t used = number_in(in(version.used)) - number_named(version.unused_file_pages, in("memory.stat"));
  const int64_t available = std::clamp<int64_t>(limit - used, 0, limit);
  const bool is_first = least.limit_bytes == 0;
  least.limit_bytes = is_first ? limit : std::min(least.limit_bytes, limit);
  least.available_bytes = is_first ? available : std::min(least.available_bytes, available);
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

ControlGroupMemory control_group_memory(const std::string& hierarchy, const std::string& membership) {
  ControlGroupMemory least;
  for (const ControlGroupVersion& version : kControlGroupVersions) {
    const std::string root = hierarchy + std::string(version.folder);
    for (std::string group = own_group(membership, version.controller);; group.resize(group.rfind('/'))) {
      add_group(root + group, version, least);
      if (group.empty()) {
        break;
      }
    }
  }
  return least;
}

int64_t usable_memory_bytes(const std::string& hierarchy) {
  const int64_t machine_bytes = memory_bytes_of_the_machine();
  const int64_t limit_bytes = control_group_memory(hierarchy).limit_bytes;
  return limit_bytes > 0 ? limit_bytes : machine_bytes;
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
