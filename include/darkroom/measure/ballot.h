#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/measure/intervals.h"
#include "darkroom/measure/verdict.h"

namespace darkroom {

// The blind vote (docs/formats/comparison.md): a person sees A's and B's picture of a prompt side by side and does not know which is which.

/// The most pairs that a vote asks for.
inline constexpr size_t kMostBallots = 100;

/// A pair that is voted on.
struct Ballot {
  size_t prompt = 0;       ///< Its number; the pictures are those of the first seed.
  bool a_is_left = false;  ///< Drawn for each prompt.
};

/// The pairs of a vote in the order in which they are shown: all prompts, or kMostBallots of them, shuffled. Draws with (seed, kSelect, 0,
/// "compare/ballots") and (seed, kSelect, 0, "compare/sides"). Thread safety of all here: pure.
std::vector<Ballot> draw_ballots(size_t num_prompts, uint64_t seed);

enum class Choice { kLeft, kRight, kTie };

/// The votes of one person: choices[i] of ballot i, empty where it was passed over.
using Votes = std::vector<std::optional<Choice>>;

/// Reads what the vote page exports, {"format": "darkroom votes", "version": 1, "comparison": ID, "votes": [{"ballot": 0, "choice":
/// "left"}, ...]}. `path` is for messages. Errors: kCorruptData (no such JSON, another version, a ballot that is none or comes twice, an
/// unknown choice), kFailedPrecondition (votes of another comparison).
Result<Votes> read_votes(std::string_view text, const std::string& path, const std::string& comparison_id, size_t num_ballots);

struct VoteOutcome {
  int64_t num_voters = 0;
  int64_t num_votes = 0;  ///< Of all voters, ties among them.
  // Pairs by what most of their voters preferred; a pair counts once, however many voted on it.
  int64_t for_a = 0;
  int64_t for_b = 0;
  int64_t undecided = 0;                      ///< Ties, and as many voices for A as for B.
  std::optional<double> share_for_a = {};     ///< Of the decided pairs.
  Interval interval = {.low = 0, .high = 1};  ///< Of that share (binomial_interval).
  double p = 1;                               ///< sign_test_p of the decided pairs.
  Preference preference = Preference::kNone;  ///< When p is at most the error rate.
};

/// Fills in what follows from the pairs for A and for B: share, interval, p and preference.
void judge_votes(VoteOutcome& outcome, double error_rate);

/// REQUIRES: each of `votes` has as many entries as `ballots`.
VoteOutcome count_votes(const std::vector<Ballot>& ballots, const std::vector<Votes>& votes, double error_rate);

}  // namespace darkroom
