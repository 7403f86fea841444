#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <stop_token>
#include <string>

#include "darkroom/core/result.h"
#include "darkroom/tensor/communicator.h"

namespace darkroom {

// How ranks find each other: the store at rank 0's address, and what they say in it before they are connected.

using StorePointer = c10::intrusive_ptr<c10d::Store>;

/// What an exception of c10d says; a backtrace follows its first line.
std::string first_line(const std::exception& error);

/// Connects to the store where the ranks meet; rank 0 opens it first where `may_host`. Errors: kUnavailable (no port, or nobody there
/// within `patience`), kCancelled.
Result<StorePointer> open_store(const RankPlace& place, bool may_host, std::chrono::seconds patience, const std::stop_token& stop);

/// What is said in a store in this place's start alone.
StorePointer store_of_start(const RankPlace& place, const StorePointer& base);

/// As open_store, for the ranks' meeting with `agreement`. A rank that began again while rank 0, busy with a preview or a save, still keeps
/// the store of the start before waits until that one is gone, for `options.arrival` at most. Errors: as open_store.
Result<StorePointer> open_current_store(const GlooOptions& options, const std::string& agreement);

/// Waits for all ranks and compares what they want: first the "job" of `agreement`, a JSON object, so that a rank of another one
/// ends without a word to these, then all of it. Rank 0 judges, so that all ranks end alike. Errors: as join_gloo; exceptions of c10d when
/// the store is gone.
Status meet_ranks(c10d::Store& base, c10d::Store& store, const GlooOptions& options, const std::string& agreement);

}  // namespace darkroom
