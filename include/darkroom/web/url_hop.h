#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/row_error.h"
#include "darkroom/web/address_policy.h"
#include "darkroom/web/http_exchange.h"

namespace darkroom {

/// Which addresses and ports a listed URL may lead to: public addresses at the web's ports, and what the user allowed besides. One decision
/// for every hop; `addresses` is what HttpRequest::policy takes. Thread safety: immutable after construction.
class HopPolicy {
 public:
  /// An allowed network without a port allows all of its ports, one with a port that one alone, and nothing else of the network.
  explicit HopPolicy(std::vector<AllowedNetwork> allow_private = {}, std::set<uint16_t> ports = {80, 443});

  /// Whether any address may be asked at this port.
  bool may_allow(uint16_t port) const;
  bool allows(const SocketAddress& address) const;
  const AddressPolicy& addresses() const { return addresses_; }

 private:
  std::vector<AllowedNetwork> allow_private_;
  std::set<uint16_t> ports_;
  AddressPolicy addresses_;
};

/// One hop of a listed URL: normalised as browsers do (RFC 3986; spaces and bytes above 127 escaped, dot segments and the fragment gone,
/// numeric hosts in their plain form, names in Punycode). Thread safety: a value type.
class UrlHop {
 public:
  /// An absolute URL, without the blanks around it. Errors: kBadUrl (no URL, another scheme than http and https, a user name, a control
  /// character, more than 16 KiB), kBlockedHost (a port that no address may be asked at, a scoped address).
  static RowResult<UrlHop> parse(std::string_view url, const HopPolicy& policy);
  /// Where the server sends us from here: absolute or relative (RFC 3986, section 5). Errors as above.
  RowResult<UrlHop> follow(std::string_view location, const HopPolicy& policy) const;

  const std::string& url() const { return url_; }
  const std::string& host() const { return host_; }  ///< In small letters, without a dot at its end; an IPv6 address without brackets.
  uint16_t port() const { return port_; }
  bool is_https() const { return is_https_; }
  /// When the URL names an address instead of a host.
  const std::optional<IpAddress>& address() const { return address_; }

  /// Scheme, host and port (RFC 6454): what credentials belong to.
  bool has_same_origin(const UrlHop& other) const;

 private:
  static RowResult<UrlHop> read(const std::string* base, std::string_view text, const HopPolicy& policy);

  std::string url_;
  std::string host_;
  uint16_t port_ = 0;
  bool is_https_ = false;
  std::optional<IpAddress> address_;
};

/// The addresses of a hop that may be connected to, each once, IPv6 and IPv4 in turns beginning with the family of the first, in their
/// order. Error: kBlockedHost when none may; its detail names the first that was refused. REQUIRES: `addresses` is not empty.
RowResult<std::vector<SocketAddress>> allowed_addresses(const UrlHop& hop, std::span<const IpAddress> addresses, const HopPolicy& policy);

/// The place that an answer sends us to: Location of 301, 302, 303, 307 and 308. Nothing: it is no redirect, and its status stands.
std::optional<std::string> redirect_location(const HttpHead& head);

/// The hops of one GET or HEAD: counts them, and keeps what belongs to the first origin there. Authorization, Cookie and the like are taken
/// away at the first hop to another scheme, host or port and do not come back; a Referer is never sent.
/// Thread safety: a value type.
class RedirectChain {
 public:
  RedirectChain(UrlHop first, HttpHeaders headers, int max_redirects);

  const UrlHop& hop() const { return hop_; }
  const HttpHeaders& headers() const { return headers_; }
  int num_redirects() const { return num_redirects_; }

  /// Goes on to `location`. An error leaves the chain where it is: kTooManyRedirects, and those of UrlHop.
  std::optional<RowError> follow(std::string_view location, const HopPolicy& policy);

 private:
  UrlHop hop_;
  HttpHeaders headers_;
  int max_redirects_;
  int num_redirects_ = 0;
};

}  // namespace darkroom
