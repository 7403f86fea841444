#include "darkroom/slices/slice_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/web/listen_failure.h"
#include "slice_connection.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAcceptPause{100};  // When there are no descriptors left.
constexpr int kAcceptBacklog = 64;
constexpr int64_t kMostStrangers = 64;  // Connections that have not said their hello, or are being told why they are not served.

// A trainer's machine that is gone says no word: the system asks after it.
void keep_alive(int descriptor) {
  const int yes = 1, idle_seconds = 30, between_seconds = 10, probes = 6;
  setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &between_seconds, sizeof between_seconds);
  setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

}  // namespace

Result<SocketAddress> parse_listen_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon == std::string_view::npos ? 0 : colon);
  const std::string_view digits = text.substr(colon == std::string_view::npos ? 0 : colon + 1);
  if (host == "localhost") {
    host = "127.0.0.1";
  }
  const bool is_bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const auto ip = IpAddress::parse(is_bracketed ? host.substr(1, host.size() - 2) : host);
  uint16_t port = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (!ip || ip->is_ipv4 == is_bracketed || failure != std::errc() || end != digits.data() + digits.size()) {
    return Status::invalid_argument("--listen is ADDRESS:PORT, such as 127.0.0.1:0, 0.0.0.0:7000 or [::1]:7000, got:", text);
  }
  return SocketAddress{.ip = *ip, .port = port};
}

Status check_listening(const SocketAddress& address, std::string_view token) {
  constexpr uint8_t kLoopbackNetwork = 127;
  const IpAddress& ip = address.ip;
  const bool is_loopback = ip.is_ipv4 ? ip.bytes[0] == kLoopbackNetwork : ip.to_string() == "::1";
  if (!token.empty() || is_loopback) {
    return {};
  }
  return Status::invalid_argument(
      "whoever reaches this address could read the dataset; set DARKROOM_ENCODER_TOKEN, here and for those who ask, or listen on loopback:",
      address.to_string());
}

Status SliceServerOptions::validate() const {
  for (const auto& [name, value] :
       {std::pair("num_rows", num_rows), std::pair("rows_together", rows_together), std::pair("max_rows", max_rows),
        std::pair("num_workers", int64_t{num_workers}), std::pair("max_connections", int64_t{max_connections})}) {
    if (value < 1) {
      return Status::invalid_argument("a field of the service of slices must be at least 1 (field, value):", name, value);
    }
  }
  if (max_in_flight < 0) {
    return Status::invalid_argument("max_in_flight of the service of slices must be at least 0:", max_in_flight);
  }
  if (handshake_timeout < milliseconds(1) || send_timeout < milliseconds(1)) {
    return Status::invalid_argument("time-outs of the service of slices must be at least 1 ms, got (handshake, send, in ms):",
                                    handshake_timeout.count(), send_timeout.count());
  }
  return {};
}

/// Everything that the one thread does. Connections belong to it; workers leave their answers in a list that it is woken for.
class SliceServer::Loop {
 public:
  explicit Loop(const SliceServerOptions& options) : options_(options) {
    options_.max_in_flight = options.max_in_flight > 0 ? options.max_in_flight : options.num_workers + 1;
  }
  ~Loop() {
    connections_.clear();
    workers_.reset();  // Its threads wake this one.
    for (const int descriptor : {listener_, wake_event_}) {
      if (descriptor >= 0) {
        ::close(descriptor);
      }
    }
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void start_workers(SliceMaker make) {
    workers_ = std::make_unique<SliceWorkers>(
        options_.num_workers, std::move(make),
        [this](uint64_t connection, std::string frame) { take_answer(connection, std::move(frame)); }, [this] { wake(); });
  }

  Result<SocketAddress> listen() {
    const std::string task = fmt::format("listen for {}s", options_.names.asker);
    const ListenerWords words{.task = task, .port_flag = "--listen", .address_flag = "--listen"};
    wake_event_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_event_ < 0) {
      return listen_failure(options_.address, errno, words);
    }
    DARKROOM_ASSIGN_OR_RETURN(const Listener listener, open_listener(options_.address, kAcceptBacklog, words));
    listener_ = listener.descriptor;
    return listener.address;
  }

  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_event_, &one, sizeof one);  // Full: it is awake anyway.
  }

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> watched = watch();
      if (poll(watched.data(), watched.size(), milliseconds_to_next()) < 0 && errno != EINTR) {
        log_error("{}s are served no longer: waiting for them failed: {}", options_.names.asker, std::generic_category().message(errno));
        break;
      }
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t cleared = ::read(wake_event_, &count, sizeof count);
      hand_out_answers();
      serve_all(watched);
      if (watched[1].revents != 0) {
        try {
          accept_one();
        } catch (const std::exception& failure) {
          log_warning("a connection could not be taken: {}", failure.what());
        }
      }
      note_drained();
    }
    const std::lock_guard lock(mutex_);
    is_drained_ = true;  // As far as it ever will be.
    drained_.notify_all();
  }

  bool drain(milliseconds patience) {
    std::unique_lock lock(mutex_);
    is_draining_ = true;
    wake();
    return drained_.wait_for(lock, patience, [&] { return is_drained_; });
  }

  SliceServerCounts counts() const { return workers_->counts(); }

 private:
  using Clock = std::chrono::steady_clock;

  bool is_draining() {
    const std::lock_guard lock(mutex_);
    return is_draining_;
  }

  void take_answer(uint64_t connection, std::string frame) {
    const std::lock_guard lock(mutex_);
    answers_.emplace_back(connection, std::move(frame));
    wake();
  }

  /// An answer to a connection that is over goes nowhere.
  void hand_out_answers() {
    std::vector<std::pair<uint64_t, std::string>> answers;
    {
      const std::lock_guard lock(mutex_);
      answers.swap(answers_);
    }
    for (auto& [number, frame] : answers) {
      const auto found = std::ranges::find(connections_, number, [](const auto& connection) { return connection->number(); });
      if (found != connections_.end()) {
        (*found)->send_answer(std::move(frame));
      }
    }
  }

  /// The wake event, the listener, then the connections in their order.
  std::vector<pollfd> watch() {
    const bool drains = is_draining();
    if (drains) {
      workers_->forget_all();
    }
    const bool accepts = !drains && Clock::now() >= accepts_after_;
    std::vector<pollfd> watched = {{wake_event_, POLLIN, 0}, {accepts ? listener_ : -1, POLLIN, 0}};
    for (const auto& connection : connections_) {
      const int reads = !drains && connection->wants_to_read() ? POLLIN : 0;
      watched.push_back({connection->descriptor(), static_cast<short>(reads | (connection->wants_to_write() ? POLLOUT : 0)), 0});
    }
    return watched;
  }

  int milliseconds_to_next() const {
    const Clock::time_point now = Clock::now();
    auto next = now < accepts_after_ ? accepts_after_ : Clock::time_point::max();
    for (const auto& connection : connections_) {
      next = std::min(next, connection->next_look());
    }
    if (next == Clock::time_point::max()) {
      return -1;
    }
    return static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<milliseconds>(next - now).count()));
  }

  void serve_all(const std::vector<pollfd>& watched) {
    size_t i = 2;
    for (auto it = connections_.begin(); it != connections_.end(); ++i) {
      it = is_served(**it, watched[i].revents) ? std::next(it) : connections_.erase(it);
    }
  }

  /// An exception (no memory) is one connection's: whoever wanted its slices asks elsewhere. False: the connection is over.
  static bool is_served(SliceConnection& connection, int events) {
    try {
      connection.say_working();
      return serve(connection, events);
    } catch (const std::exception& failure) {
      log_warning("a connection of whoever asks for slices is given up: {}", failure.what());
      return false;
    }
  }

  /// False: the connection is over.
  static bool serve(SliceConnection& connection, int events) {
    if (Clock::now() >= connection.deadline()) {
      return false;
    }
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0 && !connection.wants_to_write() && !connection.wants_to_read()) {
      return (events & (POLLHUP | POLLERR)) == 0;  // Gone, with requests that nobody waits for.
    }
    return ((events & (POLLIN | POLLHUP | POLLERR)) == 0 || connection.read()) && (!connection.wants_to_write() || connection.write());
  }

  /// Takes the descriptor, also when it throws.
  std::unique_ptr<SliceConnection> connect(int descriptor) {
    try {
      return std::make_unique<SliceConnection>(++num_accepted_, descriptor, options_, *workers_, refusals_,
                                               [this] { return num_serving() < options_.max_connections; });
    } catch (...) {
      ::close(descriptor);
      throw;
    }
  }

  int64_t num_serving() const {
    return std::ranges::count_if(connections_, [](const auto& connection) { return connection->is_serving(); });
  }

  /// Whoever says nothing keeps no trainer out: of as many as may be, the one that has been silent for longest goes.
  void make_room_for_stranger() {
    if (static_cast<int64_t>(connections_.size()) - num_serving() < kMostStrangers) {
      return;
    }
    auto oldest = std::ranges::find_if(connections_, [](const auto& connection) { return connection->is_greeting(); });
    if (oldest == connections_.end()) {
      oldest = std::ranges::find_if(connections_, [](const auto& connection) { return !connection->is_serving(); });
    }
    connections_.erase(oldest);
  }

  void accept_one() {
    const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (descriptor < 0) {
      const bool is_passing = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
      accepts_after_ = is_passing ? accepts_after_ : Clock::now() + kAcceptPause;
      return;
    }
    keep_alive(descriptor);
    make_room_for_stranger();
    connections_.push_back(connect(descriptor));
    if (!connections_.back()->write()) {
      connections_.pop_back();
    }
  }

  void note_drained() {
    const std::lock_guard lock(mutex_);
    const bool is_sent = std::ranges::none_of(connections_, [](const auto& connection) { return connection->wants_to_write(); });
    if (is_draining_ && workers_->is_idle() && answers_.empty() && is_sent) {
      for (const auto& connection : connections_) {
        connection->end();
      }
      connections_.clear();
      is_drained_ = true;
      drained_.notify_all();
    }
  }

  SliceServerOptions options_;
  int wake_event_ = -1;
  int listener_ = -1;
  uint64_t num_accepted_ = 0;
  Clock::time_point accepts_after_{};
  std::mutex mutex_;
  std::condition_variable drained_;
  std::vector<std::pair<uint64_t, std::string>> answers_;  // Guarded by mutex_, like the two below.
  bool is_draining_ = false;
  bool is_drained_ = false;
  std::unique_ptr<SliceWorkers> workers_;
  RefusalLog refusals_;
  std::list<std::unique_ptr<SliceConnection>> connections_;
};

Result<std::unique_ptr<SliceServer>> SliceServer::start(const SliceServerOptions& options, SliceMaker make) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  try {
    auto loop = std::make_unique<Loop>(options);
    DARKROOM_ASSIGN_OR_RETURN(const SocketAddress address, loop->listen());
    loop->start_workers(std::move(make));
    return std::unique_ptr<SliceServer>(new SliceServer(address, std::move(loop)));
  } catch (const std::system_error& failure) {
    return Status::resource_exhausted("cannot start the threads of the service of slices (reason):", failure.what());
  }
}

SliceServer::SliceServer(SocketAddress address, std::unique_ptr<Loop> loop)
    : address_(address), loop_(std::move(loop)), thread_([running = loop_.get()](const std::stop_token& stop) { running->run(stop); }) {}

SliceServer::~SliceServer() {
  thread_.request_stop();
  loop_->wake();
  thread_.join();
}

bool SliceServer::drain(std::chrono::milliseconds patience) { return loop_->drain(patience); }

SliceServerCounts SliceServer::counts() const { return loop_->counts(); }

}  // namespace darkroom
