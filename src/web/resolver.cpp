#include "darkroom/web/resolver.h"
#include "darkroom/core/ascii_case.h"

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <fstream>
#include <iterator>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"
#include "dns_cache.h"
#include "dns_channel.h"

namespace darkroom {
namespace {

constexpr std::string_view kDnsAnswerNames[] = {"ok", "no_name", "server_failed", "timeout", "stopped"};

using DnsDone = std::function<void(const DnsAnswer&)>;

std::string canonical_host(std::string host) {
  host = ascii_lower(std::move(host));
  if (host.ends_with('.')) {
    host.pop_back();
  }
  return host;
}

std::unordered_map<std::string, std::vector<IpAddress>> read_hosts(const std::string& path) {
  std::unordered_map<std::string, std::vector<IpAddress>> hosts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string address, name;
    words >> address;
    const auto ip = IpAddress::parse(address);
    while (ip && words >> name) {
      hosts[canonical_host(name)].push_back(*ip);
    }
  }
  return hosts;
}

class AresResolver final : public Resolver {
 public:
  AresResolver(const ResolverOptions& options, Clock& clock, MetricsRegistry& metrics);
  ~AresResolver() override;
  Status start();
  void resolve(const std::string& host, DnsDone done) override { ask(host, std::move(done), queue_); }
  void resolve_at_once(const std::string& host, DnsDone done) override { ask(host, std::move(done), urgent_); }

 private:
  void ask(const std::string& host, DnsDone done, std::deque<std::string>& queue);
  std::optional<DnsAnswer> known(const std::string& name);
  void run();
  bool send_queries();
  void follow_resolv_conf();
  void settle(const std::string& name, const DnsAnswer& answer, std::chrono::seconds ttl);
  void answer_all(DnsAnswer::Kind kind);

  const ResolverOptions options_;
  Clock& clock_;
  const std::unordered_map<std::string, std::vector<IpAddress>> hosts_;
  std::array<Counter*, std::size(kDnsAnswerNames)> results_{};
  Histogram& seconds_;

  DnsChannel channel_;  // Of the thread.

  std::mutex mutex_;
  DnsCache cache_;
  std::unordered_map<std::string, std::vector<DnsDone>> waiting_;  // By name; queued or on its way.
  std::deque<std::string> queue_;
  std::deque<std::string> urgent_;  // Sent before queue_ and besides max_queries.
  bool is_stopping_ = false;        // Nothing is asked any more.

  std::jthread thread_;  // Last: ends before what it uses.
};

AresResolver::AresResolver(const ResolverOptions& options, Clock& clock, MetricsRegistry& metrics)
    : options_(options),
      clock_(clock),
      hosts_(read_hosts(options.hosts_file)),
      seconds_(metrics.histogram("darkroom_dns_seconds", "Time of one look-up of a host's addresses.", latency_bounds())),
      channel_(options_, [this](const std::string& name, const DnsAnswer& answer, std::chrono::seconds ttl) { settle(name, answer, ttl); }),
      cache_(options.max_names) {
  for (size_t i = 0; i < results_.size(); ++i) {
    results_[i] = &metrics.counter("darkroom_dns_total", "Look-ups by how they ended, those of the cache left out.",
                                   {{"result", std::string(kDnsAnswerNames[i])}});
  }
}

AresResolver::~AresResolver() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  if (thread_.joinable()) {
    channel_.wake();
    thread_.join();
  }
}

Status AresResolver::start() {
  DARKROOM_RETURN_IF_ERROR(channel_.open());
  try {
    thread_ = std::jthread([this] { run(); });
  } catch (const std::system_error& failure) {
    return Status::resource_exhausted("cannot start a thread for names:", failure.what());
  }
  return Status::ok();
}

// What needs no name server. REQUIRES: mutex_ is held.
std::optional<DnsAnswer> AresResolver::known(const std::string& name) {
  const std::string host = canonical_host(name);
  if (const auto ip = IpAddress::parse(host)) {
    return DnsAnswer{DnsAnswer::Kind::kOk, {*ip}, true};
  }
  if (const auto found = hosts_.find(host); found != hosts_.end()) {
    return DnsAnswer{DnsAnswer::Kind::kOk, found->second, true};
  }
  if (host.empty() || host.size() > 253 || host.find('\0') != std::string::npos) {
    return DnsAnswer{DnsAnswer::Kind::kNoName, {}, true};
  }
  return cache_.find(name, clock_.now());
}

void AresResolver::ask(const std::string& host, DnsDone done, std::deque<std::string>& queue) {
  const std::string name = options_.uses_search_domains ? ascii_lower(host) : canonical_host(host);  // A final dot: none of them.
  std::optional<DnsAnswer> answer;
  {
    const std::lock_guard lock(mutex_);
    answer = known(name);
    if (!answer && is_stopping_) {
      answer = DnsAnswer{DnsAnswer::Kind::kStopped};
    }
    if (!answer) {
      auto& waiting = waiting_[name];
      waiting.push_back(std::move(done));
      if (waiting.size() == 1) {
        queue.push_back(name);
        channel_.wake();
      }
      return;
    }
  }
  done(*answer);
}

void AresResolver::run() {
  try {
    while (send_queries()) {
      channel_.drive();
    }
  } catch (const std::exception& failure) {
    log_error("the resolver stopped: {}", failure.what());
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  channel_.cancel();
  answer_all(DnsAnswer::Kind::kStopped);
}

// False: the resolver ends.
bool AresResolver::send_queries() {
  std::vector<std::string> names;
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) {
      return false;
    }
    for (; !urgent_.empty(); urgent_.pop_front()) {
      names.push_back(std::move(urgent_.front()));
    }
    for (; !queue_.empty() && channel_.num_queries() + static_cast<int>(names.size()) < options_.max_queries; queue_.pop_front()) {
      names.push_back(std::move(queue_.front()));
    }
  }
  if (!names.empty()) {
    follow_resolv_conf();
  }
  for (std::string& name : names) {
    channel_.ask(std::move(name));
  }
  return true;
}

// Whatever waits for name servers that are not asked any more would wait in vain.
void AresResolver::follow_resolv_conf() {
  std::vector<std::string> owed = channel_.follow_resolv_conf();
  if (owed.empty()) {
    return;
  }
  const std::lock_guard lock(mutex_);
  std::move(owed.begin(), owed.end(), std::back_inserter(urgent_));
  channel_.wake();
}

void AresResolver::settle(const std::string& name, const DnsAnswer& answer, std::chrono::seconds ttl) {
  std::chrono::seconds life{0};
  if (answer.kind == DnsAnswer::Kind::kOk) {
    life = std::clamp(ttl, options_.shortest_life, options_.longest_life);
  } else if (answer.kind == DnsAnswer::Kind::kNoName) {
    life = options_.negative_life;
  }
  results_[static_cast<size_t>(answer.kind)]->add();
  seconds_.observe(std::chrono::duration<double>(std::chrono::steady_clock::now() - answer.asked_at).count());
  std::vector<DnsDone> waiting;
  {
    const std::lock_guard lock(mutex_);
    cache_.keep(name, answer, life, clock_.now());
    if (auto node = waiting_.extract(name)) {
      waiting = std::move(node.mapped());
    }
  }
  for (const DnsDone& done : waiting) {
    done(answer);
  }
}

void AresResolver::answer_all(DnsAnswer::Kind kind) {
  std::unordered_map<std::string, std::vector<DnsDone>> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
    queue_.clear();
    urgent_.clear();
  }
  for (const auto& [host, callbacks] : waiting) {
    for (const DnsDone& done : callbacks) {
      done(DnsAnswer{kind});
    }
  }
}

}  // namespace

std::string_view dns_answer_name(DnsAnswer::Kind kind) {
  const auto i = static_cast<size_t>(kind);
  DARKROOM_CHECK(i < std::size(kDnsAnswerNames), "no such kind of answer:", i);
  return kDnsAnswerNames[i];
}

Status ResolverOptions::validate() const {
  const auto must_be = [](const char* rule, auto value) { return Status::invalid_argument(rule, value); };
  if (try_time.count() < 1 || try_time > std::chrono::minutes(5)) {
    return must_be("try_time must be between 1 ms and 5 minutes (ms):", try_time.count());
  }
  if (num_tries < 1 || num_tries > 10) {
    return must_be("num_tries must be between 1 and 10:", num_tries);
  }
  if (max_queries < 1 || max_queries > 10'000) {
    return must_be("max_queries must be between 1 and 10000:", max_queries);
  }
  if (shortest_life.count() < 0 || longest_life < shortest_life || longest_life > std::chrono::hours(24 * 365)) {
    return must_be("longest_life must be between shortest_life and a year (s):", longest_life.count());
  }
  if (negative_life.count() < 0 || negative_life > std::chrono::hours(24)) {
    return must_be("negative_life must be between 0 and a day (s):", negative_life.count());
  }
  return Status::ok();
}

Result<std::unique_ptr<Resolver>> start_resolver(const ResolverOptions& options, Clock& clock, MetricsRegistry& metrics) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  auto resolver = std::make_unique<AresResolver>(options, clock, metrics);
  DARKROOM_RETURN_IF_ERROR(resolver->start());
  return std::unique_ptr<Resolver>(std::move(resolver));
}

}  // namespace darkroom
