// Rows that wait for the robots.txt of their origin, and the rows of our own that fetch it.
#include <utility>

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
  if (!hop.is_ok()) {  // Its host's name leaves no room for the path, and is longer than any that exists.
    release_held(RobotsFiles::origin_of(of), RowError{RowErrorCode::kDns, 0, "a longer name than any host has"}, now);
    return;
  }
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
  release_held(origin, read_robots_reply(body, body_rules_->agent), std::chrono::steady_clock::now());
}

// Goes on with the rows that waited for this answer.
void Fetcher::Engine::release_held(const std::string& origin, RobotsAnswer answer, Instant now) {
  for (const uint64_t number : robots_->tell(origin, std::move(answer), now)) {
    std::unique_ptr<Attempt> attempt = std::move(held_.extract(number).mapped());
    add_allowed(std::move(attempt), now);
  }
}

}  // namespace darkroom
