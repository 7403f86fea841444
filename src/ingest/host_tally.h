#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "darkroom/ingest/job_summary.h"

namespace darkroom {

/// What each host gave. Bounded: of the first 65,536 hosts by name, of all later ones together. Thread safety: any thread.
class HostTally {
 public:
  /// A row of the host; an empty one is no host.
  void add(const std::string& host, bool has_failed, std::chrono::nanoseconds on_wire);
  /// So many hosts: in turn the next one by rows, by failed rows and by seconds, so that a few slow or failing rows show, too. In the order
  /// of their rows, those with equally many by name.
  std::vector<HostCounts> top(size_t num_hosts) const;

 private:
  static constexpr size_t kMaxHosts = 65'536;

  mutable std::mutex mutex_;
  std::unordered_map<std::string, HostCounts> hosts_;  // Guarded by mutex_.
};

}  // namespace darkroom
