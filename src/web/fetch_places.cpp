#include "fetch_places.h"

#include <algorithm>

#include "darkroom/core/check.h"

namespace darkroom {

void FetchPlaces::start(uint64_t attempt, Instant now) {
  const bool is_new = attempts_.emplace(attempt, State{now}).second;
  DARKROOM_CHECK(is_new, "an attempt started twice:", attempt);
  looks_.emplace_back(now + kLookEvery, attempt);
}

void FetchPlaces::end(uint64_t attempt) {
  const auto found = attempts_.find(attempt);
  DARKROOM_CHECK(found != attempts_.end(), "an attempt ended that was not started:", attempt);
  num_slow_ -= found->second.is_slow ? 1 : 0;
  attempts_.erase(found);
}

std::vector<uint64_t> FetchPlaces::look(Instant now, const std::function<bool(uint64_t)>& has_progressed) {
  std::vector<uint64_t> slow;
  for (; !looks_.empty() && looks_.front().first <= now; looks_.pop_front()) {
    const uint64_t attempt = looks_.front().second;
    const auto found = attempts_.find(attempt);
    if (found == attempts_.end()) {
      continue;
    }
    State& state = found->second;
    if (has_progressed(attempt)) {
      state.progress_at = now;
    }
    const bool is_slow = now - state.progress_at >= patience();
    num_slow_ += static_cast<int>(is_slow) - static_cast<int>(state.is_slow);
    if (is_slow && !state.is_slow) {
      slow.push_back(attempt);
    }
    state.is_slow = is_slow;
    looks_.emplace_back(now + kLookEvery, attempt);
  }
  return slow;
}

std::optional<FetchPlaces::Instant> FetchPlaces::next_look() const {
  return attempts_.empty() || looks_.empty() ? std::nullopt : std::optional(looks_.front().first);
}

void FetchPlaces::note_first_byte(Duration after) {
  constexpr double kStep = 1.02;  // As many steps up as down: half of the times are longer.
  const bool is_longer = std::chrono::duration<double>(after).count() > usual_seconds_;
  usual_seconds_ = std::clamp(is_longer ? usual_seconds_ * kStep : usual_seconds_ / kStep, 1e-3, 10.0);
}

FetchPlaces::Duration FetchPlaces::patience() const {
  const auto usual = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(4 * usual_seconds_));
  return std::clamp(usual, kShortestPatience, kLongestPatience);
}

void FetchPlaces::lower_to(int num_places) { num_places_ = std::clamp(num_places, 1, num_places_); }

}  // namespace darkroom
