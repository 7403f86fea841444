#include "darkroom/web/url_hop.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/check.h"
#include "darkroom/web/header_text.h"
#include "host_name.h"

namespace darkroom {
namespace {

constexpr size_t kMaxHopBytes = 16'384;
constexpr unsigned kReadFlags = CURLU_URLENCODE | CURLU_ALLOW_SPACE | CURLU_DISALLOW_USER;  // Spaces and non-ASCII as browsers do.

using UrlParser = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

std::optional<std::string> url_part(CURLU* parser, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(parser, part, &text, flags) != CURLUE_OK) {
    return std::nullopt;
  }
  const std::unique_ptr<char, decltype(&curl_free)> owned(text, curl_free);
  return std::string(text);
}

RowError bad_hop(std::string detail) { return {RowErrorCode::kBadUrl, 0, std::move(detail)}; }

// "..", also where its dots are escaped, is a way up (RFC 3986, section 6.2.2.2): of libcurl, later releases see that, 7.88 does not.
std::string_view plain_segment(std::string_view segment) {
  size_t num_dots = 0;
  for (std::string_view rest = segment; !rest.empty(); ++num_dots) {
    if (rest.front() == '.') {
      rest.remove_prefix(1);
    } else if (same_word(rest.substr(0, 3), "%2e")) {
      rest.remove_prefix(3);
    } else {
      return segment;
    }
  }
  return num_dots == 1 || num_dots == 2 ? std::string_view("..").substr(0, num_dots) : segment;
}

std::string with_plain_dots(std::string_view url) {
  const size_t path_end = std::min(url.find_first_of("?#"), url.size());
  std::string out;
  for (size_t begin = 0; begin < path_end;) {
    const size_t slash = std::min(url.find('/', begin), path_end);
    out += plain_segment(url.substr(begin, slash - begin));
    out += slash < path_end ? "/" : "";
    begin = slash + 1;
  }
  return out.append(url.substr(path_end));
}

// Writes the host in ASCII, and reads the URL again: a mapped name may be a numeric address, or hold what belongs in no host. A percent
// sign stays in a host only where it escapes nothing: 7.88 took that for a name, later releases take it for none.
bool set_host_in_ascii(CURLU* parser) {
  const auto host = url_part(parser, CURLUPART_HOST);
  const auto ascii = host ? host_in_ascii(*host) : std::nullopt;
  if (!ascii || ascii->find('%') != ascii->npos || curl_url_set(parser, CURLUPART_HOST, ascii->c_str(), 0) != CURLUE_OK) {
    return false;
  }
  const auto whole = url_part(parser, CURLUPART_URL);
  return whole && curl_url_set(parser, CURLUPART_URL, whole->c_str(), 0) == CURLUE_OK;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7F; }

// Headers that say who asks, or let somebody in: of RFC 9110, of S3 and of hubs.
bool belongs_to_origin(std::string_view name) {
  constexpr std::string_view kPrivate[] = {"authorization", "proxy-authorization", "cookie", "cookie2", "referer", "origin"};
  const std::string small = ascii_lower(std::string(name));
  return std::find(std::begin(kPrivate), std::end(kPrivate), small) != std::end(kPrivate) || small.starts_with("x-amz-") ||
         small.find("token") != std::string::npos || small.find("api-key") != std::string::npos;
}

}  // namespace

HopPolicy::HopPolicy(std::vector<AllowedNetwork> allow_private, std::set<uint16_t> ports)
    : allow_private_(std::move(allow_private)), ports_(std::move(ports)), addresses_(allow_private_) {}

bool HopPolicy::may_allow(uint16_t port) const {
  return ports_.contains(port) || std::any_of(allow_private_.begin(), allow_private_.end(),
                                              [&](const AllowedNetwork& network) { return network.port == 0 || network.port == port; });
}

bool HopPolicy::allows(const SocketAddress& address) const {
  const bool is_named = std::any_of(allow_private_.begin(), allow_private_.end(),
                                    [&](const AllowedNetwork& network) { return network.contains(address.ip, address.port); });
  return is_named || (ports_.contains(address.port) && is_public_address(address.ip));
}

RowResult<UrlHop> UrlHop::parse(std::string_view url, const HopPolicy& policy) { return read(nullptr, url, policy); }

RowResult<UrlHop> UrlHop::follow(std::string_view location, const HopPolicy& policy) const { return read(&url_, location, policy); }

RowResult<UrlHop> UrlHop::read(const std::string* base, std::string_view text, const HopPolicy& policy) {
  const std::string trimmed(trim_blanks(text));
  if (trimmed.size() > kMaxHopBytes) {
    return bad_hop(fmt::format("longer than {} bytes", kMaxHopBytes));
  }
  if (trimmed.empty() || std::any_of(trimmed.begin(), trimmed.end(), is_control)) {
    return bad_hop(trimmed.empty() ? "empty" : "a control character in it");
  }
  // A fresh parser each time: a used one takes "a.jpg" as relative to the URL before it.
  const UrlParser parser(curl_url(), curl_url_cleanup);
  DARKROOM_CHECK(parser != nullptr, "libcurl gave no parser of URLs");
  CURLUcode code = base != nullptr ? curl_url_set(parser.get(), CURLUPART_URL, base->c_str(), 0) : CURLUE_OK;
  if (code == CURLUE_OK) {
    code = curl_url_set(parser.get(), CURLUPART_URL, with_plain_dots(trimmed).c_str(), kReadFlags);
  }
  if (code != CURLUE_OK) {
    return bad_hop(curl_url_strerror(code));
  }
  const auto scheme = url_part(parser.get(), CURLUPART_SCHEME);
  if (!scheme || (*scheme != "http" && *scheme != "https")) {
    return bad_hop("neither http nor https");
  }
  if (url_part(parser.get(), CURLUPART_USER) || url_part(parser.get(), CURLUPART_PASSWORD)) {
    return bad_hop("a user name in it");
  }
  if (url_part(parser.get(), CURLUPART_ZONEID)) {
    return RowError{RowErrorCode::kBlockedHost, 0, "an address with a zone"};
  }
  UrlHop hop;
  hop.is_https_ = *scheme == "https";
  if (!set_host_in_ascii(parser.get())) {
    return bad_hop("no host");
  }
  auto host = url_part(parser.get(), CURLUPART_HOST);
  const auto port = url_part(parser.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
  if (!host || !port || std::from_chars(port->data(), port->data() + port->size(), hop.port_).ec != std::errc() || hop.port_ == 0) {
    return bad_hop("no host, or no port that exists");
  }
  *host = ascii_lower(*std::move(host));
  if (curl_url_set(parser.get(), CURLUPART_HOST, host->c_str(), 0) != CURLUE_OK) {
    return bad_hop("no host");
  }
  curl_url_set(parser.get(), CURLUPART_FRAGMENT, nullptr, 0);
  const auto whole = url_part(parser.get(), CURLUPART_URL);
  if (!whole) {
    return bad_hop("no URL");
  }
  if (whole->size() > kMaxHopBytes) {
    return bad_hop(fmt::format("longer than {} bytes when it is escaped", kMaxHopBytes));
  }
  hop.url_ = *whole;
  if (host->size() > 2 && host->front() == '[') {
    *host = host->substr(1, host->size() - 2);
  }
  hop.host_ = *std::move(host);
  if (hop.host_.ends_with('.')) {
    hop.host_.pop_back();
  }
  if (hop.host_.empty()) {
    return bad_hop("no host");
  }
  hop.address_ = IpAddress::parse(hop.host_);
  if (!policy.may_allow(hop.port_)) {
    return RowError{RowErrorCode::kBlockedHost, 0, fmt::format("not a port of the web: {}", hop.port_)};
  }
  return hop;
}

bool UrlHop::has_same_origin(const UrlHop& other) const {
  return is_https_ == other.is_https_ && port_ == other.port_ && host_ == other.host_;
}

RowResult<std::vector<SocketAddress>> allowed_addresses(const UrlHop& hop, std::span<const IpAddress> addresses, const HopPolicy& policy) {
  DARKROOM_CHECK(!addresses.empty(), "a host without addresses:", hop.host());
  std::vector<SocketAddress> families[2];  // That of the first address, and the other one.
  for (const IpAddress& ip : addresses) {
    const SocketAddress address{ip, hop.port()};
    auto& family = families[ip.is_ipv4 == addresses.front().is_ipv4 ? 0 : 1];
    if (policy.allows(address) && std::find(family.begin(), family.end(), address) == family.end()) {
      family.push_back(address);
    }
  }
  std::vector<SocketAddress> turns;
  for (size_t i = 0; i < std::max(families[0].size(), families[1].size()); ++i) {
    for (const auto& family : families) {
      if (i < family.size()) {
        turns.push_back(family[i]);
      }
    }
  }
  if (turns.empty()) {
    return RowError{RowErrorCode::kBlockedHost, 0,
                    fmt::format("not a public address at a port of the web: {}", SocketAddress{addresses.front(), hop.port()}.to_string())};
  }
  return turns;
}

std::optional<std::string> redirect_location(const HttpHead& head) {
  constexpr int kRedirects[] = {301, 302, 303, 307, 308};
  if (std::find(std::begin(kRedirects), std::end(kRedirects), head.status) == std::end(kRedirects)) {
    return std::nullopt;
  }
  const auto location = head.find("location");
  return location && !location->empty() ? std::optional(std::string(*location)) : std::nullopt;
}

RedirectChain::RedirectChain(UrlHop first, HttpHeaders headers, int max_redirects)
    : hop_(std::move(first)), headers_(std::move(headers)), max_redirects_(max_redirects) {
  std::erase_if(headers_, [](const auto& header) { return same_word(header.first, "referer"); });
}

std::optional<RowError> RedirectChain::follow(std::string_view location, const HopPolicy& policy) {
  if (num_redirects_ >= max_redirects_) {
    return RowError{RowErrorCode::kTooManyRedirects, 0, fmt::format("more than {}", max_redirects_)};
  }
  auto next = hop_.follow(location, policy);
  if (!next.is_ok()) {
    return next.error();
  }
  ++num_redirects_;
  if (!next->has_same_origin(hop_)) {
    std::erase_if(headers_, [](const auto& header) { return belongs_to_origin(header.first); });
  }
  hop_ = *std::move(next);
  return std::nullopt;
}

}  // namespace darkroom
