#pragma once

#include <time.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <string>

namespace darkroom {

/// CPU time of this process.
inline int64_t cpu_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

/// Answers "NAME COUNT" lines on stdin with the nanoseconds of CPU time that COUNT runs of the named task took, one line each, until
/// the input ends. `find` returns the task, or an empty function for an unknown name, which ends the program with 1.
/// So a script can let this program and a peer take turns while both stay warm.
inline int serve_timings(const std::function<std::function<void()>(const std::string&)>& find) {
  std::string name;
  int64_t count = 0;
  while (std::cin >> name >> count) {
    const std::function<void()> task = find(name);
    if (!task) {
      std::cerr << "unknown task: " << name << '\n';
      return 1;
    }
    const int64_t began = cpu_nanoseconds();
    for (int64_t i = 0; i < count; ++i) {
      task();
    }
    std::cout << cpu_nanoseconds() - began << std::endl;
  }
  return 0;
}

}  // namespace darkroom
