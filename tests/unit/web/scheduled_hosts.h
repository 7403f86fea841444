#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "darkroom/web/host_scheduler.h"

namespace darkroom {

using Attempts = std::vector<std::unique_ptr<Attempt>>;

/// A scheduler, the time that a test gives it, and what a test asks of it.
class ScheduledHosts : public testing::Test {
 protected:
  explicit ScheduledHosts(HostRules rules = {}) : scheduler_(rules, 1) {}

  static AttemptOutcome good() { return {AttemptOutcome::Kind::kAnswered, 200}; }

  static AttemptOutcome status(int code, std::optional<std::chrono::seconds> retry_after = std::nullopt) {
    return {AttemptOutcome::Kind::kAnswered, code, RowError{RowErrorCode::kHttpStatus, code}, retry_after};
  }

  static AttemptOutcome broken(RowErrorCode code = RowErrorCode::kConnect, bool is_network = false) {
    return {AttemptOutcome::Kind::kFailed, 0, RowError{code}, std::nullopt, is_network};
  }

  static AttemptOutcome redirect() { return {AttemptOutcome::Kind::kRedirect, 301}; }

  static std::unique_ptr<Attempt> make_row(uint64_t row, const std::string& host = "a", uint64_t order = 0) {
    auto attempt = std::make_unique<Attempt>();
    attempt->row = row;
    attempt->order = order != 0 ? order : row;
    attempt->host = host;
    return attempt;
  }

  void add(uint64_t row, const std::string& host = "a") { scheduler_.add(make_row(row, host), now_); }
  void add_rows(uint64_t first, uint64_t last, const std::string& host = "a") {
    for (uint64_t row = first; row <= last; ++row) {
      add(row, host);
    }
  }
  Attempts take_all() {
    Attempts taken;
    while (auto attempt = scheduler_.take(now_)) {
      taken.push_back(std::move(attempt));
    }
    return taken;
  }
  static std::vector<uint64_t> rows_of(const Attempts& attempts) {
    std::vector<uint64_t> rows;
    for (const auto& attempt : attempts) {
      rows.push_back(attempt->row);
    }
    return rows;
  }
  std::vector<uint64_t> taken_rows() { return rows_of(take_all()); }
  AttemptVerdict::Kind report(std::unique_ptr<Attempt>& attempt, const AttemptOutcome& outcome) {
    verdict_ = scheduler_.report(attempt, outcome, now_);
    return verdict_.kind;
  }
  AttemptVerdict::Kind judge(std::unique_ptr<Attempt>& attempt, RowErrorCode code = RowErrorCode::kTimeout) {
    EXPECT_EQ(report(attempt, broken(code, true)), AttemptVerdict::Kind::kSuspect);
    verdict_ = scheduler_.judge(attempt, broken(code, true), now_);
    return verdict_.kind;
  }
  /// Takes rows of the host and lets them time out, until its breaker is open; adds them itself.
  void open_breaker(const std::string& host, int failures = 20) {
    for (int i = 0; i < failures; ++i) {
      add(1000 + static_cast<uint64_t>(i), host);
      auto attempt = scheduler_.take(now_);
      ASSERT_TRUE(attempt) << i;
      ASSERT_EQ(judge(attempt), AttemptVerdict::Kind::kFinish);
    }
  }
  std::vector<uint64_t> expired_rows(std::vector<std::string>* errors = nullptr) {
    std::vector<uint64_t> rows;
    while (auto expired = scheduler_.take_expired(now_)) {
      rows.push_back(expired->attempt->row);
      if (errors != nullptr) {
        errors->push_back(expired->error.name());
      }
    }
    return rows;
  }
  double seconds_until_next() const {
    const auto next = scheduler_.next_instant();
    return next ? std::chrono::duration<double>(*next - now_).count() : -1;
  }

  HostScheduler::Instant now_{std::chrono::seconds(1'000'000)};
  HostScheduler scheduler_;
  AttemptVerdict verdict_;
};

}  // namespace darkroom
