#include "robots_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace darkroom {
namespace {

std::string path_of(const UrlHop& hop) {
  std::string path = hop.url().substr(RobotsFiles::origin_of(hop).size());
  return path.starts_with('/') ? path : "/" + path;
}

}  // namespace

RobotsAnswer read_robots_reply(const RowResult<std::string>& body, std::string_view agent) {
  if (body.is_ok()) {
    return RobotsRules::parse(*body, agent);
  }
  const RowError& error = body.error();
  switch (error.code) {
    case RowErrorCode::kHttpStatus:
      if (error.http_status == 429 || error.http_status >= 500) {
        return RowError{RowErrorCode::kOptedOut, 0, fmt::format("robots.txt cannot be read: {}", error.name())};
      }
      return NoRobotsFile();
    case RowErrorCode::kTooManyRedirects:
    case RowErrorCode::kBadUrl:  // Of a redirect, as the next two.
    case RowErrorCode::kBlockedHost:
      return NoRobotsFile();
    case RowErrorCode::kDns:
    case RowErrorCode::kConnect:
    case RowErrorCode::kTls:
    case RowErrorCode::kTimeout:
      return error;
    default:
      return RowError{RowErrorCode::kOptedOut, 0, fmt::format("robots.txt cannot be read: {}", error.name())};
  }
}

std::string RobotsFiles::origin_of(const UrlHop& hop) {
  const size_t host = hop.url().find("://") + 3;
  return hop.url().substr(0, hop.url().find_first_of("/?", host));
}

size_t RobotsFiles::Kept::num_bytes() const {
  const auto* rules = std::get_if<RobotsRules>(&answer);
  return sizeof(Kept) + 2 * origin.size() + (rules != nullptr ? rules->num_bytes() : 0);
}

RobotsFiles::Verdict RobotsFiles::judge(const RobotsAnswer& answer, const UrlHop& hop) const {
  if (const auto* unknown = std::get_if<RowError>(&answer)) {
    return {Verdict::Kind::kRefused, *unknown};
  }
  if (const auto* rules = std::get_if<RobotsRules>(&answer)) {
    const std::string path = path_of(hop);
    if (respect_.robots && !rules->allows(path)) {
      return {Verdict::Kind::kRefused, RowError{RowErrorCode::kOptedOut, 0, "robots.txt"}};
    }
    if (respect_.aipref && rules->trains(path) == false) {
      return {Verdict::Kind::kRefused, RowError{RowErrorCode::kOptedOut, 0, "a usage preference in robots.txt"}};
    }
  }
  return {};
}

RobotsFiles::Verdict RobotsFiles::ask(const UrlHop& hop, uint64_t row, Instant now) {
  const std::string origin = origin_of(hop);
  if (const auto found = by_origin_.find(origin); found != by_origin_.end()) {
    if (now < found->second->until) {
      kept_.splice(kept_.begin(), kept_, found->second);
      return judge(kept_.front().answer, hop);
    }
    drop(found->second);
  }
  std::vector<uint64_t>& rows = waiting_[origin];
  rows.push_back(row);
  return {rows.size() == 1 ? Verdict::Kind::kAsk : Verdict::Kind::kWait, std::nullopt};
}

std::vector<uint64_t> RobotsFiles::tell(const std::string& origin, RobotsAnswer answer, Instant now) {
  const bool is_unknown = std::holds_alternative<RowError>(answer);
  kept_.push_front({origin, std::move(answer), now + (is_unknown ? std::chrono::seconds(kUnknownLife) : std::chrono::seconds(kLife))});
  num_bytes_ += kept_.front().num_bytes();
  by_origin_[origin] = kept_.begin();
  while (kept_.size() > 1 && (kept_.size() > max_origins_ || num_bytes_ > max_bytes_)) {
    drop(std::prev(kept_.end()));
  }
  auto node = waiting_.extract(origin);
  return node ? std::move(node.mapped()) : std::vector<uint64_t>();
}

void RobotsFiles::drop(std::list<Kept>::iterator kept) {
  num_bytes_ -= kept->num_bytes();
  by_origin_.erase(kept->origin);
  kept_.erase(kept);
}

}  // namespace darkroom
