#include "darkroom/web/address_policy.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace darkroom {
namespace {

struct Network {
  std::array<uint8_t, 4> bytes;  // Leading bytes of the prefix; the rest is zero.
  int prefix_bits;
};

// Everything that the IANA registry does not mark as globally reachable, multicast, and Azure's metadata address.
const Network kSpecialIpv4[] = {
    {{0}, 8},                  // this host on this network (RFC 791)
    {{10}, 8},                 // private (RFC 1918)
    {{100, 64}, 10},           // shared by carriers (RFC 6598)
    {{127}, 8},                // loopback (RFC 1122)
    {{168, 63, 129, 16}, 32},  // Azure's virtual host address
    {{169, 254}, 16},          // link-local (RFC 3927), with the metadata services of most clouds
    {{172, 16}, 12},           // private (RFC 1918)
    {{192, 0, 0}, 24},         // protocol assignments (RFC 6890)
    {{192, 0, 2}, 24},         // documentation (RFC 5737)
    {{192, 88, 99}, 24},       // 6to4 relays (RFC 7526)
    {{192, 168}, 16},          // private (RFC 1918)
    {{198, 18}, 15},           // benchmarking (RFC 2544)
    {{198, 51, 100}, 24},      // documentation
    {{203, 0, 113}, 24},       // documentation
    {{224}, 4},                // multicast (RFC 5771)
    {{240}, 4},                // reserved and broadcast (RFC 1112)
};

// Only 2000::/3 is global unicast (RFC 4291), which leaves out ::, ::1, mapped, compatible, NAT64 (64:ff9b::/96 and
// 64:ff9b:1::/48), ULA, link-local, site-local and multicast. These are the exceptions within it.
const Network kGlobalUnicastIpv6 = {{0x20}, 3};
const Network kSpecialIpv6[] = {
    {{0x20, 0x01, 0x00, 0x00}, 23},  // protocol assignments: Teredo, benchmarking, ORCHID (RFC 2928)
    {{0x20, 0x01, 0x0d, 0xb8}, 32},  // documentation (RFC 3849)
    {{0x20, 0x02}, 16},              // 6to4 carries an IPv4 address (RFC 3056)
    {{0x3f, 0xff}, 20},              // documentation (RFC 9637)
};

bool same_prefix(const uint8_t* a, const uint8_t* b, int prefix_bits) {
  const int num_bytes = prefix_bits / 8;
  if (!std::equal(a, a + num_bytes, b)) {
    return false;
  }
  const int num_bits = prefix_bits % 8;
  return num_bits == 0 || ((a[num_bytes] ^ b[num_bytes]) >> (8 - num_bits)) == 0;
}

bool is_in(const IpAddress& address, const Network& network) {
  std::array<uint8_t, 16> prefix{};
  std::copy(network.bytes.begin(), network.bytes.end(), prefix.begin());
  return same_prefix(address.bytes.data(), prefix.data(), network.prefix_bits);
}

// An ISATAP interface identifier carries an IPv4 address in any prefix (RFC 5214).
bool is_isatap(const IpAddress& address) {
  const uint8_t* identifier = address.bytes.data() + 8;
  return (identifier[0] & 0xfd) == 0 && identifier[1] == 0 && identifier[2] == 0x5e && identifier[3] == 0xfe;
}

std::optional<int> parse_number(std::string_view text, int largest) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > largest) {
    return std::nullopt;
  }
  return number;
}

struct NetworkText {
  std::string_view address;
  std::optional<std::string_view> prefix;
  std::optional<std::string_view> port;
};

// Splits ADDRESS[/PREFIX][:PORT] and [ADDRESS][/PREFIX][:PORT]; a bare IPv6 address may not carry a port.
NetworkText split_network(std::string_view text) {
  NetworkText parts;
  const size_t bracket = text.starts_with('[') ? text.find(']') : std::string_view::npos;
  const bool in_brackets = bracket != std::string_view::npos;
  if (in_brackets) {
    parts.address = text.substr(1, bracket - 1);
    text.remove_prefix(bracket + 1);
  } else {
    const size_t slash = text.find('/');
    const bool is_bare_ipv6 = slash == std::string_view::npos && std::count(text.begin(), text.end(), ':') > 1;
    const size_t end = slash != std::string_view::npos ? slash : is_bare_ipv6 ? text.size() : std::min(text.find(':'), text.size());
    parts.address = text.substr(0, end);
    text.remove_prefix(end);
  }
  const size_t colon = text.find(':');
  if (colon != std::string_view::npos) {
    parts.port = text.substr(colon + 1);
    text = text.substr(0, colon);
  }
  if (!text.empty()) {
    parts.prefix = text.starts_with('/') ? text.substr(1) : "?";
  }
  return parts;
}

bool has_bits_outside(const IpAddress& address, int prefix_bits) {
  for (int bit = prefix_bits; bit < address.num_bits(); ++bit) {
    if ((address.bytes[bit / 8] >> (7 - bit % 8) & 1) != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string IpAddress::to_string() const {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(is_ipv4 ? AF_INET : AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  IpAddress address;
  const std::string terminated(text);
  if (terminated.size() != std::strlen(terminated.c_str())) {
    return std::nullopt;
  }
  if (inet_pton(AF_INET, terminated.c_str(), address.bytes.data()) == 1) {
    address.is_ipv4 = true;
    return address;
  }
  if (inet_pton(AF_INET6, terminated.c_str(), address.bytes.data()) == 1) {
    return address;
  }
  return std::nullopt;
}

std::optional<IpAddress> IpAddress::from_sockaddr(const sockaddr& address) {
  IpAddress result;
  if (address.sa_family == AF_INET) {
    std::memcpy(result.bytes.data(), &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
    result.is_ipv4 = true;
    return result;
  }
  if (address.sa_family == AF_INET6) {
    std::memcpy(result.bytes.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, 16);
    return result;
  }
  return std::nullopt;
}

bool is_public_address(const IpAddress& address) {
  const auto matches = [&](const Network& network) { return is_in(address, network); };
  if (address.is_ipv4) {
    return std::none_of(std::begin(kSpecialIpv4), std::end(kSpecialIpv4), matches);
  }
  return matches(kGlobalUnicastIpv6) && std::none_of(std::begin(kSpecialIpv6), std::end(kSpecialIpv6), matches) && !is_isatap(address);
}

Result<AllowedNetwork> AllowedNetwork::parse(std::string_view text) {
  const NetworkText parts = split_network(text);
  const auto address = IpAddress::parse(parts.address);
  if (!address) {
    return Status::invalid_argument("no network: give ADDRESS[/PREFIX][:PORT], such as 127.0.0.0/8:8080:", text);
  }
  AllowedNetwork network{*address, address->num_bits(), 0};
  if (parts.prefix) {
    const auto prefix_bits = parse_number(*parts.prefix, address->num_bits());
    if (!prefix_bits) {
      return Status::invalid_argument("the prefix of a network must be between 0 and", address->num_bits(), "in:", text);
    }
    network.prefix_bits = *prefix_bits;
  }
  if (parts.port) {
    const auto port = parse_number(*parts.port, 65535);
    if (!port || *port == 0) {
      return Status::invalid_argument("the port of a network must be between 1 and 65535, in:", text);
    }
    network.port = static_cast<uint16_t>(*port);
  }
  if (has_bits_outside(network.address, network.prefix_bits)) {
    return Status::invalid_argument("a network has address bits outside its prefix; lengthen the prefix or clear them, in:", text);
  }
  return network;
}

bool AllowedNetwork::contains(const IpAddress& other, uint16_t other_port) const {
  return other.is_ipv4 == address.is_ipv4 && (port == 0 || port == other_port) &&
         same_prefix(other.bytes.data(), address.bytes.data(), prefix_bits);
}

bool AddressPolicy::allows(const sockaddr& address) const {
  const auto ip = IpAddress::from_sockaddr(address);
  if (!ip) {
    return false;
  }
  if (is_public_address(*ip)) {
    return true;
  }
  const uint16_t port = ntohs(ip->is_ipv4 ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                                          : reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return std::any_of(allowed_.begin(), allowed_.end(), [&](const AllowedNetwork& network) { return network.contains(*ip, port); });
}

}  // namespace darkroom
