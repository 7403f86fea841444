#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "darkroom/web/opt_out.h"
#include "darkroom/web/robots.h"
#include "darkroom/web/url_hop.h"

namespace darkroom {

/// What came of a robots.txt (RFC 9309, section 2.3.1): its rules; that there is none, so everything is allowed (4xx, redirects that lead
/// nowhere); or why that is not known, which ends the rows of its origin.
struct NoRobotsFile {};
using RobotsAnswer = std::variant<RobotsRules, NoRobotsFile, RowError>;

/// Reads the reply to a request for robots.txt.
RobotsAnswer read_robots_reply(const RowResult<std::string>& body, std::string_view agent);

/// The answers of the origins asked lately, and the rows that wait for one. An answer is kept for a day, an unknown one for ten minutes.
/// Pure: `now` is an argument. Thread safety: one thread at a time.
class RobotsFiles {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::hours kLife{24};
  static constexpr std::chrono::minutes kUnknownLife{10};

  explicit RobotsFiles(OptOutRules respect, size_t max_origins = 100'000, size_t max_bytes = 64 << 20)
      : respect_(respect), max_origins_(max_origins), max_bytes_(max_bytes) {}

  struct Verdict {
    enum class Kind {
      kAllowed,
      kRefused,  ///< `error` says why.
      kAsk,      ///< The row waits: fetch robots_url(), then tell().
      kWait,     ///< The row waits for a file that is on its way.
    };
    Kind kind = Kind::kAllowed;
    std::optional<RowError> error = std::nullopt;
  };
  Verdict ask(const UrlHop& hop, uint64_t row, Instant now);
  /// The rows that waited for it, in their order: to be asked again.
  std::vector<uint64_t> tell(const std::string& origin, RobotsAnswer answer, Instant now);

  static std::string origin_of(const UrlHop& hop);  ///< "https://example.org:8080", as it stands in the URL.
  static std::string robots_url(const UrlHop& hop) { return origin_of(hop) + "/robots.txt"; }

  size_t num_kept() const { return kept_.size(); }

 private:
  struct Kept {
    std::string origin;
    RobotsAnswer answer;
    Instant until;
    size_t num_bytes() const;
  };
  Verdict judge(const RobotsAnswer& answer, const UrlHop& hop) const;
  void drop(std::list<Kept>::iterator kept);

  const OptOutRules respect_;
  const size_t max_origins_;
  const size_t max_bytes_;
  std::list<Kept> kept_;  // The one that was asked for last comes first.
  std::unordered_map<std::string, std::list<Kept>::iterator> by_origin_;
  size_t num_bytes_ = 0;
  std::unordered_map<std::string, std::vector<uint64_t>> waiting_;
};

}  // namespace darkroom
