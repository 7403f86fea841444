#include "fetch_loop.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"

namespace darkroom {
namespace {

constexpr int64_t kReservedBytes = CURL_MAX_WRITE_SIZE;  // Of an active transfer: what libcurl delivers at once.

}  // namespace

Fetcher::Loop::Loop(FetchOptions options) {
  shared_.policy = AddressPolicy(options.allow_private);
  shared_.options = std::move(options);
  curl_slist* headers = curl_slist_append(nullptr, "Accept: image/jpeg,image/png,image/webp,*/*;q=0.5");
  headers = curl_slist_append(headers, "Accept-Encoding: identity");
  shared_.request_headers.reset(headers);
}

Fetcher::Loop::~Loop() {
  cancel();
  if (thread_.joinable()) {
    thread_.join();
  }
  drop_all();
}

Status Fetcher::Loop::start() {
  DARKROOM_ASSIGN_OR_RETURN(multi_, FetchMulti::create(shared_.options.num_concurrent));
  thread_ = std::jthread([this] { run(); });
  return Status::ok();
}

bool Fetcher::Loop::submit(FetchRequest request) {
  bool was_empty = false;
  {
    std::unique_lock lock(mutex_);
    may_submit_.wait(lock, [&] { return is_cancelled_ || is_closed_ || num_inside_ < num_outstanding(); });
    if (is_cancelled_ || is_closed_) {
      return false;
    }
    was_empty = queue_.empty();
    queue_.push_back(std::move(request));
    ++num_inside_;
  }
  if (was_empty) {  // Otherwise the thread knows of the queue and looks at it whenever a place is free.
    multi_->wake();
  }
  return true;
}

std::optional<FetchReply> Fetcher::Loop::next() {
  std::unique_lock lock(mutex_);
  may_take_.wait(lock, [&] { return is_cancelled_ || !replies_.empty() || (is_closed_ && num_inside_ == 0); });
  if (broken_) {
    std::rethrow_exception(broken_);
  }
  if (is_cancelled_ || replies_.empty()) {
    return std::nullopt;
  }
  FetchReply reply = std::move(replies_.front());
  replies_.pop_front();
  --num_inside_;
  if (is_closed_ && num_inside_ == 0) {
    may_take_.notify_all();
  }
  lock.unlock();
  may_submit_.notify_one();
  if (reply.body.is_ok()) {
    const auto num_bytes = static_cast<int64_t>(reply.body->size());
    untaken_bytes_.fetch_sub(num_bytes);
    shared_.held_bytes.fetch_sub(num_bytes);
    if (wants_bytes_.load()) {
      multi_->wake();
    }
  }
  return reply;
}

void Fetcher::Loop::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  may_submit_.notify_all();
  may_take_.notify_all();
}

void Fetcher::Loop::cancel() {
  {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    may_submit_.notify_all();
    may_take_.notify_all();
  }
  if (multi_) {
    multi_->wake();
  }
}

FetchStats Fetcher::Loop::stats() const {
  FetchStats stats;
  stats.num_attempts = shared_.num_attempts;
  stats.num_connections = shared_.num_connections;
  stats.num_refused = shared_.num_refused;
  stats.num_retries = shared_.num_retries;
  stats.num_bytes = shared_.num_bytes;
  stats.bytes_in_flight = shared_.held_bytes;
  stats.peak_bytes_in_flight = shared_.peak_held_bytes;
  stats.num_active = num_active_;
  return stats;
}

void Fetcher::Loop::run() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);  // TLS writes to a closed connection raise it.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  try {
    while (!is_cancelled_) {
      step();
    }
  } catch (const std::exception& failure) {
    log_error("fetching stopped: {}", failure.what());
    {
      const std::lock_guard lock(mutex_);
      broken_ = std::current_exception();
    }
    cancel();
  }
}

void Fetcher::Loop::step() {
  start_transfers();
  publish();  // Requests that could not be sent.
  wants_bytes_ = is_held_up();
  // A reply taken before wants_bytes_ was set woke nobody: look again before waiting.
  const bool has_work = wants_bytes_ && (can_resume() || has_place());
  std::optional<TimePoint> until;
  if (has_work) {
    until = FetchClock::now();
  } else if (!timers_.empty()) {
    until = timers_.begin()->first;
  }
  multi_->drive(until);
  while (const auto finished = multi_->take_finished()) {
    finish_attempt(FetchTransfer::of(finished->first), finished->second);
  }
  fire_timers();
  resume_paused();
  publish();
}

void Fetcher::Loop::drop_all() {
  for (const auto& transfer : transfers_) {
    if (transfer->place == FetchTransfer::Place::kActive) {
      multi_->remove(transfer->handle());
    }
  }
  transfers_.clear();
}

// A place on the wire, and room for its first bytes.
bool Fetcher::Loop::has_place() const {
  if (num_active_ >= shared_.options.num_concurrent) {
    return false;
  }
  const int64_t held_bytes = shared_.held_bytes;
  return held_bytes == 0 || held_bytes + (num_active_ + 1) * kReservedBytes <= shared_.options.max_bytes_in_flight;
}

void Fetcher::Loop::start_transfers() {
  while (!due_.empty() && has_place()) {
    FetchTransfer* transfer = due_.front();
    due_.pop_front();
    begin_attempt(transfer);
  }
  while (has_place()) {
    const int64_t by_bytes =
        std::max<int64_t>(1, (shared_.options.max_bytes_in_flight - shared_.held_bytes) / kReservedBytes - num_active_);
    taken_.clear();
    take_requests(static_cast<int>(std::min<int64_t>(by_bytes, shared_.options.num_concurrent - num_active_)));
    if (taken_.empty()) {
      return;
    }
    const TimePoint now = FetchClock::now();
    for (FetchRequest& request : taken_) {
      begin(std::move(request), now);
    }
  }
}

void Fetcher::Loop::take_requests(int at_most) {
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < at_most && !queue_.empty(); ++i) {
    taken_.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
}

FetchTransfer* Fetcher::Loop::idle_transfer() {
  if (idle_.empty()) {
    transfers_.push_back(std::make_unique<FetchTransfer>(shared_));
    return transfers_.back().get();
  }
  FetchTransfer* transfer = idle_.back();
  idle_.pop_back();
  return transfer;
}

void Fetcher::Loop::begin(FetchRequest request, TimePoint now) {
  FetchTransfer* transfer = idle_transfer();
  if (auto error = transfer->assign(std::move(request), now)) {
    finish(transfer, std::move(error));
    return;
  }
  set_timer(transfer, transfer->deadline(now));
  begin_attempt(transfer);
}

void Fetcher::Loop::begin_attempt(FetchTransfer* transfer) {
  transfer->begin_attempt();
  multi_->add(transfer->handle());
  transfer->place = FetchTransfer::Place::kActive;
  ++num_active_;
}

void Fetcher::Loop::finish_attempt(FetchTransfer* transfer, CURLcode code) {
  --num_active_;
  FetchAttempt attempt = transfer->end_attempt(code);
  if (attempt.error && attempt.may_retry && plan_retry(transfer, attempt)) {
    return;
  }
  finish(transfer, std::move(attempt.error));
}

bool Fetcher::Loop::plan_retry(FetchTransfer* transfer, const FetchAttempt& attempt) {
  if (transfer->num_retries() >= shared_.options.num_retries) {
    return false;
  }
  const TimePoint now = FetchClock::now();
  const TimePoint at = now + attempt.retry_after + backoff(transfer->num_retries());
  if (at >= transfer->deadline(now)) {
    return false;
  }
  transfer->last_error = attempt.error;
  transfer->place = FetchTransfer::Place::kWaiting;
  set_timer(transfer, at);
  shared_.num_retries.fetch_add(1, std::memory_order_relaxed);
  return true;
}

std::chrono::milliseconds Fetcher::Loop::backoff(int num_retries) {
  const auto longest = shared_.options.first_backoff.count() << std::min(num_retries, 16);
  return std::chrono::milliseconds(std::uniform_int_distribution<int64_t>((longest + 1) / 2, longest)(jitter_));
}

void Fetcher::Loop::finish(FetchTransfer* transfer, std::optional<RowError> error) {
  timers_.erase({transfer->timer_at, transfer});
  untaken_bytes_.fetch_add(error ? 0 : transfer->body_bytes());
  finished_.push_back(transfer->make_reply(std::move(error)));
  transfer->place = FetchTransfer::Place::kIdle;
  idle_.push_back(transfer);
}

void Fetcher::Loop::set_timer(FetchTransfer* transfer, TimePoint at) {
  timers_.erase({transfer->timer_at, transfer});
  transfer->timer_at = at;
  timers_.insert({at, transfer});
}

void Fetcher::Loop::fire_timers() {
  if (timers_.empty()) {
    return;
  }
  const TimePoint now = FetchClock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    fire(timers_.begin()->second, now);
  }
}

void Fetcher::Loop::fire(FetchTransfer* transfer, TimePoint now) {
  const TimePoint deadline = transfer->deadline(now);
  switch (transfer->place) {
    case FetchTransfer::Place::kWaiting:
      transfer->place = FetchTransfer::Place::kDue;
      due_.push_back(transfer);
      set_timer(transfer, deadline);
      return;
    case FetchTransfer::Place::kDue:
      std::erase(due_, transfer);
      finish(transfer, transfer->last_error);
      return;
    case FetchTransfer::Place::kActive:
      if (deadline > now) {  // The byte limit held it up.
        set_timer(transfer, deadline);
        return;
      }
      multi_->remove(transfer->handle());
      --num_active_;
      finish(transfer, transfer->timed_out());
      return;
    case FetchTransfer::Place::kIdle:
      DARKROOM_CHECK(false, "an idle transfer has a timer");
  }
}

// Whether only taken replies let the thread go on.
bool Fetcher::Loop::is_held_up() const { return !shared_.paused.empty() || (num_active_ < shared_.options.num_concurrent && !has_place()); }

bool Fetcher::Loop::has_room() const { return shared_.held_bytes + kReservedBytes <= shared_.options.max_bytes_in_flight; }

bool Fetcher::Loop::can_resume() const {
  if (shared_.paused.empty()) {
    return false;
  }
  // With no reply left to take, nothing but the transfers themselves can free bytes: one may go over the limit.
  return has_room() || (untaken_bytes_ == 0 && shared_.over_limit == nullptr);
}

void Fetcher::Loop::resume_paused() {
  // Each paused transfer at most once a step.
  for (size_t left = shared_.paused.size(); left > 0 && can_resume(); --left) {
    FetchTransfer* transfer = shared_.paused.front();
    if (!has_room()) {
      shared_.over_limit = transfer;
    }
    transfer->resume(FetchClock::now());
  }
}

void Fetcher::Loop::publish() {
  if (finished_.empty()) {
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    for (FetchReply& reply : finished_) {
      replies_.push_back(std::move(reply));
    }
  }
  if (finished_.size() == 1) {
    may_take_.notify_one();
  } else {
    may_take_.notify_all();
  }
  finished_.clear();
}

}  // namespace darkroom
