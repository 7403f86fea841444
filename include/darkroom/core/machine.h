#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace darkroom {

/// The machine that the program runs on, for people to read: no byte that we write to a dataset may depend on it.
struct MachineFacts {
  std::string processor;     ///< "AMD EPYC 9R45", or the architecture where the system does not name the model.
  int64_t num_cores = 0;     ///< That this process may use.
  int64_t memory_bytes = 0;  ///< Of the machine; 0 where the system does not say.
};

MachineFacts read_machine_facts();

/// The machine's name among others; empty where the system does not say.
std::string host_name();

/// The machine's processors, at least 1: workers where nothing else is asked for.
int num_processors();

/// What control groups, as those of containers and services, leave a process of the machine's memory.
struct ControlGroupMemory {
  int64_t limit_bytes = 0;      ///< The least limit; 0 without one below the machine's memory.
  int64_t available_bytes = 0;  ///< Room in the fullest group, file pages that are not in use included; 0 without a limit.
};

/// Of this process: its own group and those above it, as far as they are seen in `hierarchy`, of version 2 or 1. `membership` says which
/// group is its own.
ControlGroupMemory control_group_memory(const std::string& hierarchy = "/sys/fs/cgroup",
                                        const std::string& membership = "/proc/self/cgroup");

/// What this process may hold in memory: the machine's, or the limit of its control groups where that is less.
int64_t usable_memory_bytes(const std::string& hierarchy = "/sys/fs/cgroup");

/// The processor's name in the text of Linux's /proc/cpuinfo; empty when there is none.
std::string processor_name(std::string_view cpuinfo);

}  // namespace darkroom
