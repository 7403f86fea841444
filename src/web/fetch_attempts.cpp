// The life of an attempt: from its place on the wire over look-up, addresses and exchange to its verdict. The thread is in
// fetch_engine.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "darkroom/core/check.h"
#include "fetch_engine.h"
#include "fetch_outcome.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Of one of several addresses of a host, so that the next ones get their time, too.
constexpr nanoseconds kConnectTimeOfOne = std::chrono::seconds(4);
constexpr size_t kMostHostsKeptAlone = 64;

milliseconds at_least_one(nanoseconds time) { return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(time)); }

}  // namespace

void Fetcher::Engine::add_row(ReadRequest request, Instant now) {
  const uint64_t number = ++num_rows_;
  const uint64_t order = options_.memory == nullptr ? number : request.order;
  Row row{.reply = {request.id, RowError{RowErrorCode::kBadUrl}}, .order = order, .began = now};
  if (!request.hop.is_ok()) {
    counts_.num_refused += request.hop.error().code == RowErrorCode::kBlockedHost ? 1 : 0;
    rows_.emplace(number, std::move(row));
    finish_row(number, request.hop.error());
    return;
  }
  row.hop = *std::move(request.hop);
  rows_.emplace(number, std::move(row));
  auto attempt = std::make_unique<Attempt>();
  attempt->row = number;
  attempt->order = order;
  attempt->timeout = options_.timeout;
  add_allowed(std::move(attempt), now);
}

void Fetcher::Engine::add_attempt(std::unique_ptr<Attempt> attempt, Instant now) {
  const UrlHop& hop = rows_.at(attempt->row).hop;
  attempt->host = hop.host();
  attempt->port = hop.port();
  attempt->url = hop.url();
  scheduler_.add(std::move(attempt), now);
}

void Fetcher::Engine::begin(std::unique_ptr<Attempt> attempt, Instant now) {
  const uint64_t number = ++num_flights_;
  Row& row = rows_.at(attempt->row);
  if (const std::string reason = std::exchange(row.again_for, {}); !reason.empty() && !row.robots_of) {
    ++row.reply.num_retries;
    count_retry(reason);
  }
  row.reply.http_status = 0;
  enter_memory(row);
  auto owned = std::make_unique<Flight>(row.robots_of ? *robots_rules_ : *body_rules_, row.order, number);
  Flight& flight = *owned;
  flight.attempt = std::move(attempt);
  flight.began = now;
  if (is_shared(row)) {
    flight.body.begin_with(expected_bytes(row));  // Which it was admitted with.
  } else {
    flight.body.expect(expected_bytes(row));
  }
  flights_.emplace(number, std::move(owned));
  places_.start(number, now);
  resolve(flight, now);
}

void Fetcher::Engine::count_retry(const std::string& reason) {
  ++counts_.num_retries;
  metrics_.counter("darkroom_retries_total", "Attempts after the first, by what made them necessary.", {{"reason", reason}}).add();
}

int64_t Fetcher::Engine::expected_bytes(const Row& row) const {
  return std::min(std::max(sizes_.expected(), row.expected_bytes), options_.max_body_bytes);
}

nanoseconds Fetcher::Engine::time_left(const Flight& flight, Instant now) const {
  return flight.attempt->timeout - flight.attempt->used - (now - flight.began);
}

void Fetcher::Engine::resolve(Flight& flight, Instant now) {
  const UrlHop& hop = rows_.at(flight.attempt->row).hop;
  if (hop.address()) {
    on_resolved(flight, {DnsAnswer::Kind::kOk, {*hop.address()}, true}, now);
    return;
  }
  lookups_.emplace(now + time_left(flight, now), flight.number);
  ++num_unanswered_;
  resolver_->resolve(hop.host(), [inbox = inbox_, number = flight.number](const DnsAnswer& answer) { inbox->post({number, answer}); });
}

void Fetcher::Engine::expire_lookups(Instant now) {
  while (!lookups_.empty() && lookups_.begin()->first <= now) {
    Flight& flight = *flights_.at(lookups_.begin()->second);
    lookups_.erase(lookups_.begin());
    end_attempt(flight, network_failure(RowErrorCode::kTimeout, "while its name was looked up"), nullptr, now);
  }
}

void Fetcher::Engine::on_resolved(Flight& flight, const DnsAnswer& answer, Instant now) {
  lookups_.erase({flight.began + (flight.attempt->timeout - flight.attempt->used), flight.number});
  if (answer.kind == DnsAnswer::Kind::kStopped) {
    fail(Status::internal("the resolver stopped"));
    return;
  }
  const bool is_answer = answer.kind == DnsAnswer::Kind::kOk || answer.kind == DnsAnswer::Kind::kNoName;
  if (is_answer && !answer.is_from_cache) {
    watch_.resolved(answer.asked_at, now);
  }
  if (answer.kind != DnsAnswer::Kind::kOk) {
    end_attempt(flight, outcome_of(answer), nullptr, now);
    return;
  }
  auto allowed = allowed_addresses(rows_.at(flight.attempt->row).hop, answer.addresses, policy_);
  if (!allowed.is_ok()) {
    ++counts_.num_refused;
    end_attempt(flight, refusal(allowed.error()), nullptr, now);
    return;
  }
  flight.addresses = *std::move(allowed);
  try_next_address(flight, now);
}

// REQUIRES: one is left.
void Fetcher::Engine::try_next_address(Flight& flight, Instant now) {
  const SocketAddress address = flight.addresses[flight.num_tried++];
  const nanoseconds left = time_left(flight, now);
  const bool is_last = flight.num_tried == flight.addresses.size();
  HttpRequest request{.url = flight.attempt->url, .headers = headers_, .connect_to = address, .policy = &policy_.addresses()};
  request.limits.connect = at_least_one(is_last ? left : std::min(left, kConnectTimeOfOne));
  request.limits.idle = request.limits.total = at_least_one(left);
  const bool is_robots = rows_.at(flight.attempt->row).robots_of.has_value();  // Of which the beginning is enough.
  request.limits.max_body_bytes = is_robots ? std::numeric_limits<int64_t>::max() : options_.max_body_bytes;
  request.may_keep_connection = may_keep_connection(flight.attempt->host);
  ++counts_.num_attempts;
  flight.hop_began = now;
  flight.exchange =
      loop_of(flight.attempt->host).begin(std::move(request), flight.body, [inbox = inbox_, number = flight.number](HttpResult result) {
        inbox->post({number, std::move(result)});
      });
}

HttpLoop& Fetcher::Engine::loop_of(const std::string& host) { return *loops_[std::hash<std::string>()(host) % loops_.size()]; }

// A connection is kept for rows that wait for this host, and otherwise one each of few hosts only: with millions of hosts each kept one
// would cost a descriptor, and libcurl looks at all idle connections to an address, with a system call each, before it opens another one.
bool Fetcher::Engine::may_keep_connection(const std::string& host) {
  if (scheduler_.has_more(host)) {
    return true;
  }
  if (scheduler_.num_on_wire(host) > 1) {
    return false;
  }
  return hosts_kept_alone_.contains(host) || (hosts_kept_alone_.size() < kMostHostsKeptAlone && hosts_kept_alone_.insert(host).second);
}

void Fetcher::Engine::on_ended(Flight& flight, HttpResult result, Instant now) {
  Row& row = rows_.at(flight.attempt->row);
  counts_.num_bytes += result.num_bytes;
  row.reply.num_bytes += result.num_bytes;
  row.reply.http_status = result.head.status;
  flight.exchange = 0;
  if (was_answered(result)) {
    watch_.answered(flight.addresses[flight.num_tried - 1].to_string(), flight.hop_began, now);
  }
  if (result.first_byte_after) {
    places_.note_first_byte(*result.first_byte_after);
  }
  if (goes_on(flight, result, now)) {
    return;
  }
  if (result.end == HttpEnd::kStopped && flight.body.is_cut()) {
    result.end = HttpEnd::kAnswered;
  }
  AttemptOutcome outcome = outcome_of(result, flight.body.stopped(), system_clock().wall());
  outcome.paused = flight.body.paused();
  counts_.num_refused += outcome.error && outcome.error->code == RowErrorCode::kBlockedHost ? 1 : 0;
  end_attempt(flight, outcome, &result.head, now);
}

// Ends that are no outcome: another address, or trouble of our own.
bool Fetcher::Engine::goes_on(Flight& flight, const HttpResult& result, Instant now) {
  switch (result.end) {
    case HttpEnd::kNoDescriptors:
      give_back(flight, now);
      return true;
    case HttpEnd::kSinkFailed:
      fail(Status::internal("the body of a reply could not be taken:", result.detail));
      return true;
    case HttpEnd::kInternal:
      if (const Status failure = loop_of(flight.attempt->host).failure(); !failure.is_ok()) {
        fail(failure);
        return true;
      }
      return false;
    case HttpEnd::kCancelled:
      if (flight.gives_back) {
        rows_.at(flight.attempt->row).expected_bytes = flight.body.wanted_bytes();
        put_back(flight, now);
      }  // Else the loop has ended: so do we.
      return true;
    default:
      break;
  }
  if (may_try_next_address(result.end) && flight.num_tried < flight.addresses.size() && time_left(flight, now) > nanoseconds(0)) {
    try_next_address(flight, now);
    return true;
  }
  return false;
}

// This process may open no more files: the attempt waits until fewer are open.
void Fetcher::Engine::give_back(Flight& flight, Instant now) {
  if (places_.num_active() == 1) {
    fail(Status::resource_exhausted("not even one connection can be opened: this process may open no more files"));
    return;
  }
  put_back(flight, now);
  places_.lower_to(places_.num_active());
}

void Fetcher::Engine::put_back(Flight& flight, Instant now) {
  std::unique_ptr<Attempt> attempt = std::move(flight.attempt);
  const nanoseconds paused = flight.body.paused();
  leave_memory(rows_.at(attempt->row));
  places_.end(flight.number);
  flights_.erase(flight.number);
  scheduler_.interrupt(std::move(attempt), paused, now);
}

void Fetcher::Engine::end_attempt(Flight& flight, const AttemptOutcome& outcome, const HttpHead* head, Instant now) {
  const std::unique_ptr<Flight> ended = std::move(flights_.extract(flight.number).mapped());
  places_.end(ended->number);
  std::unique_ptr<Attempt> attempt = std::move(ended->attempt);
  rows_.at(attempt->row).reply.on_wire += now - ended->began;
  const uint64_t row = attempt->row;
  const AttemptVerdict verdict = scheduler_.report(attempt, outcome, now);
  if (verdict.kind == AttemptVerdict::Kind::kFinish && !verdict.error) {
    std::string bytes = ended->body.take_bytes();
    const Row& done = rows_.at(row);
    memory_of(done).withdraw(done.order);
    memory_of(done).set_held(done.order, bytes.size());
    sizes_.note(static_cast<int64_t>(bytes.size()));
    finish_row(row, std::move(bytes));
    return;
  }
  leave_memory(rows_.at(row));
  if (verdict.kind == AttemptVerdict::Kind::kSuspect) {
    watch_.suspect({std::move(attempt), outcome}, ended->began, now);
    return;
  }
  follow(verdict, std::move(attempt), row, head, now);
}

void Fetcher::Engine::follow(const AttemptVerdict& verdict, std::unique_ptr<Attempt> attempt, uint64_t row, const HttpHead* head,
                             Instant now) {
  switch (verdict.kind) {
    case AttemptVerdict::Kind::kFinish:
      finish_row(row, *verdict.error);
      return;
    case AttemptVerdict::Kind::kRetry:
    case AttemptVerdict::Kind::kPark:
      rows_.at(row).again_for = verdict.error->name();
      return;
    case AttemptVerdict::Kind::kRedirect:
      follow_redirect(std::move(attempt), *head, now);
      return;
    case AttemptVerdict::Kind::kSuspect:
      DARKROOM_CHECK(false, "a verdict that is none, of row:", row);
  }
}

// We send no credentials at all, so there are none to be taken away between hosts.
void Fetcher::Engine::follow_redirect(std::unique_ptr<Attempt> attempt, const HttpHead& head, Instant now) {
  Row& row = rows_.at(attempt->row);
  auto next = row.hop.follow(*redirect_location(head), policy_);
  if (!next.is_ok()) {
    counts_.num_refused += next.error().code == RowErrorCode::kBlockedHost ? 1 : 0;
    finish_row(attempt->row, next.error());
    return;
  }
  row.hop = *std::move(next);
  add_allowed(std::move(attempt), now);
}

void Fetcher::Engine::finish_row(uint64_t number, RowResult<std::string> body) {
  Row row = std::move(rows_.extract(number).mapped());
  if (row.robots_of) {
    if (body.is_ok()) {
      own_memory_.leave(row.order);
    }
    take_robots(*row.robots_of, body);
    return;
  }
  row.reply.body = std::move(body);
  seconds_.observe(std::chrono::duration<double>(std::chrono::steady_clock::now() - row.began).count());
  finished_.push_back({std::move(row.reply), number});
}

}  // namespace darkroom
