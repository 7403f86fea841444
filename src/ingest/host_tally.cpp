#include "host_tally.h"

#include <algorithm>

namespace darkroom {
namespace {

constexpr const char* kOtherHosts = "(others)";
// No name of a host is longer (RFC 1035): URLs that were refused hold anything.
constexpr size_t kMaxHostBytes = 253;

}  // namespace

void HostTally::add(const std::string& host, bool has_failed, std::chrono::nanoseconds on_wire) {
  if (host.empty() || host.size() > kMaxHostBytes) {
    return;
  }
  const std::lock_guard hold(mutex_);
  const bool is_known = hosts_.size() < kMaxHosts || hosts_.contains(host);
  const std::string& name = is_known ? host : kOtherHosts;
  HostCounts& counts = hosts_[name];
  counts.host = name;
  ++counts.num_rows;
  counts.num_failed += has_failed ? 1 : 0;
  counts.seconds += std::chrono::duration<double>(on_wire).count();
}

std::vector<HostCounts> HostTally::top(size_t num_hosts) const {
  std::vector<HostCounts> sorted;
  {
    const std::lock_guard hold(mutex_);
    for (const auto& [host, counts] : hosts_) {
      sorted.push_back(counts);
    }
  }
  num_hosts = std::min(num_hosts, sorted.size());
  std::partial_sort(
      sorted.begin(), sorted.begin() + static_cast<int64_t>(num_hosts), sorted.end(),
      [](const HostCounts& a, const HostCounts& b) { return a.num_rows != b.num_rows ? a.num_rows > b.num_rows : a.host < b.host; });
  sorted.resize(num_hosts);
  return sorted;
}

}  // namespace darkroom
