#include "darkroom/files/claim.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "darkroom/core/nested_text.h"
#include "temporary.h"

namespace darkroom {

namespace {

constexpr int64_t kMaxClaimBytes = 4 << 10;
constexpr int kMaxClaimAttempts = 4;  // A claim may be given back between two looks.

void check_claim_owner(const std::string& owner) {
  const bool is_plain = std::ranges::all_of(owner, [](char letter) { return letter > ' ' && letter <= '~'; });
  DARKROOM_CHECK(!owner.empty() && is_plain, "an owner of claims is printable ASCII:", owner);
}

std::string print_claim(const std::string& owner, std::chrono::system_clock::time_point now) {
  const auto expires = std::chrono::floor<std::chrono::milliseconds>(now) + kClaimLifetime;
  return nlohmann::json{{"owner", owner}, {"expires", std::chrono::milliseconds(expires.time_since_epoch()).count()}}.dump();
}

std::optional<Claim> parse_claim(const std::string& text) {
  const nlohmann::json fields = parse_json(text);
  if (!fields.is_object()) {
    return std::nullopt;
  }
  const auto owner = fields.find("owner");
  const auto expires = fields.find("expires");
  const bool is_claim = owner != fields.end() && owner->is_string() && expires != fields.end() && expires->is_number_integer();
  if (!is_claim || (expires->is_number_unsigned() && expires->get<uint64_t>() > INT64_MAX)) {
    return std::nullopt;
  }
  const std::chrono::milliseconds since_epoch(expires->get<int64_t>());
  return Claim{.owner = owner->get<std::string>(), .expires = std::chrono::sys_time<std::chrono::milliseconds>(since_epoch)};
}

/// Whether its owner is a process of this machine that does not live any more: nobody else can tell before it expires.
bool is_of_the_dead(const Claim& claim) {
  const std::optional<TemporaryOwner> owner = owner_of_temporary("." + claim.owner);
  return owner && is_dead_here(*owner);
}

}  // namespace

bool Claim::is_live(std::chrono::system_clock::time_point now) const {
  const auto instant = std::chrono::floor<std::chrono::milliseconds>(now);
  return instant < expires && expires <= instant + 2 * kClaimLifetime;
}

bool may_be_at_work(const Claim& claim, std::chrono::system_clock::time_point now) {
  return (claim.is_live(now) || claim.is_live(now - kClaimLifetime)) && !is_of_the_dead(claim);
}

std::string make_claim_owner() {
  const std::string name = unique_name("");
  return name.substr(1);
}

Result<std::optional<Claim>> read_claim(const Location& place) {
  const Result<std::string> text = place.store->read_small(place.path, kMaxClaimBytes);
  if (text.is_ok()) {
    return parse_claim(*text);
  }
  const bool is_none = text.status().code() == StatusCode::kNotFound || text.status().code() == StatusCode::kCorruptData;
  return is_none ? Result<std::optional<Claim>>(std::nullopt) : text.status();
}

Result<ClaimHolder> take_claim(const Location& place, const std::string& owner, const Clock& clock) {
  check_claim_owner(owner);
  for (int attempt = 0; attempt < kMaxClaimAttempts; ++attempt) {
    const auto asked = clock.wall();
    DARKROOM_ASSIGN_OR_RETURN(const bool is_taken, place.store->create_small(place.path, print_claim(owner, asked)));
    if (is_taken) {
      return clock.wall() < asked + kClaimLifetime ? Result<ClaimHolder>(ClaimHolder::kOurs) : renew_claim(place, owner, clock);
    }
    DARKROOM_ASSIGN_OR_RETURN(const bool is_there, place.exists());
    if (!is_there) {
      continue;
    }
    DARKROOM_ASSIGN_OR_RETURN(const std::optional<Claim> claim, read_claim(place));
    const auto now = clock.wall();
    if (claim && claim->owner != owner && claim->is_live(now) && !is_of_the_dead(*claim)) {
      return ClaimHolder::kOthers;
    }
    const Status replaced = place.store->replace_small_now(place.path, print_claim(owner, now));
    if (replaced.code() == StatusCode::kUnavailable && attempt + 1 < kMaxClaimAttempts) {
      continue;  // The next look may wait for the store, and then shows whose it is.
    }
    DARKROOM_RETURN_IF_ERROR(replaced);
    return ClaimHolder::kOurs;
  }
  return ClaimHolder::kOthers;  // Somebody takes and gives it back all the time.
}

Result<ClaimHolder> renew_claim(const Location& place, const std::string& owner, const Clock& clock) {
  check_claim_owner(owner);
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<Claim> claim, read_claim(place));
  if (!claim || claim->owner != owner) {
    return ClaimHolder::kOthers;
  }
  DARKROOM_RETURN_IF_ERROR(place.store->replace_small_now(place.path, print_claim(owner, clock.wall())));
  return ClaimHolder::kOurs;
}

Status release_claim(const Location& place, const std::string& owner) {
  check_claim_owner(owner);
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<Claim> claim, read_claim(place));
  return claim && claim->owner == owner ? place.store->remove(place.path) : Status::ok();
}

}  // namespace darkroom
