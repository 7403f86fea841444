#pragma once

#include <ares.h>
#include <sys/types.h>

#include <chrono>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "darkroom/core/result.h"
#include "darkroom/web/resolver.h"

namespace darkroom {

/// A c-ares channel driven by epoll: questions for the addresses of names, on their way to name servers, and which servers these are.
/// Knows neither cache nor hosts file. Thread safety: one thread drives, which calls all but wake(); that may be called by any.
class DnsChannel {
 public:
  /// Once for each name that was asked for, within a call of drive(), ask() or cancel(): what the questions for both families say together,
  /// with asked_at, and the shortest time to live of its records (of none: seconds::max()). It does not throw.
  using OnAnswer = std::function<void(const std::string& name, const DnsAnswer& answer, std::chrono::seconds ttl)>;

  /// `options` outlive the channel.
  DnsChannel(const ResolverOptions& options, OnAnswer on_answer) : options_(options), on_answer_(std::move(on_answer)) {}
  /// REQUIRES: every name has its answer.
  ~DnsChannel();
  DnsChannel(const DnsChannel&) = delete;
  DnsChannel& operator=(const DnsChannel&) = delete;

  /// Before all else. Errors: kInvalidArgument (servers), kUnavailable (c-ares or descriptors).
  Status open();
  void ask(std::string name);
  /// Asks other name servers from now on, if resolv_conf has changed and names some. Gives the names that the former ones owed an answer:
  /// nobody asks for them any more.
  std::vector<std::string> follow_resolv_conf();
  /// Waits for an answer, a time limit of c-ares, or wake(); then does what there is to do.
  void drive();
  /// Ends the drive() that waits now, or the next one.
  void wake();
  /// Answers kStopped to all that is on its way.
  void cancel();

  int num_queries() const { return num_queries_; }  ///< Names on their way.

 private:
  struct Query {
    DnsChannel* self;
    std::string name;
    std::chrono::steady_clock::time_point began;
    int num_open;  // Of each family one: of both together c-ares only tells how the last one ended. With search domains one of both.
    std::optional<DnsAnswer> other = std::nullopt;
    std::chrono::seconds ttl = std::chrono::seconds::max();
  };
  /// Device, inode, size and time of the last change: who writes a file anew, or puts another one in its place, changes one of them.
  using FileState = std::tuple<dev_t, ino_t, off_t, time_t, long>;

  static std::optional<FileState> look_at_file(const std::string& path);
  static void on_socket(void* self, ares_socket_t socket, int is_readable, int is_writable) noexcept;
  static void on_family(void* query, int status, int num_timeouts, ares_addrinfo* info) noexcept;
  Result<ares_channel> open_channel();
  void end(Query& query, DnsAnswer answer);

  const ResolverOptions& options_;
  const OnAnswer on_answer_;
  ares_channel channel_ = nullptr;
  int epoll_ = -1;
  int wake_event_ = -1;
  int num_queries_ = 0;
  std::optional<FileState> resolv_conf_;  // As it was when the channel was opened.
  bool is_moving_ = false;                // The channel ends, and its names are for the next one:
  std::vector<std::string> owed_;         // these.
};

}  // namespace darkroom
