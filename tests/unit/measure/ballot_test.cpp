#include "darkroom/measure/ballot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace darkroom {
namespace {

using ::testing::HasSubstr;

constexpr const char* kVotes = R"({"format": "darkroom votes", "version": 1, "comparison": "id", "votes": [)";

Result<Votes> read(const std::string& votes, const std::string& id = "id") {
  return read_votes(kVotes + votes + "]}", "votes.json", id, 3);
}

void expect_refused(const Result<Votes>& votes, StatusCode code, const std::string& words) {
  ASSERT_FALSE(votes.is_ok());
  EXPECT_EQ(votes.status().code(), code);
  EXPECT_THAT(votes.status().message(), HasSubstr("votes.json"));
  EXPECT_THAT(votes.status().message(), HasSubstr(words));
}

TEST(Ballots, hold_each_prompt_once_and_put_a_left_in_about_half) {
  const auto ballots = draw_ballots(90, 1);
  std::set<size_t> prompts;
  size_t num_left = 0;
  for (const Ballot& ballot : ballots) {
    prompts.insert(ballot.prompt);
    num_left += ballot.a_is_left ? 1 : 0;
  }
  EXPECT_EQ(prompts.size(), 90U);
  EXPECT_GT(num_left, 30U);
  EXPECT_LT(num_left, 60U);
}

TEST(Ballots, are_the_same_for_a_seed_and_at_most_a_hundred) {
  const auto ballots = draw_ballots(101, 4);
  ASSERT_EQ(ballots.size(), kMostBallots);
  const auto again = draw_ballots(101, 4), others = draw_ballots(101, 5);
  bool differ = false;
  for (size_t i = 0; i < ballots.size(); ++i) {
    EXPECT_EQ(ballots[i].prompt, again[i].prompt);
    EXPECT_EQ(ballots[i].a_is_left, again[i].a_is_left);
    differ |= ballots[i].prompt != others[i].prompt;
  }
  EXPECT_TRUE(differ);
  EXPECT_TRUE(draw_ballots(0, 4).empty());
}

TEST(Votes, are_read_as_the_page_writes_them) {
  const auto votes = read(R"({"ballot": 2, "choice": "tie"}, {"ballot": 0, "choice": "left"})");
  ASSERT_TRUE(votes.is_ok()) << votes.status().to_string();
  EXPECT_EQ(*votes, (Votes{Choice::kLeft, std::nullopt, Choice::kTie}));
}

TEST(Votes, are_refused_where_they_are_none) {
  expect_refused(read_votes("{", "votes.json", "id", 3), StatusCode::kCorruptData, "version 1");
  expect_refused(read_votes(R"({"format": "darkroom votes", "version": 2, "votes": []})", "votes.json", "id", 3), StatusCode::kCorruptData,
                 "version 1");
  expect_refused(read(R"({"ballot": 3, "choice": "left"})"), StatusCode::kCorruptData, "3");
  expect_refused(read(R"({"ballot": -1, "choice": "left"})"), StatusCode::kCorruptData, "-1");
  expect_refused(read(R"("left")"), StatusCode::kCorruptData, "null");
  expect_refused(read(R"({"ballot": 1, "choice": "both"})"), StatusCode::kCorruptData, "both");
  expect_refused(read(R"({"ballot": 1, "choice": "tie"}, {"ballot": 1, "choice": "tie"})"), StatusCode::kCorruptData, "twice");
}

TEST(Votes, of_another_comparison_are_refused) { expect_refused(read("", "other"), StatusCode::kFailedPrecondition, "other"); }

TEST(VoteOutcome, knows_the_sides_that_were_drawn) {
  const std::vector<Ballot> ballots = {{0, true}, {1, false}, {2, true}, {3, false}, {4, true}};
  const Votes voter = {Choice::kLeft, Choice::kRight, Choice::kRight, Choice::kTie, std::nullopt};
  const VoteOutcome outcome = count_votes(ballots, {voter}, 0.05);
  EXPECT_EQ(outcome.num_voters, 1);
  EXPECT_EQ(outcome.num_votes, 4);
  EXPECT_EQ(outcome.for_a, 2);
  EXPECT_EQ(outcome.for_b, 1);
  EXPECT_EQ(outcome.undecided, 1);
  EXPECT_DOUBLE_EQ(*outcome.share_for_a, 2.0 / 3);
  EXPECT_EQ(outcome.preference, Preference::kNone);
}

TEST(VoteOutcome, counts_a_pair_once_however_many_voted_on_it) {
  const std::vector<Ballot> ballots = {{0, true}, {1, true}};
  const Votes one = {Choice::kLeft, Choice::kLeft}, two = {Choice::kLeft, Choice::kRight};
  const VoteOutcome outcome = count_votes(ballots, {one, two, one}, 0.05);
  EXPECT_EQ(outcome.for_a, 2);
  EXPECT_EQ(outcome.num_votes, 6);
  EXPECT_EQ(count_votes(ballots, {one, two}, 0.05).undecided, 1);
}

TEST(VoteOutcome, prefers_where_the_sign_test_says_so) {
  std::vector<Ballot> ballots;
  Votes for_b;
  for (size_t i = 0; i < 6; ++i) {
    ballots.push_back({i, i % 2 == 0});
    for_b.push_back(i % 2 == 0 ? Choice::kRight : Choice::kLeft);
  }
  const VoteOutcome outcome = count_votes(ballots, {for_b}, 0.05);
  EXPECT_EQ(outcome.preference, Preference::kB);  // 2 / 64.
  EXPECT_EQ(*outcome.share_for_a, 0.0);
  EXPECT_LT(outcome.interval.high, 0.5);
  EXPECT_EQ(count_votes(ballots, {for_b}, 0.01).preference, Preference::kNone);
  EXPECT_FALSE(count_votes(ballots, {Votes(6)}, 0.05).share_for_a.has_value());
}

}  // namespace
}  // namespace darkroom
