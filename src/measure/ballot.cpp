#include "darkroom/measure/ballot.h"

#include <algorithm>

#include "darkroom/core/nested_text.h"
#include "darkroom/core/random.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

constexpr const char* kVotesFormat = "darkroom votes";
constexpr int kVotesVersion = 1;

std::optional<Choice> parse_choice(const Json& name) {
  if (name == "left" || name == "right") {
    return name == "left" ? Choice::kLeft : Choice::kRight;
  }
  return name == "tie" ? std::optional(Choice::kTie) : std::nullopt;
}

Status add_vote(const Json& vote, const std::string& path, Votes& votes) {
  const Json number = vote.is_object() ? vote.value("ballot", Json()) : Json();
  if (!number.is_number_unsigned() || number.get<uint64_t>() >= votes.size()) {
    return Status::corrupt_data("a vote's `ballot` is none of the comparison's (path, ballots, got):", path, votes.size(), number.dump());
  }
  auto& place = votes[number.get<size_t>()];
  if (place) {
    return Status::corrupt_data("a ballot comes twice (path, ballot):", path, number.dump());
  }
  const Json name = vote.value("choice", Json());
  place = parse_choice(name);
  if (!place) {
    return Status::corrupt_data("a vote's `choice` must be left, right or tie (path, ballot, got):", path, number.dump(), name.dump());
  }
  return Status::ok();
}

// Voices for A less voices for B, of those who voted on the pair; nothing where nobody did.
std::optional<int64_t> balance_of(const Ballot& ballot, size_t number, const std::vector<Votes>& votes, int64_t& num_votes) {
  std::optional<int64_t> balance;
  for (const Votes& voter : votes) {
    if (const auto& choice = voter[number]) {
      const int64_t to_left = *choice == Choice::kLeft ? 1 : *choice == Choice::kRight ? -1 : 0;
      balance = balance.value_or(0) + (ballot.a_is_left ? to_left : -to_left);
      ++num_votes;
    }
  }
  return balance;
}

}  // namespace

std::vector<Ballot> draw_ballots(size_t num_prompts, uint64_t seed) {
  std::vector<uint32_t> order(num_prompts);
  shuffled_order(CounterRandom(seed, Purpose::kSelect, 0, "compare/ballots"), order);
  order.resize(std::min(num_prompts, kMostBallots));
  const CounterRandom sides(seed, Purpose::kSelect, 0, "compare/sides");
  std::vector<Ballot> ballots;
  for (const uint32_t prompt : order) {
    ballots.push_back({.prompt = prompt, .a_is_left = sides.below(prompt, 2) == 0});
  }
  return ballots;
}

Result<Votes> read_votes(std::string_view text, const std::string& path, const std::string& comparison_id, size_t num_ballots) {
  const Json file = parse_json<Json>(text);
  if (!file.is_object() || file.value("format", Json()) != kVotesFormat || file.value("version", Json()) != kVotesVersion ||
      !file.value("votes", Json()).is_array()) {
    return Status::corrupt_data("the file holds no votes of version 1, as the page vote.html exports them:", path);
  }
  if (file.value("comparison", Json()) != comparison_id) {
    return Status::failed_precondition("the votes are of another comparison (path, want, got):", path, comparison_id,
                                       file.value("comparison", Json()).dump());
  }
  Votes votes(num_ballots);
  for (const Json& vote : file["votes"]) {
    DARKROOM_RETURN_IF_ERROR(add_vote(vote, path, votes));
  }
  return votes;
}

void judge_votes(VoteOutcome& outcome, double error_rate) {
  const int64_t num_decided = outcome.for_a + outcome.for_b;
  outcome.share_for_a.reset();
  if (num_decided > 0) {
    outcome.share_for_a = static_cast<double>(outcome.for_a) / static_cast<double>(num_decided);
  }
  outcome.interval = binomial_interval(outcome.for_a, num_decided, error_rate);
  outcome.p = sign_test_p(outcome.for_a, num_decided);
  const bool is_shown = outcome.p <= error_rate;
  outcome.preference = !is_shown ? Preference::kNone : outcome.for_a > outcome.for_b ? Preference::kA : Preference::kB;
}

VoteOutcome count_votes(const std::vector<Ballot>& ballots, const std::vector<Votes>& votes, double error_rate) {
  VoteOutcome outcome{.num_voters = static_cast<int64_t>(votes.size())};
  for (size_t i = 0; i < ballots.size(); ++i) {
    if (const auto balance = balance_of(ballots[i], i, votes, outcome.num_votes)) {
      ++(*balance > 0 ? outcome.for_a : *balance < 0 ? outcome.for_b : outcome.undecided);
    }
  }
  judge_votes(outcome, error_rate);
  return outcome;
}

}  // namespace darkroom
