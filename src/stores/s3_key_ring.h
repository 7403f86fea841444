#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "darkroom/core/clock.h"
#include "darkroom/core/result.h"
#include "s3_credentials.h"

namespace darkroom {

/// The keys of one store, kept: looked for when they are first wanted, and again five minutes before they expire, while the old ones hold
/// and are used. Thread safety: any thread.
class S3KeyRing {
 public:
  using Find = std::function<Result<S3Credentials>()>;

  S3KeyRing(Find find, Clock& clock) : find_(std::move(find)), clock_(clock) {}

  /// Nothing: anonymous. `anew`: the store says that those given last have expired. Keys that have expired when they are given out are
  /// used for half a minute: the clock may be wrong. Errors: those of the search, when there are no keys that hold.
  Result<std::optional<S3Keys>> get(bool anew);

 private:
  using Time = std::chrono::sys_seconds;

  Time now() const { return std::chrono::floor<std::chrono::seconds>(clock_.wall()); }
  Status renew();  // REQUIRES: mutex_ is held.
  void try_to_renew(std::unique_lock<std::mutex>& lock);

  const Find find_;
  Clock& clock_;
  std::mutex mutex_;  // Of what follows.
  std::optional<S3Credentials> found_;
  Time found_at_{};
  Time next_try_{};
  bool is_renewing_ = false;  // A thread looks for keys, without the lock.
};

}  // namespace darkroom
