#pragma once

#include <chrono>
#include <memory>
#include <stop_token>

#include "darkroom/core/clock.h"
#include "darkroom/files/store.h"
#include "darkroom/stores/hub.h"

namespace darkroom {

/// How long the place of a file's bytes is used before the hub is asked again; its signed URLs hold longer.
inline constexpr std::chrono::minutes kHubPlaceAge{10};

/// Files of the hub's repositories, for reading; writing is kFailedPrecondition. A path is an hf:// address without its scheme and without
/// a query: datasets/ORG/NAME@REVISION/PATH. Name a commit as the revision: a branch may move between two calls (HubClient::commit_of).
///
/// An open file is the one version whose hash the hub named first: another one later on is kFailedPrecondition, "begin again". Where its
/// bytes lie (often on another host, under a URL that expires) is asked anew when that host refuses, and after kHubPlaceAge.
/// Calls end with kCancelled when `stop` is asked for. `hub` and `clock` outlive the store.
std::unique_ptr<Store> make_hub_store(HubClient& hub, Clock& clock, std::stop_token stop = {});

}  // namespace darkroom
