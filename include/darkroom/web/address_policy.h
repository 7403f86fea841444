#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "darkroom/core/result.h"

namespace darkroom {

/// One IPv4 or IPv6 address. Thread safety: a value type.
struct IpAddress {
  std::array<uint8_t, 16> bytes{};  ///< Network order; an IPv4 address takes the first four.
  bool is_ipv4 = false;

  int num_bits() const { return is_ipv4 ? 32 : 128; }
  std::string to_string() const;

  /// Reads the plain textual forms only ("1.2.3.4", "::1"): hexadecimal, octal, short and scoped forms give nothing.
  static std::optional<IpAddress> parse(std::string_view text);
  /// The address of a socket; nothing for families other than IPv4 and IPv6.
  static std::optional<IpAddress> from_sockaddr(const sockaddr& address);
};

/// Whether the address may belong to a host on the public internet: not loopback, private, link-local, shared (CGNAT),
/// multicast, reserved, documentation or benchmarking space, not a cloud's metadata address, and not an IPv6 form that
/// carries an IPv4 address (mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP).
/// Source: the IANA IPv4 and IPv6 special-purpose address registries (RFC 6890 and its updates).
bool is_public_address(const IpAddress& address);

/// A network that is allowed although it is not public: --allow-private CIDR[:PORT].
struct AllowedNetwork {
  IpAddress address;
  int prefix_bits = 0;
  uint16_t port = 0;  ///< 0: every port.

  /// Reads "127.0.0.0/8", "127.0.0.1:8080", "127.0.0.0/8:8080", "fd00::/8", "fd00::/8:80" or "[::1]:80".
  /// Errors: kInvalidArgument (no such form, bits set outside the prefix, port out of range).
  static Result<AllowedNetwork> parse(std::string_view text);

  bool contains(const IpAddress& address, uint16_t port) const;
};

/// Decides which socket addresses may be connected to. Thread safety: immutable after construction.
class AddressPolicy {
 public:
  AddressPolicy() = default;
  explicit AddressPolicy(std::vector<AllowedNetwork> allowed) : allowed_(std::move(allowed)) {}

  /// Public addresses and those of an allowed network; nothing else, and no family but IPv4 and IPv6.
  bool allows(const sockaddr& address) const;

 private:
  std::vector<AllowedNetwork> allowed_;
};

}  // namespace darkroom
