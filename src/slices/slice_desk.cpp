#include "slice_desk.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"

namespace darkroom {
namespace {

constexpr int kMostFailures = 3;         // An encoder that answers with a failure may be the only one that has it.
constexpr int kMostLosses = 8;           // A slice that ends every encoder which makes it.
constexpr int64_t kLeastSliceRows = 16;  // Some MB of states.

double seconds_of(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

}  // namespace

double FleetReport::rows_per_second() const {
  const double busy_seconds = encoder_seconds - encoder_idle_seconds;
  return busy_seconds > 0 ? static_cast<double>(encoder_rows) / busy_seconds : 0;
}

nlohmann::json FleetReport::to_json() const {
  return {{"encoders", encoders},
          {"rows", rows},
          {"bytes", bytes},
          {"encoders_lost", lost},
          {"slices_repeated", repeated},
          {"encoder_seconds", encoder_seconds},
          {"encoder_idle_seconds", encoder_idle_seconds},
          {"encoder_rows", encoder_rows},
          {"rows_per_second_of_an_encoder", rows_per_second()}};
}

SliceDesk::SliceDesk(const SliceFleetOptions& options)
    : encoders_(options.encoders), names_(options.names), patience_(options.patience), stop_(options.stop), on_stop_(options.stop, [this] {
        const std::lock_guard lock(mutex_);
        changed_.notify_all();
      }) {}

Status SliceDesk::check_patience_locked(std::optional<Clock::time_point>& deadline) const {
  if (is_ended_) {
    return Status::cancelled(fmt::format("{}s are waited for no longer", names_.peer));
  }
  if (num_joined_ > 0) {
    return {};
  }
  if (stop_.stop_requested()) {
    return Status::cancelled(fmt::format("stopped on request while no {} was there:", names_.peer), encoders_);
  }
  deadline = alone_since_ + patience_;
  if (Clock::now() < *deadline) {
    return {};
  }
  const Status& why = refusal_.is_ok() ? last_failure_ : refusal_;
  return Status::unavailable(
      fmt::format("no {} was there for {:.0f} s; start some at the addresses of {}, or name others (the last failure: {}):", names_.peer,
                  seconds_of(patience_), names_.addresses_flag, why.is_ok() ? "none could be reached" : why.message()),
      encoders_);
}

void SliceDesk::wait_locked(std::unique_lock<std::mutex>& lock, std::optional<Clock::time_point> deadline) {
  if (deadline) {
    changed_.wait_until(lock, *deadline);
  } else {
    changed_.wait(lock);
  }
}

Status SliceDesk::await_first() {
  std::unique_lock lock(mutex_);
  while (num_joined_ == 0) {
    if (!refusal_.is_ok()) {
      return refusal_;
    }
    std::optional<Clock::time_point> deadline;
    DARKROOM_RETURN_IF_ERROR(check_patience_locked(deadline));
    wait_locked(lock, deadline);
  }
  return {};
}

uint64_t SliceDesk::ask(std::vector<int64_t> rows) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = next_number_++;
  wanted_[number].rows = std::move(rows);
  pending_.push_back(number);
  wake_links_locked();
  return number;
}

Result<std::shared_ptr<const SliceContent>> SliceDesk::take(uint64_t slice) {
  std::unique_lock lock(mutex_);
  const auto found = wanted_.find(slice);
  DARKROOM_CHECK(found != wanted_.end(), "a slice that was asked for and not taken yet:", slice);
  while (found->second.content == nullptr) {
    DARKROOM_RETURN_IF_ERROR(found->second.failure);
    std::optional<Clock::time_point> deadline;
    DARKROOM_RETURN_IF_ERROR(check_patience_locked(deadline));
    wait_locked(lock, deadline);
  }
  auto content = std::move(found->second.content);
  wanted_.erase(found);
  return content;
}

void SliceDesk::stop_waiting() {
  const std::lock_guard lock(mutex_);
  is_ended_ = true;
  changed_.notify_all();
}

int64_t SliceDesk::slice_rows() const {
  const std::lock_guard lock(mutex_);
  if (!first_) {
    return kLeastSliceRows;
  }
  return std::min({kMostSliceRows, first_->max_rows, std::max(kLeastSliceRows, first_->rows_together)});
}

FleetReport SliceDesk::report() const {
  const std::lock_guard lock(mutex_);
  FleetReport report = report_;
  for (const auto& [connection, counts] : current_) {
    add_counts(counts, report);
  }
  return report;
}

void SliceDesk::add_wake(int event) {
  const std::lock_guard lock(mutex_);
  wakes_.insert(event);
}

void SliceDesk::remove_wake(int event) {
  const std::lock_guard lock(mutex_);
  wakes_.erase(event);
}

size_t SliceDesk::num_wakes() const {
  const std::lock_guard lock(mutex_);
  return wakes_.size();
}

void SliceDesk::wake_links_locked() const {
  for (const int event : wakes_) {
    eventfd_write(event, 1);
  }
}

Status SliceDesk::join(const std::string& name, const EncoderWelcome& welcome) {
  const std::lock_guard lock(mutex_);
  if (first_) {
    for (const auto& [what, value] : first_->place.items()) {
      const nlohmann::json theirs = welcome.place.is_object() ? welcome.place.value(what, nlohmann::json()) : nlohmann::json();
      if (theirs != value) {
        return Status::failed_precondition(
            fmt::format("{} gives other bits than {}; start all of them alike (what, there, here):", names_.a_peer(), first_name_), what,
            value.dump(), theirs.dump());
      }
    }
    if (welcome.max_rows < std::min({kMostSliceRows, first_->max_rows, std::max(kLeastSliceRows, first_->rows_together)})) {
      return Status::failed_precondition(fmt::format("{} takes smaller slices than the first one did (rows, first):", names_.a_peer()),
                                         welcome.max_rows, first_->max_rows);
    }
    if (welcome.processor != first_->processor && !std::exchange(told_of_processors_, true)) {
      log_warning("{}s run on different processors ({}, {}): which of them makes a slice may change its last bits", names_.peer,
                  first_->processor, welcome.processor);
    }
  } else {
    first_ = welcome;
    first_name_ = name;
  }
  report_.encoders = std::max(report_.encoders, ++num_joined_);
  refusal_ = {};
  changed_.notify_all();
  return {};
}

void SliceDesk::add_counts(const EncoderCounts& counts, FleetReport& report) {
  report.encoder_seconds += counts.seconds;
  report.encoder_idle_seconds += std::max(0.0, counts.seconds - counts.busy_seconds);
  report.encoder_rows += counts.rows;
}

void SliceDesk::note_counts(const void* connection, const EncoderCounts& counts) {
  const std::lock_guard lock(mutex_);
  current_[connection] = counts;
}

void SliceDesk::leave(const void* connection, const std::vector<AskedSlice>& owed, const Status& why) {
  const std::lock_guard lock(mutex_);
  add_counts(current_[connection], report_);
  current_.erase(connection);
  --num_joined_;
  if (!why.is_ok()) {
    report_.lost += 1;
    last_failure_ = why;
  }
  for (auto slice = owed.rbegin(); slice != owed.rend(); ++slice) {
    Wanted& wanted = wanted_[slice->number];
    if (++wanted.losses >= kMostLosses) {
      wanted.failure = Status::unavailable(
          fmt::format("a slice was lost with every {0} that was asked for it ({0}s, first row, the last one):", names_.peer), wanted.losses,
          wanted.rows.front(), why.message());
    } else {
      put_back_locked(*slice);
    }
  }
  if (num_joined_ == 0) {
    alone_since_ = Clock::now();
    if (!why.is_ok()) {
      log_warning("no {} is left; waiting for one for {:.0f} s", names_.peer, seconds_of(patience_));
    }
  }
  wake_links_locked();  // What failed with all that are left is theirs again.
  changed_.notify_all();
}

void SliceDesk::put_back_locked(const AskedSlice& slice) {
  report_.repeated += 1;
  pending_.push_front(slice.number);
  wake_links_locked();
}

void SliceDesk::note_refusal(const Status& refusal) {
  const std::lock_guard lock(mutex_);
  refusal_ = refusal;
  changed_.notify_all();
}

void SliceDesk::note_failure(const Status& failure) {
  const std::lock_guard lock(mutex_);
  last_failure_ = failure;
}

std::optional<AskedSlice> SliceDesk::next(const void* connection) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(pending_, [&](uint64_t number) {
    const std::set<const void*>& failed_at = wanted_[number].failed_at;
    return !failed_at.contains(connection) || static_cast<int64_t>(failed_at.size()) >= num_joined_;
  });
  if (found == pending_.end()) {
    return std::nullopt;
  }
  std::optional<AskedSlice> asked = AskedSlice{.number = *found, .rows = wanted_[*found].rows};
  pending_.erase(found);
  return asked;
}

void SliceDesk::deliver(uint64_t slice, std::shared_ptr<const SliceContent> content, int64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  Wanted& wanted = wanted_[slice];
  report_.rows += static_cast<int64_t>(wanted.rows.size());
  report_.bytes += num_bytes;
  wanted.content = std::move(content);
  changed_.notify_all();
}

void SliceDesk::fail(const void* connection, const AskedSlice& slice, const Status& failure) {
  const std::lock_guard lock(mutex_);
  Wanted& wanted = wanted_[slice.number];
  const bool is_first = wanted.failed_at.insert(connection).second;
  const bool is_being_ended = failure.code() == StatusCode::kCancelled && is_first;  // Who says so twice is not.
  wanted.failures += is_being_ended ? 0 : 1;
  if (wanted.failures >= kMostFailures) {
    wanted.failure = failure;
    changed_.notify_all();
  } else {
    put_back_locked(slice);
  }
}

}  // namespace darkroom
