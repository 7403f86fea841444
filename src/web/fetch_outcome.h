#pragma once

#include <chrono>
#include <optional>

#include "darkroom/web/http_exchange.h"
#include "darkroom/web/resolver.h"
#include "darkroom/web/retry_rules.h"

namespace darkroom {

/// Statuses whose body is what was asked for.
inline bool has_wanted_body(int status) { return status == 200 || status == 203; }

/// What the end of an exchange for a listed URL means. `stopped`: why our own sink ended it. REQUIRES: the end says something of the web:
/// neither kSinkFailed, kCancelled, kNoDescriptors nor kInternal of a loop that has ended.
AttemptOutcome outcome_of(const HttpResult& result, const std::optional<RowError>& stopped, std::chrono::system_clock::time_point wall);

/// What a look-up without addresses means. REQUIRES: kind is kNoName, kServerFailed or kTimeout.
AttemptOutcome outcome_of(const DnsAnswer& answer);

/// A failure of one row that says nothing of the network: kBlockedHost, kOptedOut, ...
AttemptOutcome refusal(RowError error);
/// A failure that a broken network of this machine explains as well.
AttemptOutcome network_failure(RowErrorCode code, std::string detail);

/// Whether the host may be tried at another one of its addresses.
bool may_try_next_address(HttpEnd end);

/// Whether somebody has answered: bytes came, or a refusal.
bool was_answered(const HttpResult& result);

}  // namespace darkroom
