#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>

#include "darkroom/core/clock.h"
#include "darkroom/web/resolver.h"

namespace darkroom {

/// Answers by name until their time is over. Thread safety: none.
class DnsCache {
 public:
  explicit DnsCache(size_t max_names) : max_names_(max_names) {}

  std::optional<DnsAnswer> find(const std::string& host, Clock::Instant now);
  /// Nothing is kept with a `life` of 0.
  void keep(const std::string& host, DnsAnswer answer, std::chrono::seconds life, Clock::Instant now);
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string host;
    DnsAnswer answer;
    Clock::Instant until;
  };
  size_t max_names_;
  std::list<Entry> entries_;  // The one asked for last comes first.
  std::unordered_map<std::string, std::list<Entry>::iterator> by_host_;
};

}  // namespace darkroom
