#include "s3_key_ring.h"

#include "darkroom/core/log.h"

namespace darkroom {
namespace {

constexpr std::chrono::minutes kRenewBefore{5};
constexpr std::chrono::seconds kBetweenTries{30};
constexpr std::chrono::seconds kJustNow{10};  // Requests that were under way say "expired" of the keys before these.

}  // namespace

Result<std::optional<S3Keys>> S3KeyRing::get(bool anew) {
  std::unique_lock lock(mutex_);
  const std::optional<Time> expires = found_ && found_->keys ? found_->keys->expires : std::nullopt;
  const bool has_expired = expires && now() >= *expires;
  // Those that had expired by our clock when they were given out may be good by the store's.
  const bool is_in_doubt = expires && *expires <= found_at_ && now() < next_try_;
  if (!found_ || (has_expired && !is_in_doubt) || (anew && now() - found_at_ >= kJustNow)) {
    DARKROOM_RETURN_IF_ERROR(renew());
  } else if (expires && now() >= *expires - kRenewBefore && now() >= next_try_ && !is_renewing_) {
    try_to_renew(lock);
  }
  return found_->keys;
}

Status S3KeyRing::renew() {
  Result<S3Credentials> found = find_();
  if (!found.is_ok()) {
    // Who gave out keys before has none only while something is out of reach; a helper program says no more than that it failed.
    const bool may_pass = found_ && found.status().code() == StatusCode::kFailedPrecondition;
    return may_pass ? Status::unavailable(found.status().message()) : found.status();
  }
  found_ = *std::move(found);
  found_at_ = now();
  next_try_ = found_at_ + kBetweenTries;  // An issuer may give out keys with less than five minutes left again and again.
  return Status::ok();
}

void S3KeyRing::try_to_renew(std::unique_lock<std::mutex>& lock) {
  is_renewing_ = true;
  lock.unlock();
  Result<S3Credentials> found = Status::internal("keys are looked for");
  try {
    found = find_();
  } catch (...) {
    lock.lock();
    is_renewing_ = false;
    throw;
  }
  lock.lock();
  is_renewing_ = false;
  next_try_ = now() + kBetweenTries;
  if (!found.is_ok()) {
    if (found.status().code() != StatusCode::kCancelled) {  // By a stop.
      log_warning("the keys for a store expire soon, and new ones were not given out yet: {}", found.status().message());
    }
    return;
  }
  found_ = *std::move(found);
  found_at_ = now();
}

}  // namespace darkroom
