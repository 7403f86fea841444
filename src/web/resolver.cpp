#include "darkroom/web/resolver.h"
#include "darkroom/core/ascii_case.h"

#include <ares.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <exception>
#include <fstream>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"
#include "dns_cache.h"

namespace darkroom {
namespace {

constexpr std::string_view kDnsAnswerNames[] = {"ok", "no_name", "server_failed", "timeout", "stopped"};
constexpr std::chrono::seconds kLongestWait{1};

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

/// Device, inode, size and time of the last change: who writes a file anew, or puts another one in its place, changes one of them.
using FileState = std::tuple<dev_t, ino_t, off_t, time_t, long>;

std::optional<FileState> look_at_file(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) {
    return std::nullopt;
  }
  return FileState{found.st_dev, found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
}

/// A file that names none is one that somebody has only begun to write, or that was emptied when a network went away.
bool names_a_server(const std::string& path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("nameserver")) {
      return true;
    }
  }
  return false;
}

DnsAnswer::Kind kind_of(int status) {
  switch (status) {
    case ARES_SUCCESS:
      return DnsAnswer::Kind::kOk;
    case ARES_ENOTFOUND:
    case ARES_ENODATA:
    case ARES_EBADNAME:
    case ARES_EFORMERR:
      return DnsAnswer::Kind::kNoName;
    case ARES_ETIMEOUT:
      return DnsAnswer::Kind::kTimeout;
    case ARES_EDESTRUCTION:
    case ARES_ECANCELLED:
      return DnsAnswer::Kind::kStopped;
    default:
      return DnsAnswer::Kind::kServerFailed;
  }
}

// Each address once, and the shortest time to live of the records, those of aliases too.
std::pair<std::vector<IpAddress>, std::chrono::seconds> addresses_of(const ares_addrinfo& info) {
  std::vector<IpAddress> addresses;
  int ttl = INT32_MAX;
  for (const ares_addrinfo_node* node = info.nodes; node != nullptr; node = node->ai_next) {
    ttl = std::min(ttl, node->ai_ttl);
    const auto ip = IpAddress::from_sockaddr(*node->ai_addr);
    const auto is_same = [&](const IpAddress& other) { return other.bytes == ip->bytes && other.is_ipv4 == ip->is_ipv4; };
    if (ip && std::none_of(addresses.begin(), addresses.end(), is_same)) {
      addresses.push_back(*ip);
    }
  }
  for (const ares_addrinfo_cname* alias = info.cnames; alias != nullptr; alias = alias->next) {
    ttl = std::min(ttl, alias->ttl);
  }
  return {std::move(addresses), std::chrono::seconds(std::max(ttl, 0))};
}

// What the questions for either family say together. A name has no address only if both say so.
DnsAnswer of_both(DnsAnswer one, DnsAnswer other) {
  using Kind = DnsAnswer::Kind;
  if (one.kind == Kind::kOk && other.kind == Kind::kOk) {
    const bool is_sorted = one.addresses.front().is_ipv4;
    std::vector<IpAddress> first = std::move(is_sorted ? one.addresses : other.addresses);
    const std::vector<IpAddress>& second = is_sorted ? other.addresses : one.addresses;
    first.insert(first.end(), second.begin(), second.end());
    return {Kind::kOk, std::move(first)};
  }
  for (const Kind kind : {Kind::kOk, Kind::kStopped, Kind::kServerFailed, Kind::kTimeout}) {
    if (one.kind == kind) {
      return one;
    }
    if (other.kind == kind) {
      return other;
    }
  }
  return one;
}

class AresResolver final : public Resolver {
 public:
  AresResolver(const ResolverOptions& options, Clock& clock, MetricsRegistry& metrics);
  ~AresResolver() override;
  Status start();
  void resolve(const std::string& host, DnsDone done) override { ask(host, std::move(done), queue_); }
  void resolve_at_once(const std::string& host, DnsDone done) override { ask(host, std::move(done), urgent_); }

 private:
  struct Query {
    AresResolver* self;
    std::string host;
    std::chrono::steady_clock::time_point began;
    int num_open;  // Of each family one: of both together c-ares only tells how the last one ended. With search domains one of both.
    std::optional<DnsAnswer> other = std::nullopt;
    std::chrono::seconds ttl = std::chrono::seconds::max();
  };

  static void on_socket(void* self, ares_socket_t socket, int is_readable, int is_writable) noexcept;
  static void on_answer(void* query, int status, int num_timeouts, ares_addrinfo* info) noexcept;
  Result<ares_channel> open_channel();
  void follow_resolv_conf();
  void ask_again(Query& query);
  void ask(const std::string& host, DnsDone done, std::deque<std::string>& queue);
  std::optional<DnsAnswer> known(const std::string& name);
  void wake();
  void run();
  bool send_queries();
  void drive();
  void settle(const Query& query, DnsAnswer answer, std::chrono::seconds ttl);
  void answer_all(DnsAnswer::Kind kind);

  const ResolverOptions options_;
  Clock& clock_;
  const std::unordered_map<std::string, std::vector<IpAddress>> hosts_;
  std::array<Counter*, std::size(kDnsAnswerNames)> results_{};
  Histogram& seconds_;

  // Of the thread.
  ares_channel channel_ = nullptr;
  int epoll_ = -1;
  int num_queries_ = 0;                   // On their way.
  std::optional<FileState> resolv_conf_;  // As it was when the channel was opened.
  bool is_moving_ = false;                // The channel ends, and its names are for the next one.

  int wake_event_ = -1;
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
    wake();
    thread_.join();
  }
  if (channel_ != nullptr) {
    ares_destroy(channel_);
  }
  for (const int descriptor : {epoll_, wake_event_}) {
    if (descriptor >= 0) {
      ::close(descriptor);
    }
  }
}

Status AresResolver::start() {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.fd = wake_event_}};
  if (epoll_ < 0 || wake_event_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_event_, &event) != 0) {
    return Status::unavailable("cannot open the resolver's event queue:", std::strerror(errno));
  }
  DARKROOM_ASSIGN_OR_RETURN(channel_, open_channel());
  try {
    thread_ = std::jthread([this] { run(); });
  } catch (const std::system_error& failure) {
    return Status::resource_exhausted("cannot start a thread for names:", failure.what());
  }
  return Status::ok();
}

Result<ares_channel> AresResolver::open_channel() {
  resolv_conf_ = look_at_file(options_.resolv_conf);  // First: a change while it is read is another one.
  ares_options options{};
  std::string path = options_.resolv_conf;
  options.resolvconf_path = path.data();
  options.udp_port = options.tcp_port = options_.port;
  char dns_alone[] = "b";  // It would open the hosts file at every look-up.
  options.lookups = dns_alone;
  options.flags = ARES_FLAG_NOALIASES | (options_.uses_search_domains ? 0 : ARES_FLAG_NOSEARCH);
  options.timeout = static_cast<int>(options_.try_time.count());
  options.tries = options_.num_tries;
  options.sock_state_cb = &on_socket;
  options.sock_state_cb_data = this;
  const int mask = ARES_OPT_LOOKUPS | ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_SOCK_STATE_CB | ARES_OPT_RESOLVCONF |
                   ARES_OPT_UDP_PORT | ARES_OPT_TCP_PORT;
  ares_channel channel = nullptr;
  int status = ares_init_options(&channel, &options, mask);
  if (status == ARES_SUCCESS && !options_.servers.empty()) {
    status = ares_set_servers_ports_csv(channel, fmt::format("{}", fmt::join(options_.servers, ",")).c_str());
    if (status != ARES_SUCCESS) {
      ares_destroy(channel);
      return Status::invalid_argument("servers must be addresses of name servers:", fmt::format("{}", fmt::join(options_.servers, ",")));
    }
  }
  return status == ARES_SUCCESS ? Result<ares_channel>(channel) : Status::unavailable("cannot start the resolver:", ares_strerror(status));
}

// Whatever waits for name servers that are not asked any more would wait in vain.
void AresResolver::follow_resolv_conf() {
  if (!options_.servers.empty()) {
    return;
  }
  const std::optional<FileState> now = look_at_file(options_.resolv_conf);
  if (!now || now == resolv_conf_ || !names_a_server(options_.resolv_conf)) {
    return;  // The former name servers stay, and the next name looks again.
  }
  const Result<ares_channel> channel = open_channel();
  if (!channel.is_ok()) {
    log_warning("{} has changed and cannot be followed: {}", options_.resolv_conf, channel.status().message());
    return;
  }
  log_info("{} has changed: names are asked of its name servers from now on", options_.resolv_conf);
  is_moving_ = true;
  ares_destroy(std::exchange(channel_, *channel));  // Which answers all that it was asked for.
  is_moving_ = false;
}

void AresResolver::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_event_, &one, sizeof one);
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
        wake();
      }
      return;
    }
  }
  done(*answer);
}

void AresResolver::run() {
  try {
    while (send_queries()) {
      drive();
    }
  } catch (const std::exception& failure) {
    log_error("the resolver stopped: {}", failure.what());
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  ares_cancel(channel_);
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
    for (; !queue_.empty() && num_queries_ + static_cast<int>(names.size()) < options_.max_queries; queue_.pop_front()) {
      names.push_back(std::move(queue_.front()));
    }
  }
  if (!names.empty()) {
    follow_resolv_conf();
  }
  for (std::string& name : names) {
    ares_addrinfo_hints hints{};
    hints.ai_flags = ARES_AI_NOSORT;  // Sorting opens a socket to every address.
    ++num_queries_;
    // Questions of their own would go through search domains apart, and end at machines of two of them.
    const std::vector<int> families = options_.uses_search_domains ? std::vector<int>{AF_UNSPEC} : std::vector<int>{AF_INET, AF_INET6};
    auto* query = new Query{this, std::move(name), std::chrono::steady_clock::now(), static_cast<int>(families.size())};
    const std::string host = query->host;  // The last answer ends the query, and may come at once.
    for (const int family : families) {
      hints.ai_family = family;
      ares_getaddrinfo(channel_, host.c_str(), nullptr, &hints, &on_answer, query);
    }
  }
  return true;
}

void AresResolver::on_socket(void* self, ares_socket_t socket, int is_readable, int is_writable) noexcept {
  const int epoll = static_cast<AresResolver*>(self)->epoll_;
  if (is_readable == 0 && is_writable == 0) {
    epoll_ctl(epoll, EPOLL_CTL_DEL, socket, nullptr);
    return;
  }
  epoll_event event{.events = 0, .data = {.fd = socket}};
  event.events |= is_readable != 0 ? uint32_t{EPOLLIN} : 0;
  event.events |= is_writable != 0 ? uint32_t{EPOLLOUT} : 0;
  if (epoll_ctl(epoll, EPOLL_CTL_MOD, socket, &event) != 0) {
    epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event);
  }
}

void AresResolver::drive() {
  timeval longest{.tv_sec = kLongestWait.count(), .tv_usec = 0};
  timeval buffer{};
  int wait_ms = -1;
  if (const timeval* wait = ares_timeout(channel_, num_queries_ > 0 ? &longest : nullptr, &buffer)) {
    wait_ms = static_cast<int>(wait->tv_sec * 1000 + (wait->tv_usec + 999) / 1000);
  }
  std::array<epoll_event, 64> events;
  const int num_events = epoll_wait(epoll_, events.data(), events.size(), wait_ms);
  DARKROOM_CHECK(num_events >= 0 || errno == EINTR, "waiting for the resolver's events failed:", std::strerror(errno));
  for (int i = 0; i < num_events; ++i) {
    const uint32_t flags = events[static_cast<size_t>(i)].events;
    const int descriptor = events[static_cast<size_t>(i)].data.fd;
    if (descriptor == wake_event_) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t num_read = read(wake_event_, &count, sizeof count);
      continue;
    }
    const bool is_broken = (flags & (EPOLLERR | EPOLLHUP)) != 0;
    ares_process_fd(channel_, (flags & EPOLLIN) != 0 || is_broken ? descriptor : ARES_SOCKET_BAD,
                    (flags & EPOLLOUT) != 0 ? descriptor : ARES_SOCKET_BAD);
  }
  ares_process_fd(channel_, ARES_SOCKET_BAD, ARES_SOCKET_BAD);  // What waits too long.
}

void AresResolver::on_answer(void* argument, int status, int, ares_addrinfo* info) noexcept {
  auto* query = static_cast<Query*>(argument);
  DnsAnswer answer{kind_of(status)};
  if (info != nullptr) {
    std::chrono::seconds ttl{0};
    std::tie(answer.addresses, ttl) = addresses_of(*info);
    query->ttl = std::min(query->ttl, ttl);
    ares_freeaddrinfo(info);
  }
  if (answer.kind == DnsAnswer::Kind::kOk && answer.addresses.empty()) {
    answer.kind = DnsAnswer::Kind::kNoName;
  }
  if (--query->num_open > 0) {
    query->other = std::move(answer);
    return;
  }
  const std::unique_ptr<Query> ended(query);
  --ended->self->num_queries_;
  const auto is_cut = [](const DnsAnswer& one) { return one.kind == DnsAnswer::Kind::kStopped; };
  if (ended->self->is_moving_ && (is_cut(answer) || (ended->other && is_cut(*ended->other)))) {
    ended->self->ask_again(*ended);
    return;
  }
  answer = ended->other ? of_both(*std::move(ended->other), std::move(answer)) : std::move(answer);
  answer.asked_at = ended->began;
  ended->self->settle(*ended, std::move(answer), ended->ttl);
}

// Of both families.
void AresResolver::ask_again(Query& query) {
  const std::lock_guard lock(mutex_);
  urgent_.push_back(std::move(query.host));
  wake();
}

void AresResolver::settle(const Query& query, DnsAnswer answer, std::chrono::seconds ttl) {
  std::chrono::seconds life{0};
  if (answer.kind == DnsAnswer::Kind::kOk) {
    life = std::clamp(ttl, options_.shortest_life, options_.longest_life);
  } else if (answer.kind == DnsAnswer::Kind::kNoName) {
    life = options_.negative_life;
  }
  results_[static_cast<size_t>(answer.kind)]->add();
  seconds_.observe(std::chrono::duration<double>(std::chrono::steady_clock::now() - query.began).count());
  std::vector<DnsDone> waiting;
  {
    const std::lock_guard lock(mutex_);
    cache_.keep(query.host, answer, life, clock_.now());
    if (auto node = waiting_.extract(query.host)) {
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
  static std::once_flag is_initialised;
  std::call_once(is_initialised, [] { DARKROOM_CHECK(ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS, "c-ares does not start"); });
  auto resolver = std::make_unique<AresResolver>(options, clock, metrics);
  DARKROOM_RETURN_IF_ERROR(resolver->start());
  return std::unique_ptr<Resolver>(std::move(resolver));
}

}  // namespace darkroom
