#include "darkroom/ingest/claims.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/files/paths.h"

namespace darkroom {
namespace {

constexpr std::chrono::minutes kRenewEvery{3};
static_assert(2 * kRenewEvery < kClaimLifetime, "one renewal may fail");

Location place_of_claim(const Location& output, int64_t item) { return claims_folder(output) / fmt::format("{:06d}", item); }

}  // namespace

struct ItemClaims::State {
  State(Location job, std::string name, Clock& time) : output(std::move(job)), owner(std::move(name)), clock(time) {}

  void complain(const Status& status) {
    if (!status.is_ok() && !has_complained.exchange(true)) {
      log_warning("a claim on an item could not be renewed or given back; it expires by itself: {}", status.message());
    }
  }

  std::map<int64_t, int64_t> held_now() {
    const std::lock_guard hold(mutex);
    return held;
  }
  bool holds(int64_t item) {
    const std::lock_guard hold(mutex);
    return held.contains(item);
  }
  /// Unless it was taken again meanwhile.
  void forget(int64_t item, int64_t taking) {
    const std::lock_guard hold(mutex);
    if (const auto found = held.find(item); found != held.end() && found->second == taking) {
      held.erase(found);
    }
  }

  void renew_until(const std::stop_token& stop) {
    while (clock.sleep_until(clock.now() + kRenewEvery, stop)) {
      for (const auto& [item, taking] : held_now()) {
        if (stop.stop_requested()) {
          return;
        }
        renew(item, taking);
      }
    }
  }
  /// A store that does not answer makes this take long, so nothing is locked meanwhile.
  void renew(int64_t item, int64_t taking) {
    if (!holds(item)) {
      return;
    }
    const Result<ClaimHolder> holder = renew_claim(place_of_claim(output, item), owner, clock);
    complain(holder.status());
    if (holder.is_ok() && *holder == ClaimHolder::kOthers) {
      forget(item, taking);
    } else if (!holds(item)) {  // It was given back meanwhile, and may have been made again.
      complain(give_back(item));
    }
  }
  Status give_back(int64_t item) { return release_claim(place_of_claim(output, item), owner); }

  const Location output;
  const std::string owner;
  Clock& clock;
  std::mutex mutex;
  std::map<int64_t, int64_t> held;  // Guarded by mutex, like what follows: the items, and which taking of ours each is of.
  int64_t num_takings = 0;
  std::atomic<bool> has_complained = false;
  std::jthread renewing;  // Last: it uses the rest.
};

ItemClaims::ItemClaims(Location output, std::string owner, Clock& clock)
    : state_(std::make_unique<State>(std::move(output), std::move(owner), clock)) {
  state_->renewing = std::jthread([state = state_.get()](const std::stop_token& stop) { state->renew_until(stop); });
}

ItemClaims::~ItemClaims() {
  state_->renewing = std::jthread();
  for (const auto& [item, taking] : state_->held) {
    const Status status = state_->give_back(item);
    state_->complain(status);
    if (status.code() == StatusCode::kUnavailable) {
      return;  // Nor would the others go: one wait for a store that is down is enough.
    }
  }
}

Result<ClaimHolder> ItemClaims::take(int64_t item) {
  const Location place = place_of_claim(state_->output, item);
  DARKROOM_ASSIGN_OR_RETURN(ClaimHolder holder, take_claim(place, state_->owner, state_->clock));
  const std::lock_guard hold(state_->mutex);
  if (holder == ClaimHolder::kOurs) {
    state_->held[item] = state_->num_takings++;
  }
  return holder;
}

void ItemClaims::release(int64_t item) {
  {
    const std::lock_guard hold(state_->mutex);
    if (state_->held.erase(item) == 0) {
      return;
    }
  }
  state_->complain(state_->give_back(item));
}

Location claims_folder(const Location& output) { return output / "_claims"; }

ClaimsSeen look_at_claims(const Location& output, std::chrono::system_clock::time_point now) {
  const Location claims = claims_folder(output);
  const Result<std::vector<FileInfo>> entries = claims.store->list(claims.path);
  if (!entries.is_ok()) {
    const bool is_unknown = entries.status().code() != StatusCode::kNotFound;
    return {.may_live = is_unknown, .have_leftovers = is_unknown};
  }
  const auto is_leftover = [](const FileInfo& entry) { return file_name(entry.path).starts_with("_tmp"); };
  const auto may_live = [&](const FileInfo& entry) {
    const Result<std::optional<Claim>> claim = read_claim({.store = claims.store, .path = entry.path});
    return !claim.is_ok() || (*claim && (*claim)->is_live(now));
  };
  return {.may_live = std::ranges::any_of(*entries, [&](const FileInfo& entry) { return !is_leftover(entry) && may_live(entry); }),
          .have_leftovers = std::ranges::any_of(*entries, is_leftover)};
}

const std::string& owner_of_this_process() {
  static const std::string owner = make_claim_owner();
  return owner;
}

}  // namespace darkroom
