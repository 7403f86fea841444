// Rows that wait for the robots.txt of their origin, and the rows of our own that fetch it.
#include <utility>

#include "darkroom/core/check.h"
#include "fetch_engine.h"

namespace darkroom {
namespace {

constexpr std::chrono::seconds kRobotsTimeout{10};

}  // namespace

// Gives an attempt to the scheduler once its host, and the caller, allow that; else the row waits, or ends.
void Fetcher::Engine::add_allowed(std::unique_ptr<Attempt> attempt, Instant now) {
  const uint64_t number = attempt->row;
  const Row& row = rows_.at(number);
  if (options_.denies && !row.robots_of && options_.denies(row.hop.url())) {
    finish_row(number, RowError{RowErrorCode::kDenied});
    return;
  }
  if (!robots_ || row.robots_of) {
    add_attempt(std::move(attempt), now);
    return;
  }
  const RobotsFiles::Verdict verdict = robots_->ask(row.hop, number, now);
  switch (verdict.kind) {
    case RobotsFiles::Verdict::Kind::kAllowed:
      add_attempt(std::move(attempt), now);
      return;
    case RobotsFiles::Verdict::Kind::kRefused:
      finish_row(number, *verdict.error);
      return;
    case RobotsFiles::Verdict::Kind::kAsk: {
      const UrlHop hop = row.hop;
      held_.emplace(number, std::move(attempt));
      ask_robots(hop, now);
      return;
    }
    case RobotsFiles::Verdict::Kind::kWait:
      held_.emplace(number, std::move(attempt));
      return;
  }
}

// Before all rows: the oldest may come to wait for it behind one that waits for memory.
void Fetcher::Engine::ask_robots(const UrlHop& of, Instant now) {
  auto hop = UrlHop::parse(RobotsFiles::robots_url(of), policy_);
  DARKROOM_CHECK(hop.is_ok(), "the robots.txt of an origin that was read has no URL:", of.url());
  const uint64_t number = ++num_rows_;
  Row row{.hop = *std::move(hop),
          .reply = {0, RowError{RowErrorCode::kBadUrl}},
          .robots_of = RobotsFiles::origin_of(of),
          .order = number,
          .began = now};
  rows_.emplace(number, std::move(row));
  auto attempt = std::make_unique<Attempt>();
  attempt->row = number;
  attempt->order = 0;
  attempt->timeout = kRobotsTimeout;
  attempt->is_internal = true;
  add_attempt(std::move(attempt), now);
}

void Fetcher::Engine::take_robots(const std::string& origin, const RowResult<std::string>& body) {
  const Instant now = std::chrono::steady_clock::now();
  for (const uint64_t number : robots_->tell(origin, read_robots_reply(body, body_rules_->agent), now)) {
    std::unique_ptr<Attempt> attempt = std::move(held_.extract(number).mapped());
    add_allowed(std::move(attempt), now);
  }
}

}  // namespace darkroom
