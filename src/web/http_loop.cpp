#include "darkroom/web/http_loop.h"

#include <curl/curl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"
#include "http_multi.h"
#include "http_transfer.h"

namespace darkroom {
namespace {

using HttpInstant = HttpTransfer::Instant;

constexpr size_t kMaxIdleTransfers = 4'096;  // Easy handles kept for the next exchange: about 6 KB each, their buffers freed.

Result<std::string> trusted_roots(const HttpLoopOptions& options) {
  std::string path = options.certificate_authorities;
  const char* named = std::getenv("SSL_CERT_FILE");  // OpenSSL's own, which Python and curl follow, too.
  if (path.empty() && named != nullptr) {
    path = named;
  }
  if (path.empty()) {
    const char* built_in = curl_version_info(CURLVERSION_NOW)->cainfo;
    path = built_in != nullptr ? built_in : "/etc/ssl/certs/ca-certificates.crt";
  }
  if (access(path.c_str(), R_OK) != 0 && named != nullptr && path == named) {
    return Status::not_found("SSL_CERT_FILE names no file of certificate authorities that can be read:", path);
  }
  if (access(path.c_str(), R_OK) != 0) {
    return Status::not_found(
        "no trusted certificate authorities for https; install the package ca-certificates, or let SSL_CERT_FILE "
        "name a PEM file:",
        path);
  }
  return path;
}

struct HttpLoopMetrics {
  explicit HttpLoopMetrics(MetricsRegistry& metrics)
      : connections(metrics.counter("darkroom_http_connections_total", "Sockets opened by the HTTP loops.")),
        bytes(metrics.counter("darkroom_http_received_bytes_total", "Bytes of bodies that the HTTP loops received.")),
        active(metrics.gauge("darkroom_http_active", "HTTP exchanges on the wire or paused.")) {
    for (size_t i = 0; i < ends.size(); ++i) {
      ends[i] = &metrics.counter("darkroom_http_requests_total", "HTTP exchanges that ended, by how.",
                                 {{"result", std::string(http_end_name(static_cast<HttpEnd>(i)))}});
    }
  }

  std::array<Counter*, static_cast<size_t>(HttpEnd::kInternal) + 1> ends{};
  Counter& connections;
  Counter& bytes;
  Gauge& active;
};

}  // namespace

Status HttpLoopOptions::validate() const {
  if (num_kept_connections < 1 || num_kept_connections > 1'000'000) {
    return Status::invalid_argument("num_kept_connections must be between 1 and 1000000:", num_kept_connections);
  }
  return Status::ok();
}

class HttpLoop::Thread {
 public:
  Thread(std::string certificate_authorities, MetricsRegistry& metrics)
      : certificate_authorities_(std::move(certificate_authorities)), metrics_(metrics) {}
  ~Thread();
  Status start(const HttpLoopOptions& options);

  ExchangeId begin(HttpRequest request, HttpSink& sink, std::function<void(HttpResult)> done);
  void tell(ExchangeId id, bool is_cancel);
  Status failure() const;

 private:
  struct Command {
    enum class Kind { kBegin, kResume, kCancel };
    Kind kind = Kind::kBegin;
    ExchangeId id = 0;
    HttpRequest request = {};
    HttpSink* sink = nullptr;
    std::function<void(HttpResult)> done = nullptr;
  };

  void run();
  void step();
  void end_all(HttpEnd end, const std::string& detail);
  bool take_commands();
  void obey(Command& command);
  void begin_exchange(Command& command);
  void put_timer(HttpTransfer* transfer, std::optional<HttpInstant> at);
  void fire_timers();
  void deliver(HttpTransfer* transfer, HttpResult result);
  void cut(HttpTransfer* transfer, HttpEnd end, std::string detail);

  const std::string certificate_authorities_;
  HttpLoopMetrics metrics_;
  std::unique_ptr<HttpMulti> multi_;

  // Of the thread.
  std::unordered_map<ExchangeId, std::unique_ptr<HttpTransfer>> active_;  // Each in the multi handle.
  std::vector<std::unique_ptr<HttpTransfer>> idle_;
  std::set<std::pair<HttpInstant, HttpTransfer*>> timers_;
  std::vector<Command> taken_;

  // Shared with callers.
  mutable std::mutex mutex_;
  std::vector<Command> commands_;
  ExchangeId last_id_ = 0;
  bool is_stopping_ = false;
  std::optional<std::string> broken_;  // Why the thread has ended by itself.

  std::jthread thread_;  // Last: ends before what it uses.
};

Status HttpLoop::Thread::start(const HttpLoopOptions& options) {
  DARKROOM_ASSIGN_OR_RETURN(multi_, HttpMulti::create(options.num_kept_connections));
  try {
    thread_ = std::jthread([this] { run(); });
  } catch (const std::system_error& failure) {
    return Status::resource_exhausted("cannot start a thread for HTTP:", failure.what());
  }
  return Status::ok();
}

HttpLoop::Thread::~Thread() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  if (thread_.joinable()) {
    multi_->wake();
    thread_.join();
  }
}

ExchangeId HttpLoop::Thread::begin(HttpRequest request, HttpSink& sink, std::function<void(HttpResult)> done) {
  HttpResult refused{.end = HttpEnd::kInternal};
  {
    const std::lock_guard lock(mutex_);
    refused.id = ++last_id_;
    if (!broken_) {
      commands_.push_back({Command::Kind::kBegin, refused.id, std::move(request), &sink, std::move(done)});
      multi_->wake();
      return refused.id;
    }
    refused.detail = *broken_;
  }
  metrics_.ends[static_cast<size_t>(refused.end)]->add();
  const ExchangeId id = refused.id;
  done(std::move(refused));
  return id;
}

void HttpLoop::Thread::tell(ExchangeId id, bool is_cancel) {
  const std::lock_guard lock(mutex_);
  commands_.push_back({is_cancel ? Command::Kind::kCancel : Command::Kind::kResume, id});
  multi_->wake();
}

Status HttpLoop::Thread::failure() const {
  const std::lock_guard lock(mutex_);
  return broken_ ? Status::internal("the HTTP loop stopped:", *broken_) : Status::ok();
}

void HttpLoop::Thread::run() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);  // TLS writes to a closed connection raise it.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  try {
    while (take_commands()) {
      step();
    }
  } catch (const std::exception& failure) {
    log_error("the HTTP loop stopped: {}", failure.what());
    {
      const std::lock_guard lock(mutex_);
      broken_ = failure.what();
    }
    end_all(HttpEnd::kInternal, failure.what());
    return;
  }
  end_all(HttpEnd::kCancelled, "the loop ends");
}

// False: the loop shall end.
bool HttpLoop::Thread::take_commands() {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) {
      return false;
    }
    taken_.swap(commands_);
  }
  for (Command& command : taken_) {
    obey(command);
  }
  taken_.clear();
  return true;
}

void HttpLoop::Thread::step() {
  multi_->drive(timers_.empty() ? std::nullopt : std::optional(timers_.begin()->first));
  while (const auto finished = multi_->take_finished()) {
    HttpTransfer* transfer = HttpTransfer::of(finished->first);
    deliver(transfer, transfer->finish(finished->second, std::chrono::steady_clock::now()));
  }
  fire_timers();
}

// Nothing is under way behind it, also not what callbacks have begun meanwhile.
void HttpLoop::Thread::end_all(HttpEnd end, const std::string& detail) {
  for (;;) {
    while (!active_.empty()) {
      cut(active_.begin()->second.get(), end, detail);
    }
    if (taken_.empty()) {
      const std::lock_guard lock(mutex_);
      taken_.swap(commands_);
    }
    if (taken_.empty()) {
      return;
    }
    for (Command& command : std::exchange(taken_, {})) {
      if (command.kind == Command::Kind::kBegin && command.done) {
        metrics_.ends[static_cast<size_t>(end)]->add();
        command.done({.id = command.id, .end = end, .detail = detail});
      }
    }
  }
}

void HttpLoop::Thread::obey(Command& command) {
  if (command.kind == Command::Kind::kBegin) {
    begin_exchange(command);
    return;
  }
  const auto found = active_.find(command.id);
  if (found == active_.end()) {
    return;
  }
  if (command.kind == Command::Kind::kCancel) {
    cut(found->second.get(), HttpEnd::kCancelled, "on request");
    return;
  }
  const HttpInstant now = std::chrono::steady_clock::now();
  HttpTransfer* transfer = found->second.get();
  if (const CURLcode code = transfer->resume(now); code != CURLE_OK) {  // libcurl itself would forget this end.
    multi_->remove(transfer->handle());
    deliver(transfer, transfer->finish(code, now));
    return;
  }
  put_timer(transfer, transfer->next_check(now));
}

void HttpLoop::Thread::begin_exchange(Command& command) {
  if (idle_.empty()) {
    idle_.push_back(std::make_unique<HttpTransfer>(certificate_authorities_));
  }
  std::unique_ptr<HttpTransfer> owned = std::move(idle_.back());
  idle_.pop_back();
  HttpTransfer* transfer = owned.get();
  active_.emplace(command.id, std::move(owned));
  metrics_.active.add(1);
  const HttpInstant now = std::chrono::steady_clock::now();
  if (!transfer->begin(command.id, std::move(command.request), *command.sink, std::exchange(command.done, nullptr), now)) {
    deliver(transfer, transfer->finish(CURLE_OK, now));
    return;
  }
  multi_->add(transfer->handle());
  put_timer(transfer, transfer->next_check(now));
}

void HttpLoop::Thread::put_timer(HttpTransfer* transfer, std::optional<HttpInstant> at) {
  if (transfer->timer_at) {
    timers_.erase({*transfer->timer_at, transfer});
  }
  transfer->timer_at = at;
  if (at) {
    timers_.emplace(*at, transfer);
  }
}

// A transfer's limits move with every byte, its timer does not: it is set anew only when it fires.
void HttpLoop::Thread::fire_timers() {
  const HttpInstant now = std::chrono::steady_clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    HttpTransfer* transfer = timers_.begin()->second;
    if (const auto end = transfer->expired(now)) {
      cut(transfer, *end, "a time limit has passed");
    } else {
      put_timer(transfer, transfer->next_check(now));
    }
  }
}

void HttpLoop::Thread::cut(HttpTransfer* transfer, HttpEnd end, std::string detail) {
  multi_->remove(transfer->handle());
  deliver(transfer, transfer->finish(end, std::move(detail), std::chrono::steady_clock::now()));
}

// REQUIRES: the handle is not in the multi handle.
void HttpLoop::Thread::deliver(HttpTransfer* transfer, HttpResult result) {
  put_timer(transfer, std::nullopt);
  metrics_.ends[static_cast<size_t>(result.end)]->add();
  metrics_.connections.add(transfer->take_num_connections());
  metrics_.bytes.add(result.num_bytes);
  metrics_.active.add(-1);
  const auto done = transfer->take_done();
  const auto found = active_.find(transfer->id());
  if (idle_.size() < kMaxIdleTransfers) {
    idle_.push_back(std::move(found->second));
  }
  active_.erase(found);
  done(std::move(result));
}

Result<std::unique_ptr<HttpLoop>> HttpLoop::start(const HttpLoopOptions& options, MetricsRegistry& metrics) {
  DARKROOM_RETURN_IF_ERROR(options.validate());
  static std::once_flag is_initialised;
  std::call_once(is_initialised, [] { DARKROOM_CHECK(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK, "libcurl does not start"); });
  DARKROOM_ASSIGN_OR_RETURN(std::string roots, trusted_roots(options));
  auto thread = std::make_unique<Thread>(std::move(roots), metrics);
  DARKROOM_RETURN_IF_ERROR(thread->start(options));
  return std::unique_ptr<HttpLoop>(new HttpLoop(std::move(thread)));
}

HttpLoop::HttpLoop(std::unique_ptr<Thread> thread) : thread_(std::move(thread)) {}
HttpLoop::~HttpLoop() = default;

ExchangeId HttpLoop::begin(HttpRequest request, HttpSink& sink, std::function<void(HttpResult)> done) {
  return thread_->begin(std::move(request), sink, std::move(done));
}
void HttpLoop::resume(ExchangeId id) { thread_->tell(id, false); }
void HttpLoop::cancel(ExchangeId id) { thread_->tell(id, true); }
Status HttpLoop::failure() const { return thread_->failure(); }

}  // namespace darkroom
