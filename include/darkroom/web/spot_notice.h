#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "darkroom/core/clock.h"
#include "darkroom/core/result.h"
#include "darkroom/web/http_client.h"

namespace darkroom {

/// Where a machine learns that it is about to be taken back.
struct SpotSource {
  enum class Kind {
    kFile,  ///< There when the machine is to go: for agents that know more.
    kUrl,   ///< Answers 200 when the machine is to go, anything else before.
    kAws,   ///< EC2's instance metadata: spot/instance-action, with a token of version 2 where it gives one.
    kGcp,   ///< Compute Engine's instance metadata: preempted.
  };
  Kind kind = Kind::kFile;
  std::string place;  ///< A path; a URL; the metadata service's "http://HOST[:PORT]".

  /// "aws" or "gcp" in any case, an http or https URL, or a path: a name without '/' only of a file that is there, because any other is a
  /// slip of one of the words. The metadata services are those that AWS_EC2_METADATA_SERVICE_ENDPOINT and GCE_METADATA_HOST name, as their
  /// own tools have it, else the usual ones.
  /// Errors: kInvalidArgument (none of these).
  static Result<SpotSource> parse(const std::string& text);
};

/// Asks once: what the notice says, for people; nothing: there is none. Errors: kUnavailable (no answer), kCancelled.
Result<std::optional<std::string>> ask_for_spot_notice(const SpotSource& source, HttpClient& http, const std::stop_token& stop);

/// Asks every `period` until there is a notice, tells it once, and asks no more. A source that gives no answer is told once as a warning
/// and asked again. Thread safety: none; `on_notice` is called by a thread of the watch.
class SpotWatch {
 public:
  static constexpr std::chrono::seconds kPeriod{5};

  /// `http` and `clock` outlive the watch.
  SpotWatch(SpotSource source, HttpClient& http, Clock& clock, std::function<void(const std::string& notice)> on_notice);
  ~SpotWatch() = default;
  SpotWatch(const SpotWatch&) = delete;
  SpotWatch& operator=(const SpotWatch&) = delete;

 private:
  void watch(const std::stop_token& stop);

  const SpotSource source_;
  HttpClient& http_;
  Clock& clock_;
  const std::function<void(const std::string&)> on_notice_;
  std::jthread thread_;  // The last member: it uses the others.
};

}  // namespace darkroom
