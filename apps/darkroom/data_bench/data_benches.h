#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "bench/bench.h"

namespace darkroom {

/// The benchmarks of what runs before the networks: transform, resize, tokenize, fetch; no torch. Figures as those of the networks
/// (Bench::run) less what a network has, and `clock` ("cpu": CPU time of this process; "wall") and `peers`: for each peer of
/// benchmarks/peers.py that is installed its `version`, `per_second`, `ratio` (min, median, max over the rounds of the peer's time to
/// ours: above 1 ours is faster); `missing` says why another is not. Ours and the peers run in turn, round by round, on the same
/// inputs; a peer whose result differs from ours is an error (kInternal), because then the times compare different work.
/// Refuses options that only a network has (kInvalidArgument). Python: find_python(), else python3.
std::span<const Bench> data_benches();

/// The captions of `tokenize`. A third of their words are made up, so that together they hold more different words than the
/// tokenizer's store of words already split does (4,096).
std::vector<std::string> draw_captions(uint64_t seed);

/// What a data benchmark measures.
struct DataTask {
  std::string name;                     ///< Of the benchmark.
  std::string unit;                     ///< What is counted: images, captions, requests.
  double units = 0;                     ///< In one run.
  bool is_on_the_wall_clock = false;    ///< Else CPU time.
  std::function<void()> run;            ///< The timed work; keeps its result.
  std::function<std::string()> digest;  ///< SHA-256 (hex) of the last result, not timed.
};

/// The program of a benchmark's peers, which read their inputs from `folder`. Errors: kNotFound (no peers.py beside this program).
Result<std::vector<std::string>> peers_command(const std::string& name, const std::string& folder, const BenchOptions& options);

/// Runs a task and its peers in turn. Without a command, or when it does not start, ours is measured alone and `missing` says why.
/// After a stop request the figures are of the rounds that are done.
/// Errors: kInternal (a peer's result differs), kUnavailable (the peers' program broke off), kCancelled (stopped before the first round
/// was measured).
Result<nlohmann::json> measure_beside_peers(const DataTask& task, const Result<std::vector<std::string>>& command,
                                            const BenchOptions& options);

}  // namespace darkroom
