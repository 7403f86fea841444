#include "host_tally.h"

#include <algorithm>
#include <set>

namespace darkroom {
namespace {

constexpr const char* kOtherHosts = "(others)";
// No name of a host is longer (RFC 1035): URLs that were refused hold anything.
constexpr size_t kMaxHostBytes = 253;

/// The first `count` by a value, those with equal ones by name; none without any.
template <typename Value>
std::vector<const HostCounts*> ranked(const std::vector<HostCounts>& all, size_t count, Value value) {
  std::vector<const HostCounts*> order;
  for (const HostCounts& counts : all) {
    if (value(counts) > 0) {
      order.push_back(&counts);
    }
  }
  count = std::min(count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(count), order.end(), [&](const HostCounts* a, const HostCounts* b) {
    return value(*a) != value(*b) ? value(*a) > value(*b) : a->host < b->host;
  });
  order.resize(count);
  return order;
}

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
  std::vector<HostCounts> all;
  {
    const std::lock_guard hold(mutex_);
    for (const auto& [host, counts] : hosts_) {
      all.push_back(counts);
    }
  }
  num_hosts = std::min(num_hosts, all.size());
  std::vector<std::vector<const HostCounts*>> rankings = {
      ranked(all, num_hosts, [](const HostCounts& counts) { return static_cast<double>(counts.num_rows); }),
      ranked(all, num_hosts, [](const HostCounts& counts) { return static_cast<double>(counts.num_failed); }),
      ranked(all, num_hosts, [](const HostCounts& counts) { return counts.seconds; })};
  std::set<const HostCounts*> chosen;
  for (size_t place = 0; chosen.size() < num_hosts; ++place) {
    for (const auto& ranking : rankings) {
      if (place < ranking.size() && chosen.size() < num_hosts) {
        chosen.insert(ranking[place]);
      }
    }
  }
  std::vector<HostCounts> top;
  for (const HostCounts* counts : chosen) {
    top.push_back(*counts);
  }
  std::ranges::sort(
      top, [](const HostCounts& a, const HostCounts& b) { return a.num_rows != b.num_rows ? a.num_rows > b.num_rows : a.host < b.host; });
  return top;
}

}  // namespace darkroom
