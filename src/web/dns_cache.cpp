#include "dns_cache.h"

#include <utility>

namespace darkroom {

std::optional<DnsAnswer> DnsCache::find(const std::string& host, Clock::Instant now) {
  const auto found = by_host_.find(host);
  if (found == by_host_.end()) {
    return std::nullopt;
  }
  if (found->second->until <= now) {
    entries_.erase(found->second);
    by_host_.erase(found);
    return std::nullopt;
  }
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->answer;
}

void DnsCache::keep(const std::string& host, DnsAnswer answer, std::chrono::seconds life, Clock::Instant now) {
  if (life <= std::chrono::seconds(0) || max_names_ == 0) {
    return;
  }
  if (const auto found = by_host_.find(host); found != by_host_.end()) {
    entries_.erase(found->second);
    by_host_.erase(found);
  }
  while (entries_.size() >= max_names_) {
    by_host_.erase(entries_.back().host);
    entries_.pop_back();
  }
  answer.is_from_cache = true;
  entries_.push_front({host, std::move(answer), now + life});
  by_host_.emplace(host, entries_.begin());
}

}  // namespace darkroom
