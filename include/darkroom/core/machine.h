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

/// What this process may hold in memory: the machine's, or the limit of a container (`memory.max` in the folder of a control group of
/// version 2) where that is less.
int64_t usable_memory_bytes(const std::string& control_group = "/sys/fs/cgroup");

/// The processor's name in the text of Linux's /proc/cpuinfo; empty when there is none.
std::string processor_name(std::string_view cpuinfo);

}  // namespace darkroom
