#include "job_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

namespace darkroom {

std::string draw_job_id() {
  std::random_device device;  // The system's generator: 32 bits a call.
  std::string id;
  for (int i = 0; i < 4; ++i) {
    id += fmt::format("{:08x}", device());
  }
  return id;
}

void JobStore::add(std::shared_ptr<Job> job) {
  const std::lock_guard lock(mutex_);
  tidy();
  arrivals_.emplace(job->id, num_added_);
  jobs_.emplace(num_added_++, std::move(job));
}

JobStore::Found JobStore::find(const std::string& id, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  tidy();
  if (const auto arrival = arrivals_.find(id); arrival != arrivals_.end()) {
    const std::shared_ptr<Job>& job = jobs_.at(arrival->second);
    return {.job = job->owner == owner ? job : nullptr};
  }
  return {.is_expired =
              std::any_of(expired_.begin(), expired_.end(), [&](const Expired& one) { return one.id == id && one.owner == owner; })};
}

std::vector<std::shared_ptr<Job>> JobStore::list(const std::string& owner, size_t max_listed) {
  const std::lock_guard lock(mutex_);
  tidy();
  std::vector<std::shared_ptr<Job>> listed;
  for (auto it = jobs_.rbegin(); it != jobs_.rend() && listed.size() < max_listed; ++it) {
    if (it->second->owner == owner) {
      listed.push_back(it->second);
    }
  }
  return listed;
}

void JobStore::forget(const std::string& id) {
  const std::lock_guard lock(mutex_);
  if (const auto arrival = arrivals_.find(id); arrival != arrivals_.end()) {
    jobs_.at(arrival->second)->painting->let_go();
    jobs_.erase(arrival->second);
    arrivals_.erase(arrival);
  }
}

bool JobStore::expire_oldest(std::string_view spared) {
  const std::lock_guard lock(mutex_);
  size_t num_ended = 0;
  const auto oldest = oldest_ended(num_ended, spared);
  if (oldest == jobs_.end()) {
    return false;
  }
  expire(oldest);
  return true;
}

JobStore::Jobs::iterator JobStore::oldest_ended(size_t& num_ended, std::string_view spared) {
  auto oldest = jobs_.end();
  Clock::Instant end = Clock::Instant::max();
  num_ended = 0;
  for (auto it = jobs_.begin(); it != jobs_.end(); ++it) {
    const Clock::Instant ended = it->second->painting->ended_at();
    num_ended += ended != Clock::Instant::max() ? 1 : 0;
    if (ended < end && it->second->id != spared) {
      oldest = it;
      end = ended;
    }
  }
  return oldest;
}

void JobStore::expire(Jobs::iterator job) {
  job->second->painting->let_go();  // At once, whoever else still has the job.
  expired_.push_back({.id = job->second->id, .owner = job->second->owner, .since = clock_.now()});
  arrivals_.erase(job->second->id);
  jobs_.erase(job);
}

// Lets go what is too old or too much.
void JobStore::tidy() {
  const Clock::Instant now = clock_.now();
  for (;;) {
    size_t num_ended = 0;
    const auto oldest = oldest_ended(num_ended);
    const bool goes =
        oldest != jobs_.end() && (num_ended > options_.max_ended || oldest->second->painting->ended_at() + options_.keep <= now);
    if (!goes) {
      break;
    }
    expire(oldest);
  }
  while (!expired_.empty() && (expired_.size() > options_.max_expired || expired_.front().since + options_.remember_expired <= now)) {
    expired_.pop_front();
  }
}

}  // namespace darkroom
