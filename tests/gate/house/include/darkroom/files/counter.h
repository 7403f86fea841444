#pragma once

#include <mutex>

namespace darkroom {

/// Counts what several threads do. Thread safety: any thread may call anything, unless the fault "race" is planted.
class Counter {
 public:
  void add();
  int value() const { return value_; }

 private:
  std::mutex mutex_;
  int value_ = 0;
};

}  // namespace darkroom
