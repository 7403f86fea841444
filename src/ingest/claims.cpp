#include "darkroom/ingest/claims.h"

#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "darkroom/core/log.h"

namespace darkroom {
namespace {

constexpr std::chrono::minutes kRenewEvery{3};
static_assert(2 * kRenewEvery < kClaimLifetime, "one renewal may fail");

Location place_of_claim(const Location& output, int64_t item) { return output / "_claims" / fmt::format("{:06d}", item); }

}  // namespace

struct ItemClaims::State {
  State(Location job, std::string name, Clock& time) : output(std::move(job)), owner(std::move(name)), clock(time) {}

  void complain(const Status& status) {
    if (!status.is_ok() && !std::exchange(has_complained, true)) {
      log_warning("a claim on an item could not be renewed or given back; it expires by itself: {}", status.message());
    }
  }

  void renew_until(const std::stop_token& stop) {
    while (clock.sleep_until(clock.now() + kRenewEvery, stop)) {
      const std::lock_guard hold(mutex);
      for (const int64_t item : held) {
        complain(renew_claim(place_of_claim(output, item), owner, clock.wall()).status());
      }
    }
  }

  const Location output;
  const std::string owner;
  Clock& clock;
  std::mutex mutex;  // Guards both below; held while claims are renewed, so that none that was given back is made again.
  std::set<int64_t> held;
  bool has_complained = false;
  std::jthread renewing;  // Last: it uses the rest.
};

ItemClaims::ItemClaims(Location output, std::string owner, Clock& clock)
    : state_(std::make_unique<State>(std::move(output), std::move(owner), clock)) {
  state_->renewing = std::jthread([state = state_.get()](const std::stop_token& stop) { state->renew_until(stop); });
}

ItemClaims::~ItemClaims() {
  state_->renewing = std::jthread();
  while (!state_->held.empty()) {
    release(*state_->held.begin());
  }
}

Result<ClaimHolder> ItemClaims::take(int64_t item) {
  const Location place = place_of_claim(state_->output, item);
  DARKROOM_ASSIGN_OR_RETURN(ClaimHolder holder, take_claim(place, state_->owner, state_->clock.wall()));
  const std::lock_guard hold(state_->mutex);
  if (holder == ClaimHolder::kOurs) {
    state_->held.insert(item);
  }
  return holder;
}

void ItemClaims::release(int64_t item) {
  const std::lock_guard hold(state_->mutex);
  if (state_->held.erase(item) > 0) {
    state_->complain(release_claim(place_of_claim(state_->output, item), state_->owner));
  }
}

const std::string& owner_of_this_process() {
  static const std::string owner = make_claim_owner();
  return owner;
}

}  // namespace darkroom
