#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "darkroom/core/clock.h"
#include "darkroom/files/store.h"

namespace darkroom {

// Who works on what, among processes that share a job: OUT/_claims/000042 = {"expires": unix ms, "owner": "..."}. A claim saves work and
// nothing else: two owners at once, wrong clocks and garbage cost double work, never a wrong byte. What stands in a store is judged, and
// written, by the date at that moment: a store that could not be reached may answer hours after it was asked.

/// How far ahead a claim expires, and is renewed to.
inline constexpr std::chrono::minutes kClaimLifetime{10};

struct Claim {
  std::string owner = {};
  std::chrono::sys_time<std::chrono::milliseconds> expires = {};

  /// Not expired. One that ends more than two lifetimes ahead is no claim either: its owner's clock, or its bytes, are wrong.
  bool is_live(std::chrono::system_clock::time_point now) const;
};

/// Whether its owner may be at work still, for whoever is about to remove what that writes: the claim is live, or ended less than a
/// lifetime ago (its owner could not renew it, or its clock lags behind), and its owner is no dead process of this machine.
bool may_be_at_work(const Claim& claim, std::chrono::system_clock::time_point now);

enum class ClaimHolder { kOurs, kOthers };

/// A name for this process that no other has: printable ASCII.
std::string make_claim_owner();

/// Takes the claim at `place`, or renews our own. An expired or unreadable one is replaced, and one of a dead process of this machine.
/// Errors: those of the store.
/// REQUIRES of all three: `owner` is printable ASCII.
Result<ClaimHolder> take_claim(const Location& place, const std::string& owner, const Clock& clock);

/// Renews ours, also one that has expired. kOthers: it is gone or another's by now, and nothing was written; of an expired one whoever
/// takes it between our look and our write, which waits for no store, loses it. Errors: those of the store.
Result<ClaimHolder> renew_claim(const Location& place, const std::string& owner, const Clock& clock);

/// Gives ours back; another's stays. Fine when it is gone.
Status release_claim(const Location& place, const std::string& owner);

/// What stands at `place`; nothing where there is no claim or none that can be read.
Result<std::optional<Claim>> read_claim(const Location& place);

}  // namespace darkroom
