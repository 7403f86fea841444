#include "dns_channel.h"

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
#include <fstream>
#include <memory>
#include <mutex>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"

namespace darkroom {
namespace {

constexpr std::chrono::seconds kLongestWait{1};
constexpr size_t kMaxAddresses = 16;  // Of a family. A host that has more is asked at these.

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

// The first addresses of a family, each once, and the shortest time to live of the records, those of aliases too.
std::pair<std::vector<IpAddress>, std::chrono::seconds> addresses_of(const ares_addrinfo& info) {
  std::vector<IpAddress> addresses;
  int ttl = INT32_MAX;
  for (const ares_addrinfo_node* node = info.nodes; node != nullptr; node = node->ai_next) {
    ttl = std::min(ttl, node->ai_ttl);
    if (addresses.size() == kMaxAddresses) {
      break;
    }
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

}  // namespace

DnsChannel::~DnsChannel() {
  if (channel_ != nullptr) {
    ares_destroy(channel_);
  }
  for (const int descriptor : {epoll_, wake_event_}) {
    if (descriptor >= 0) {
      ::close(descriptor);
    }
  }
}

Status DnsChannel::open() {
  static std::once_flag is_initialised;
  std::call_once(is_initialised, [] { DARKROOM_CHECK(ares_library_init(ARES_LIB_INIT_ALL) == ARES_SUCCESS, "c-ares does not start"); });
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  wake_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{.events = EPOLLIN, .data = {.fd = wake_event_}};
  if (epoll_ < 0 || wake_event_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_event_, &event) != 0) {
    return Status::unavailable("cannot open the resolver's event queue:", std::strerror(errno));
  }
  DARKROOM_ASSIGN_OR_RETURN(channel_, open_channel());
  return Status::ok();
}

Result<ares_channel> DnsChannel::open_channel() {
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

std::optional<DnsChannel::FileState> DnsChannel::look_at_file(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) {
    return std::nullopt;
  }
  return FileState{found.st_dev, found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
}

void DnsChannel::ask(std::string name) {
  ares_addrinfo_hints hints{};
  hints.ai_flags = ARES_AI_NOSORT;  // Sorting opens a socket to every address.
  ++num_queries_;
  // Questions of their own would go through search domains apart, and end at machines of two of them.
  const std::vector<int> families = options_.uses_search_domains ? std::vector<int>{AF_UNSPEC} : std::vector<int>{AF_INET, AF_INET6};
  auto* query = new Query{this, std::move(name), std::chrono::steady_clock::now(), static_cast<int>(families.size())};
  const std::string host = query->name;  // The last answer ends the query, and may come at once.
  for (const int family : families) {
    hints.ai_family = family;
    ares_getaddrinfo(channel_, host.c_str(), nullptr, &hints, &on_family, query);
  }
}

std::vector<std::string> DnsChannel::follow_resolv_conf() {
  if (!options_.servers.empty()) {
    return {};
  }
  const std::optional<FileState> now = look_at_file(options_.resolv_conf);
  if (!now || now == resolv_conf_ || !names_a_server(options_.resolv_conf)) {
    return {};  // The former name servers stay, and the next name looks again.
  }
  const Result<ares_channel> channel = open_channel();
  if (!channel.is_ok()) {
    log_warning("{} has changed and cannot be followed: {}", options_.resolv_conf, channel.status().message());
    return {};
  }
  log_info("{} has changed: names are asked of its name servers from now on", options_.resolv_conf);
  is_moving_ = true;
  ares_destroy(std::exchange(channel_, *channel));  // Which answers all that it was asked for.
  is_moving_ = false;
  return std::exchange(owed_, {});
}

void DnsChannel::wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_event_, &one, sizeof one);
}

void DnsChannel::cancel() { ares_cancel(channel_); }

void DnsChannel::on_socket(void* self, ares_socket_t socket, int is_readable, int is_writable) noexcept {
  const int epoll = static_cast<DnsChannel*>(self)->epoll_;
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

void DnsChannel::drive() {
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

void DnsChannel::on_family(void* argument, int status, int, ares_addrinfo* info) noexcept {
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
  ended->self->end(*ended, std::move(answer));
}

// `answer`: of the family that ended last.
void DnsChannel::end(Query& query, DnsAnswer answer) {
  --num_queries_;
  const auto is_cut = [](const DnsAnswer& one) { return one.kind == DnsAnswer::Kind::kStopped; };
  if (is_moving_ && (is_cut(answer) || (query.other && is_cut(*query.other)))) {
    owed_.push_back(std::move(query.name));  // Of both families.
    return;
  }
  answer = query.other ? of_both(*std::move(query.other), std::move(answer)) : std::move(answer);
  answer.asked_at = query.began;
  on_answer_(query.name, answer, query.ttl);
}

}  // namespace darkroom
