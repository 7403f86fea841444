#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iostream>
#include <string>

namespace darkroom {

/// Answers "NAME COUNT" lines on stdin with the nanoseconds that COUNT runs of the named task took, one line each, until
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
    const auto began = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < count; ++i) {
      task();
    }
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - began;
    std::cout << took.count() << std::endl;
  }
  return 0;
}

}  // namespace darkroom
