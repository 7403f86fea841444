#include "fetch_engine.h"

#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <random>
#include <system_error>
#include <utility>

#include "darkroom/core/clock.h"
#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"

namespace darkroom {
namespace {

constexpr int64_t kOwnDescriptors = 64;  // Of the program besides.
constexpr int kMaxLoops = 16;
constexpr std::chrono::milliseconds kLongestHold{500};  // Of bytes by a body that waits for more.
constexpr std::chrono::milliseconds kReliefEvery{50};

HttpHeaders request_headers(const FetchOptions& options) {
  return {{"User-Agent", options.user_agent}, {"Accept", "image/jpeg,image/png,image/webp,*/*;q=0.5"}, {"Accept-Encoding", "identity"}};
}

Counter& connection_counter(MetricsRegistry& metrics) {
  return metrics.counter("darkroom_http_connections_total", "Sockets opened by the HTTP loops.");
}

}  // namespace

HostRules host_rules(const FetchOptions& options) {
  HostRules rules;
  rules.per_host = options.per_host;
  rules.per_host_rps = options.per_host_rps;
  rules.max_park = options.max_park;
  rules.num_retries = options.num_retries;
  rules.first_backoff = options.first_backoff;
  rules.max_redirects = options.max_redirects;
  rules.first_throttle = options.first_throttle;
  return rules;
}

int64_t descriptors_needed(int num_concurrent) { return num_concurrent + kOwnDescriptors; }

FetchRoom plan_room(int num_concurrent, int64_t max_open_files) {
  const int64_t num_sockets = max_open_files - kOwnDescriptors;
  // A quarter stays for connections that wait for the next request.
  const auto most = static_cast<int>(std::min<int64_t>(num_sockets * 3 / 4, Fetcher::kMaxPlaces));
  return {std::max(num_concurrent, most), static_cast<int>(std::clamp<int64_t>(num_sockets, 1, 1'000'000))};
}

Fetcher::Engine::Engine(FetchOptions options, FetchRoom room, MetricsRegistry* metrics)
    : options_(std::move(options)),
      room_(room),
      policy_(options_.allow_private, options_.ports),
      headers_(request_headers(options_)),
      own_metrics_(metrics == nullptr ? std::make_unique<MetricsRegistry>() : nullptr),
      metrics_(metrics == nullptr ? *own_metrics_ : *metrics),
      connections_(connection_counter(metrics_)),
      connections_before_(connections_.value()),
      seconds_(metrics_.histogram("darkroom_fetch_seconds", "Time of one fetch, from its start to its end.", latency_bounds())),
      own_memory_(static_cast<size_t>(options_.max_bytes_in_flight)),
      memory_(options_.memory == nullptr ? own_memory_ : *options_.memory),
      scheduler_(host_rules(options_), std::random_device{}()),
      watch_(options_.network),
      places_(options_.num_concurrent, room.num_places),
      queues_(num_outstanding()) {}

Fetcher::Engine::~Engine() {
  cancel();
  if (thread_.joinable()) {
    thread_.join();
  }
  loops_.clear();  // Ends every exchange, so that nobody uses a flight any more.
  empty_shared_memory();
}

Status Fetcher::Engine::start() {
  DARKROOM_ASSIGN_OR_RETURN(inbox_, FetchInbox::create());
  const std::string agent = options_.user_agent.substr(0, options_.user_agent.find_first_of("/ "));
  body_rules_.emplace(FetchBodyRules{options_.max_body_bytes, options_.respect, agent, false, memory_, inbox_});
  robots_rules_.emplace(FetchBodyRules{RobotsRules::kMaxBytes, {.noai = false}, agent, true, own_memory_, inbox_});
  if (options_.respect.robots || options_.respect.aipref) {
    robots_.emplace(options_.respect);
  }
  DARKROOM_ASSIGN_OR_RETURN(resolver_, start_resolver(options_.resolver, system_clock(), metrics_));
  probes_ = std::make_unique<NetworkProbes>(policy_, *resolver_, inbox_);
  const int num_loops = options_.num_loops > 0 ? options_.num_loops : std::clamp(num_processors() / 2, 1, kMaxLoops);
  const HttpLoopOptions loop_options{.num_kept_connections = std::max(1, room_.num_kept_connections / num_loops),
                                     .certificate_authorities = options_.certificate_authorities};
  for (int i = 0; i < num_loops; ++i) {
    DARKROOM_ASSIGN_OR_RETURN(auto loop, HttpLoop::start(loop_options, metrics_));
    loops_.push_back(std::move(loop));
  }
  try {
    thread_ = std::jthread([this] { run(); });
  } catch (const std::system_error& failure) {
    return Status::resource_exhausted("cannot start a thread for fetching:", failure.what());
  }
  return Status::ok();
}

bool Fetcher::Engine::submit(FetchRequest request) {
  const FetchQueues::Entry entry = queues_.submit({request.id, UrlHop::parse(request.url, policy_), request.order});
  if (entry == FetchQueues::Entry::kFirst) {
    inbox_->wake();
  }
  return entry != FetchQueues::Entry::kRefused;
}

std::optional<FetchReply> Fetcher::Engine::next() {
  std::optional<UntakenReply> taken = queues_.take_reply();
  if (!taken) {
    return std::nullopt;
  }
  if (taken->reply.body.is_ok() && options_.memory == nullptr) {
    own_memory_.leave(taken->row);
    if (wants_bytes_.load()) {
      inbox_->wake();
    }
  }
  return std::move(taken->reply);
}

void Fetcher::Engine::cancel() {
  queues_.cancel();
  if (inbox_) {
    inbox_->wake();
  }
}

FetchStats Fetcher::Engine::stats() const {
  FetchStats stats;
  stats.num_attempts = counts_.num_attempts;
  stats.num_connections = connections_.value() - connections_before_;
  stats.num_refused = counts_.num_refused;
  stats.num_retries = counts_.num_retries;
  stats.num_bytes = counts_.num_bytes;
  stats.bytes_in_flight = static_cast<int64_t>(memory_.used_bytes());
  stats.peak_bytes_in_flight = static_cast<int64_t>(memory_.peak_bytes());
  stats.num_active = counts_.num_active;
  stats.num_slow = counts_.num_slow;
  stats.num_waiting = counts_.num_waiting;
  stats.is_network_out = counts_.is_network_out;
  return stats;
}

void Fetcher::Engine::run() {
  try {
    while (true) {
      inbox_->take(events_);
      if (queues_.is_cancelled()) {  // Looked at after take(), which forgets the wake-up of cancel().
        return;
      }
      step();
    }
  } catch (const std::exception& failure) {
    fail(Status::internal("the fetcher stopped:", failure.what()));
  }
}

void Fetcher::Engine::step() {
  const Instant now = std::chrono::steady_clock::now();
  close_door();  // Before any row can end.
  for (FetchEvent& event : events_) {
    handle(event, now);
  }
  take_requests(now);
  expire_lookups(now);
  watch_probes(now);
  settle(now);
  start_attempts(now);
  look_at_places(now);
  queues_.publish(finished_, in_hand());
  wait(now);
}

void Fetcher::Engine::handle(FetchEvent& event, Instant now) {
  if (const auto* probe = std::get_if<ProbeAnswer>(&event.what)) {
    probes_->take_answer(*probe);
    return;
  }
  num_unanswered_ -= std::holds_alternative<DnsAnswer>(event.what) ? 1 : 0;
  const auto found = flights_.find(event.attempt);
  if (found == flights_.end()) {  // Its deadline was sooner.
    return;
  }
  Flight& flight = *found->second;
  if (const auto* answer = std::get_if<DnsAnswer>(&event.what)) {
    on_resolved(flight, *answer, now);
  } else if (auto* result = std::get_if<HttpResult>(&event.what)) {
    on_ended(flight, std::move(*result), now);
  } else if (flight.exchange != 0) {
    loop_of(flight.attempt->host).resume(flight.exchange);
  }
}

void Fetcher::Engine::take_requests(Instant now) {
  queues_.take_requests(taken_);
  for (ReadRequest& request : taken_) {
    add_row(std::move(request), now);
  }
}

// What has become clear: verdicts over suspects, and rows that have waited too long.
void Fetcher::Engine::settle(Instant now) {
  watch_.set_on_wire(scheduler_.num_on_wire(), now);
  for (NetworkProbe& probe : watch_.take_probes(now)) {
    probes_->begin(std::move(probe), now);
  }
  say_network(now);
  while (auto suspect = watch_.take_confirmed()) {
    const uint64_t row = suspect->attempt->row;
    const AttemptVerdict verdict = scheduler_.judge(suspect->attempt, suspect->outcome, now);
    follow(verdict, std::move(suspect->attempt), row, nullptr, now);
  }
  while (auto suspect = watch_.take_cleared()) {
    scheduler_.restart(std::move(suspect->attempt), now);
  }
  while (auto expired = scheduler_.take_expired(now)) {
    finish_row(expired->attempt->row, std::move(expired->error));
  }
}

void Fetcher::Engine::say_network(Instant now) {
  const bool is_out = watch_.state() == NetworkWatch::State::kOut;
  if (is_out == was_out_) {
    return;
  }
  was_out_ = is_out;
  counts_.is_network_out = is_out;
  scheduler_.set_paused(is_out, now);
  if (is_out) {
    log_warning("the network or the resolver of this machine does not answer: fetching pauses until it does; no row is lost");
  } else {
    log_info("the network answers again: fetching goes on");
  }
}

void Fetcher::Engine::watch_probes(Instant now) {
  while (const auto ended = probes_->take_ended(now)) {
    watch_.probe_ended(ended->probe, ended->is_answered, now);
  }
}

// For the first bytes of one more body, in our own memory.
bool Fetcher::Engine::has_room() const {
  return own_memory_.num_inside() == 0 ||
         (own_memory_.num_waiting() == 0 &&
          static_cast<int64_t>(own_memory_.used_bytes()) + sizes_.expected() <= options_.max_bytes_in_flight);
}

// The next row that may begin; null: none now, and what makes room wakes the thread.
std::unique_ptr<Attempt> Fetcher::Engine::next_admitted(Instant now) {
  if (options_.memory == nullptr) {
    if (!has_room()) {
      wants_bytes_ = true;
      if (!has_room()) {  // A reply that was taken before wants_bytes_ was set woke nobody.
        return nullptr;
      }
    }
    return scheduler_.take(now);
  }
  std::unique_ptr<Attempt> attempt = scheduler_.take(now);
  if (attempt && !is_admitted(rows_.at(attempt->row))) {
    scheduler_.put_back(std::move(attempt), now);
  }
  return attempt;
}

// Rows that wait for another reason than a place are apart: a back-off, their host's trouble, its robots.txt, a verdict, silence.
FetchQueues::InHand Fetcher::Engine::in_hand() const {
  const auto num_beyond = static_cast<int64_t>(scheduler_.num_beyond_places());
  const auto num_waiting = static_cast<int64_t>(scheduler_.num_waiting() - scheduler_.num_set_aside());
  return {.wanting = places_.num_active() - places_.num_slow() + num_waiting - num_beyond, .beyond_places = num_beyond};
}

// Rows wait here, where their deadlines stand still, and not in the resolver's queue behind names that nobody answers for.
void Fetcher::Engine::start_attempts(Instant now) {
  wants_bytes_ = false;
  close_door();
  while (places_.has_place() && may_look_up()) {
    auto attempt = next_admitted(now);
    if (!attempt) {
      break;
    }
    begin(std::move(attempt), now);
  }
  watch_.set_on_wire(scheduler_.num_on_wire(), now);
  counts_.num_active = places_.num_active();
  counts_.num_slow = places_.num_slow();
  counts_.num_waiting = static_cast<int>(scheduler_.num_waiting() + held_.size());
}

void Fetcher::Engine::look_at_places(Instant now) {
  const std::vector<uint64_t> slow = places_.look(now, [&](uint64_t number) { return look_at(number, now); });
  for (const uint64_t number : slow) {
    flights_.at(number)->body.return_unused();
  }
  if (!slow.empty()) {
    start_attempts(now);
  }
  relieve_memory(now);
}

// Whether an attempt has made progress, or is not to blame that it has not.
bool Fetcher::Engine::look_at(uint64_t number, Instant now) {
  Flight& flight = *flights_.at(number);
  if (flight.body.is_paused()) {
    flight.paused_since = flight.paused_since.value_or(now);
    return true;
  }
  flight.paused_since.reset();
  if (!flight.body.take_progress()) {
    return false;
  }
  if (flight.exchange != 0) {
    watch_.answered(flight.addresses[flight.num_tried - 1].to_string(), flight.hop_began, now);
  }
  return true;
}

// Bodies of unknown length ask again and again, and several may hold what the others wait for: the youngest begins again later, with as
// much as it wanted. In a memory of the caller one that waits may keep a place that an older piece needs, also where it holds nothing.
void Fetcher::Engine::relieve_memory(Instant now) {
  if (now < next_relief_ || memory_.num_waiting() < (options_.memory == nullptr ? 2u : 1u)) {
    return;
  }
  next_relief_ = now + kReliefEvery;
  Flight* youngest = nullptr;
  for (const auto& [number, flight] : flights_) {
    const bool is_stuck = flight->paused_since && now - *flight->paused_since >= kLongestHold && flight->exchange != 0;
    const Row& row = rows_.at(flight->attempt->row);
    const bool gives_something = is_shared(row) || memory_of(row).held_bytes(row.order) > 0;
    if (is_stuck && !flight->gives_back && gives_something && (youngest == nullptr || flight->attempt->row > youngest->attempt->row)) {
      youngest = flight.get();
    }
  }
  if (youngest != nullptr) {
    youngest->gives_back = true;
    loop_of(youngest->attempt->host).cancel(youngest->exchange);
  }
}

void Fetcher::Engine::wait(Instant now) {
  std::optional<Instant> until;
  const auto sooner = [&](std::optional<Instant> at) {
    if (at) {
      until = std::min(until.value_or(*at), *at);
    }
  };
  sooner(scheduler_.next_instant());
  sooner(watch_.next_instant());
  sooner(places_.next_look());
  sooner(probes_->next_instant());
  if (!lookups_.empty()) {
    sooner(lookups_.begin()->first);
  }
  sockets_.clear();
  probes_->add_sockets(sockets_);
  if (!until || *until > now) {
    inbox_->wait(sockets_, until);
  }
  probes_->take_sockets(sockets_);
}

void Fetcher::Engine::fail(Status failure) {
  log_error("{}", failure.to_string());
  queues_.note_failure(std::move(failure));
  cancel();
}

}  // namespace darkroom
