#include <string>

#include "darkroom/core/check.h"
#include "darkroom/files/local_path.h"
#include "darkroom/stores/stores.h"
#include "darkroom/web/opt_out.h"
#include "darkroom/web/path_rules.h"
#include "darkroom/web/robots.h"
#include "darkroom/web/url_hop.h"
#include "fuzz/fuzz_targets.h"

namespace darkroom {
namespace {

struct FirstLine {
  std::string_view line;
  std::string_view rest;
};

FirstLine split_line(std::string_view bytes) {
  const size_t end = bytes.find('\n');
  return end == std::string_view::npos ? FirstLine{bytes, {}} : FirstLine{bytes.substr(0, end), bytes.substr(end + 1)};
}

/// What was taken once stays as it is.
void check_hop(const UrlHop& hop, const HopPolicy& policy) {
  const RowResult<UrlHop> again = UrlHop::parse(hop.url(), policy);
  DARKROOM_CHECK(again.is_ok(), "a URL of ours is refused:", hop.url(), again.error().detail);
  DARKROOM_CHECK(again->url() == hop.url() && again->host() == hop.host() && again->port() == hop.port(),
                 "a URL of ours changes:", hop.url(), again->url());
  DARKROOM_CHECK(hop.has_same_origin(*again) && policy.may_allow(hop.port()) && !hop.host().empty(), "an origin:", hop.url());
  for (const char c : hop.url()) {
    DARKROOM_CHECK(c > ' ' && c != '\x7f', "a character that no URL has:", hop.url());
  }
}

}  // namespace

void fuzz_robots(std::string_view bytes) {
  const auto [path, text] = split_line(bytes);
  const RobotsRules rules = RobotsRules::parse(text, "darkroom");
  (void)rules.allows(path);
  (void)rules.trains(path);
  DARKROOM_CHECK(rules.allows("/robots.txt"), "robots.txt itself is forbidden");
  const std::string canonical = canonical_path(path);
  DARKROOM_CHECK(canonical.starts_with('/') && canonical_path(canonical) == canonical, "a canonical path changes:", canonical);
  (void)training_preference(path);
  (void)header_opt_out("X-Robots-Tag", path, {.robots = true, .noai = true, .aipref = true}, "darkroom");
}

void fuzz_url(std::string_view bytes) {
  const auto [url, location] = split_line(bytes);
  const HopPolicy policy({}, {80, 443, 8080});
  const RowResult<UrlHop> hop = UrlHop::parse(url, policy);
  if (hop.is_ok()) {
    check_hop(*hop, policy);
    if (const RowResult<UrlHop> next = hop->follow(location, policy); next.is_ok()) {
      check_hop(*next, policy);
    }
  }
  (void)local_path(std::string(url));
}

}  // namespace darkroom
