#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "darkroom/core/body_memory.h"
#include "darkroom/web/fetch.h"
#include "darkroom/web/host_scheduler.h"
#include "darkroom/web/http_loop.h"
#include "darkroom/web/network_watch.h"
#include "darkroom/web/url_hop.h"
#include "fetch_body.h"
#include "fetch_inbox.h"
#include "fetch_places.h"
#include "fetch_queues.h"
#include "fetch_sizes.h"
#include "network_probes.h"
#include "robots_files.h"

namespace darkroom {

/// The part of the options that is the hosts'.
HostRules host_rules(const FetchOptions& options);

/// How many places, and how many kept connections, a limit of open files allows.
struct FetchRoom {
  int num_places = 0;  ///< On the wire at once.
  int num_kept_connections = 0;
};
/// REQUIRES: the limit is at least descriptors_needed(num_concurrent).
FetchRoom plan_room(int num_concurrent, int64_t max_open_files);

/// The thread between the two ends that callers see (FetchQueues): it gives rows to the host scheduler, starts what that allows, and tells
/// it and the network watch what came of it. Names are resolved and exchanges carried out by other threads, which answer through the inbox.
class Fetcher::Engine {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  Engine(FetchOptions options, FetchRoom room, MetricsRegistry* metrics);
  ~Engine();
  Status start();

  bool submit(FetchRequest request);
  std::optional<FetchReply> next();
  bool wait_for_demand(int64_t max_beyond) {
    const int wanted = 2 * options_.num_concurrent;
    return queues_.wait_for_demand({.wanting = wanted, .beyond_places = std::max<int64_t>(wanted, max_beyond)});
  }
  void close() { queues_.close(); }
  void cancel();
  Status failure() const { return queues_.failure(); }
  int num_outstanding() const { return room_.num_places + 4 * options_.num_concurrent; }
  FetchStats stats() const;

 private:
  /// A row inside: waiting, under way, or suspect.
  struct Row {
    UrlHop hop = {};
    FetchReply reply;                                     ///< All but the body.
    std::optional<std::string> robots_of = std::nullopt;  ///< It is one of our own: the robots.txt of this origin.
    std::string again_for = {};                           ///< It was tried before: why it is tried again.
    int64_t expected_bytes = 0;                           ///< What its body wanted when it gave its bytes back.
    uint64_t order = 0;                                   ///< Of its body in memory_of().
    Instant began;
  };
  /// An attempt on the wire.
  struct Flight {
    Flight(const FetchBodyRules& rules, uint64_t order, uint64_t number) : number(number), body(rules, order, number) {}

    const uint64_t number;
    std::unique_ptr<Attempt> attempt;
    Instant began;
    std::vector<SocketAddress> addresses;
    size_t num_tried = 0;                 ///< Of these.
    Instant hop_began;                    ///< The exchange with the last of them.
    ExchangeId exchange = 0;              ///< 0: none is under way.
    std::optional<Instant> paused_since;  ///< By the byte limit, as far as was seen.
    bool gives_back = false;              ///< Its exchange is cancelled, so that others get its bytes.
    FetchBody body;
  };

  // The thread (fetch_engine.cpp).
  void run();
  void step();
  void wait(Instant now);
  void handle(FetchEvent& event, Instant now);
  void take_requests(Instant now);
  void settle(Instant now);
  void say_network(Instant now);
  void start_attempts(Instant now);
  bool has_room() const;
  FetchQueues::InHand in_hand() const;
  std::unique_ptr<Attempt> next_admitted(Instant now);
  bool may_look_up() const { return num_unanswered_ < options_.resolver.max_queries; }
  void look_at_places(Instant now);
  bool look_at(uint64_t number, Instant now);
  void relieve_memory(Instant now);
  void watch_probes(Instant now);
  void fail(Status failure);

  // Attempts (fetch_attempts.cpp).
  void add_row(ReadRequest request, Instant now);
  void add_attempt(std::unique_ptr<Attempt> attempt, Instant now);
  void begin(std::unique_ptr<Attempt> attempt, Instant now);
  void count_retry(const std::string& reason);
  int64_t expected_bytes(const Row& row) const;
  void resolve(Flight& flight, Instant now);
  void expire_lookups(Instant now);
  void on_resolved(Flight& flight, const DnsAnswer& answer, Instant now);
  void try_next_address(Flight& flight, Instant now);
  void on_ended(Flight& flight, HttpResult result, Instant now);
  bool goes_on(Flight& flight, const HttpResult& result, Instant now);
  void give_back(Flight& flight, Instant now);
  void put_back(Flight& flight, Instant now);
  void end_attempt(Flight& flight, const AttemptOutcome& outcome, const HttpHead* head, Instant now);
  void follow(const AttemptVerdict& verdict, std::unique_ptr<Attempt> attempt, uint64_t row, const HttpHead* head, Instant now);
  void follow_redirect(std::unique_ptr<Attempt> attempt, const HttpHead& head, Instant now);
  void finish_row(uint64_t row, RowResult<std::string> body);

  // Permissions (fetch_robots.cpp).
  void add_allowed(std::unique_ptr<Attempt> attempt, Instant now);
  void ask_robots(const UrlHop& of, Instant now);
  void take_robots(const std::string& origin, const RowResult<std::string>& body);
  void release_held(const std::string& origin, RobotsAnswer answer, Instant now);

  // Memory (fetch_memory.cpp).
  bool is_shared(const Row& row) const { return options_.memory != nullptr && !row.robots_of; }
  BodyMemory& memory_of(const Row& row) { return is_shared(row) ? memory_ : own_memory_; }
  bool is_admitted(const Row& row);
  void close_door();
  void enter_memory(const Row& row);
  void leave_memory(const Row& row);
  void empty_shared_memory();

  std::chrono::nanoseconds time_left(const Flight& flight, Instant now) const;
  HttpLoop& loop_of(const std::string& host);
  bool may_keep_connection(const std::string& host);

  const FetchOptions options_;
  const FetchRoom room_;
  const HopPolicy policy_;
  const HttpHeaders headers_;
  std::unique_ptr<MetricsRegistry> own_metrics_;
  MetricsRegistry& metrics_;
  Counter& connections_;
  const int64_t connections_before_;
  Histogram& seconds_;
  BodyMemory own_memory_;  // A row is inside, by its number, from the start of an attempt until its reply is taken.
  BodyMemory& memory_;     // Of bodies: the caller's or ours. That of robots.txt is ours.
  std::shared_ptr<FetchInbox> inbox_;
  std::optional<FetchBodyRules> body_rules_;
  std::optional<FetchBodyRules> robots_rules_;

  // Of the thread.
  HostScheduler scheduler_;
  NetworkWatch watch_;
  FetchPlaces places_;
  FetchSizes sizes_;
  std::optional<RobotsFiles> robots_;  // When it matters.
  std::optional<uint64_t> door_;       // The order of a row that asked for memory and was not begun; only wakes the thread.
  std::unordered_map<uint64_t, Row> rows_;
  std::unordered_map<uint64_t, std::unique_ptr<Attempt>> held_;  // Rows that wait for a robots.txt.
  std::unordered_map<uint64_t, std::unique_ptr<Flight>> flights_;
  std::set<std::pair<Instant, uint64_t>> lookups_;    // Deadlines of the flights whose name is looked up.
  int num_unanswered_ = 0;                            // Look-ups, those of ended flights too.
  std::unordered_set<std::string> hosts_kept_alone_;  // Their connections are kept although no other row wants them.
  uint64_t num_rows_ = 0;
  uint64_t num_flights_ = 0;
  Instant next_relief_{};
  bool was_out_ = false;
  std::vector<FetchEvent> events_;
  std::vector<ReadRequest> taken_;
  std::vector<pollfd> sockets_;
  std::vector<UntakenReply> finished_;  // Not yet visible to callers.

  // Shared with callers.
  FetchQueues queues_;
  std::atomic<bool> wants_bytes_{false};  // The thread waits until replies are taken.

  struct Counts {
    std::atomic<int64_t> num_attempts{0}, num_refused{0}, num_retries{0}, num_bytes{0};
    std::atomic<int> num_active{0}, num_slow{0}, num_waiting{0};
    std::atomic<bool> is_network_out{false};
  };
  Counts counts_;

  // Ended in this order: the thread, what calls back, and then what they use.
  std::unique_ptr<Resolver> resolver_;
  std::unique_ptr<NetworkProbes> probes_;
  std::vector<std::unique_ptr<HttpLoop>> loops_;
  std::jthread thread_;
};

}  // namespace darkroom
