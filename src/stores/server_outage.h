#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/web/http_exchange.h"

namespace darkroom {

/// Whether nobody may have been reached at all: what may be this machine's own network, and a refusal, by which a tunnel or a server that
/// is being started again looks dead.
bool is_out_of_reach(HttpEnd end);

/// One server that answered before, for all who talk to it: when it cannot be reached they wait here until it can. What the log says of
/// that it says once, however many wait.
///
/// Whose request got no answer asks by a probe, something small, whether anybody answers at all: a request that alone gets none is no
/// outage. Nobody waits for ever: `patience` counts from the first sign that the server is out of reach. Thread safety: any thread.
class ServerOutage {
 public:
  /// `server`: in messages, such as "s3://BUCKET"; its scheme is a label of metrics (docs/metrics.md), which may be null.
  ServerOutage(std::string server, Clock& clock, MetricsRegistry* metrics, std::chrono::seconds patience);
  /// REQUIRES: nobody waits.
  ~ServerOutage();
  ServerOutage(const ServerOutage&) = delete;
  ServerOutage& operator=(const ServerOutage&) = delete;

  enum class End {
    kNone,     ///< Somebody answered at once.
    kOver,     ///< It was out of reach, and somebody answers now.
    kTooLong,  ///< Nobody answered for all the patience.
    kStopped,
  };
  /// Asks at once, then after 1 s, 2 s, 4 s, 8 s, and every 10 s from then on; an answer to anybody ends the wait. `probe` tells whether
  /// somebody answered, and ends early at a stop. `why`: what the log gives as the reason.
  End outlast(const std::function<bool()>& probe, const std::string& why, const std::stop_token& stop);
  /// Somebody got an answer from the server, of whatever kind.
  void note_answer();

 private:
  bool end_here(Clock::Instant now);
  int64_t num_answers();
  void begin_here(Clock::Instant since, const std::string& why);
  End outlast_here(const std::function<bool()>& probe, const std::string& why, const std::stop_token& stop);

  const std::string server_;
  Clock& clock_;
  MetricsRegistry* const metrics_;
  const std::chrono::seconds patience_;
  std::mutex mutex_;  // Guards what follows.
  std::condition_variable_any changed_;
  std::optional<Clock::Instant> out_since_;
  int num_waiting_ = 0;
  int64_t num_answers_ = 0;
  int64_t num_ended_ = 0;
};

}  // namespace darkroom
