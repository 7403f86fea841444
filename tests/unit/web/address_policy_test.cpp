#include "darkroom/web/address_policy.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace darkroom {
namespace {

bool is_public(const std::string& text) {
  const auto address = IpAddress::parse(text);
  EXPECT_TRUE(address) << text;
  return address && is_public_address(*address);
}

std::string ipv4_text(uint32_t bits) {
  IpAddress address{
      {static_cast<uint8_t>(bits >> 24), static_cast<uint8_t>(bits >> 16), static_cast<uint8_t>(bits >> 8), static_cast<uint8_t>(bits)},
      true};
  return address.to_string();
}

uint32_t ipv4_bits(const std::string& text) {
  in_addr address{};
  EXPECT_EQ(inet_pton(AF_INET, text.c_str(), &address), 1);
  return ntohl(address.s_addr);
}

struct Range {
  const char* first;
  const char* last;
};

// First and last address of every special IPv4 range.
const Range kSpecial[] = {
    {"0.0.0.0", "0.255.255.255"},       {"10.0.0.0", "10.255.255.255"},     {"100.64.0.0", "100.127.255.255"},
    {"127.0.0.0", "127.255.255.255"},   {"168.63.129.16", "168.63.129.16"}, {"169.254.0.0", "169.254.255.255"},
    {"172.16.0.0", "172.31.255.255"},   {"192.0.0.0", "192.0.0.255"},       {"192.0.2.0", "192.0.2.255"},
    {"192.88.99.0", "192.88.99.255"},   {"192.168.0.0", "192.168.255.255"}, {"198.18.0.0", "198.19.255.255"},
    {"198.51.100.0", "198.51.100.255"}, {"203.0.113.0", "203.0.113.255"},   {"224.0.0.0", "239.255.255.255"},
    {"240.0.0.0", "255.255.255.255"},
};

// Neighbours of the ranges, and some well-known hosts.
const char* const kPublicIpv4[] = {"1.0.0.0",         "9.255.255.255",   "11.0.0.0",      "100.63.255.255",  "100.128.0.0",
                                   "126.255.255.255", "128.0.0.0",       "168.63.129.15", "168.63.129.17",   "169.253.255.255",
                                   "169.255.0.0",     "172.15.255.255",  "172.32.0.0",    "191.255.255.255", "192.0.1.0",
                                   "192.0.3.0",       "192.88.98.255",   "192.88.100.0",  "192.167.255.255", "192.169.0.0",
                                   "198.17.255.255",  "198.20.0.0",      "198.51.99.255", "198.51.101.0",    "203.0.112.255",
                                   "203.0.114.0",     "223.255.255.255", "8.8.8.8",       "1.1.1.1",         "93.184.216.34"};

TEST(address_policy, refuses_both_ends_and_inner_addresses_of_every_special_ipv4_range) {
  std::mt19937 random(7);
  int num_cases = 0;
  for (const Range& range : kSpecial) {
    const uint32_t first = ipv4_bits(range.first);
    const uint32_t last = ipv4_bits(range.last);
    EXPECT_FALSE(is_public(range.first));
    EXPECT_FALSE(is_public(range.last));
    for (int i = 0; i < 30; ++i, ++num_cases) {
      const std::string text = ipv4_text(std::uniform_int_distribution<uint32_t>(first, last)(random));
      EXPECT_FALSE(is_public(text)) << text;
    }
  }
  EXPECT_GE(num_cases, 480);
}

TEST(address_policy, accepts_the_neighbours_of_special_ipv4_ranges) {
  for (const char* text : kPublicIpv4) {
    EXPECT_TRUE(is_public(text)) << text;
  }
}

TEST(address_policy, refuses_ipv6_forms_that_carry_an_ipv4_address_whatever_it_is) {
  for (const char* prefix :
       {"::ffff:", "::", "::ffff:0:", "64:ff9b::", "64:ff9b:1::", "2001:db8::", "fe80::5efe:", "2a00::5efe:", "2a00::200:5efe:"}) {
    for (const Range& range : kSpecial) {
      EXPECT_FALSE(is_public(std::string(prefix) + range.first)) << prefix << range.first;
      EXPECT_FALSE(is_public(std::string(prefix) + range.last)) << prefix << range.last;
    }
    for (const char* text : kPublicIpv4) {
      EXPECT_FALSE(is_public(std::string(prefix) + text)) << prefix << text;
    }
  }
}

TEST(address_policy, refuses_special_ipv6_ranges) {
  for (const char* text : {"::",
                           "::1",
                           "::2",
                           "0:0:0:1::",
                           "100::",
                           "100::1",
                           "100:0:0:1::",
                           "1fff:ffff::",
                           "2001::",
                           "2001::1",
                           "2001:0:4136:e378:8000:63bf:3fff:fdd2",
                           "2001:2::1",
                           "2001:10::1",
                           "2001:20::1",
                           "2001:1ff:ffff::",
                           "2001:db8::",
                           "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff",
                           "2002::",
                           "2002:7f00:1::1",
                           "2002:a9fe:a9fe::",
                           "2002:ffff:ffff::",
                           "3fff::",
                           "3fff:fff:ffff::1",
                           "4000::",
                           "5f00::1",
                           "8000::",
                           "c000::",
                           "e000::",
                           "fc00::",
                           "fc00::1",
                           "fd00::1",
                           "fd00:ec2::254",
                           "fd20:ce::254",
                           "fdff:ffff::1",
                           "fe00::",
                           "fe80::",
                           "fe80::1",
                           "febf::1",
                           "fec0::1",
                           "feff::1",
                           "ff00::",
                           "ff02::1",
                           "ff05::2",
                           "ff0e::1",
                           "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}) {
    EXPECT_FALSE(is_public(text)) << text;
  }
}

TEST(address_policy, accepts_global_unicast_ipv6) {
  for (const char* text : {"2000::1", "2001:200::1", "2001:4860:4860::8888", "2001:db7:ffff::1", "2001:db9::1", "2003::1", "2400:cb00::1",
                           "2606:4700:4700::1111", "2a00:1450:4001:81b::200e", "3ffe:ffff::1", "3fff:1000::1"}) {
    EXPECT_TRUE(is_public(text)) << text;
  }
}

TEST(address_policy, reads_plain_addresses_only) {
  for (const char* text : {"", "1", "127.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "017700000001", "127.0.0.1 ", " 127.0.0.1",
                           "127.0.0.256", "1.2.3.4.5", "1.2.3", "::g", ":::", "1::2::3", "[::1]", "fe80::1%lo", "localhost"}) {
    EXPECT_FALSE(IpAddress::parse(text)) << text;
  }
  EXPECT_FALSE(IpAddress::parse(std::string_view("8.8.8.8\0.evil", 13)));
  EXPECT_EQ(IpAddress::parse("::FFFF:1.2.3.4")->to_string(), "::ffff:1.2.3.4");
  EXPECT_EQ(IpAddress::parse("192.0.2.1")->to_string(), "192.0.2.1");
}

TEST(address_policy, parses_networks_with_and_without_prefix_and_port) {
  struct Case {
    const char* text;
    const char* address;
    int prefix_bits;
    int port;
  };
  for (const Case& wanted :
       {Case{"127.0.0.0/8", "127.0.0.0", 8, 0}, Case{"127.0.0.1", "127.0.0.1", 32, 0}, Case{"127.0.0.1:8080", "127.0.0.1", 32, 8080},
        Case{"10.0.0.0/8:1", "10.0.0.0", 8, 1}, Case{"0.0.0.0/0", "0.0.0.0", 0, 0}, Case{"::1", "::1", 128, 0},
        Case{"fd00::/8", "fd00::", 8, 0}, Case{"fd00::/8:65535", "fd00::", 8, 65535}, Case{"[::1]", "::1", 128, 0},
        Case{"[::1]:80", "::1", 128, 80}, Case{"[fd00::]/8:80", "fd00::", 8, 80}, Case{"::/0", "::", 0, 0}}) {
    const auto network = AllowedNetwork::parse(wanted.text);
    ASSERT_TRUE(network.is_ok()) << wanted.text << network.status().to_string();
    EXPECT_EQ(network->address.to_string(), wanted.address) << wanted.text;
    EXPECT_EQ(network->prefix_bits, wanted.prefix_bits) << wanted.text;
    EXPECT_EQ(network->port, wanted.port) << wanted.text;
  }
}

TEST(address_policy, refuses_malformed_networks) {
  for (const char* text : {"",
                           "/",
                           ":",
                           "127.0.0.1/",
                           "127.0.0.1:",
                           "127.0.0.1/33",
                           "127.0.0.1/-1",
                           "127.0.0.1/8",
                           "127.0.0.0/8:",
                           "127.0.0.0/8:0",
                           "127.0.0.0/8:65536",
                           "127.0.0.0/8:x",
                           "127.0.0.0/8/9",
                           "127.0.0.1:80:80",
                           "::1/129",
                           "fd00::1/8",
                           "[::1",
                           "::1]",
                           "[::1]80",
                           "[]",
                           "localhost",
                           "127.1",
                           "0x7f.0.0.1",
                           "127.0.0.0/08x",
                           "*"}) {
    const auto network = AllowedNetwork::parse(text);
    EXPECT_FALSE(network.is_ok()) << text;
    EXPECT_EQ(network.status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(address_policy, a_network_contains_its_own_family_prefix_and_port_only) {
  const auto network = *AllowedNetwork::parse("10.1.2.0/23:80");
  EXPECT_TRUE(network.contains(*IpAddress::parse("10.1.2.0"), 80));
  EXPECT_TRUE(network.contains(*IpAddress::parse("10.1.3.255"), 80));
  EXPECT_FALSE(network.contains(*IpAddress::parse("10.1.4.0"), 80));
  EXPECT_FALSE(network.contains(*IpAddress::parse("10.1.1.255"), 80));
  EXPECT_FALSE(network.contains(*IpAddress::parse("10.1.2.0"), 81));
  EXPECT_FALSE(network.contains(*IpAddress::parse("::ffff:10.1.2.0"), 80));
  EXPECT_TRUE(AllowedNetwork::parse("0.0.0.0/0")->contains(*IpAddress::parse("127.0.0.1"), 1));
  EXPECT_FALSE(AllowedNetwork::parse("0.0.0.0/0")->contains(*IpAddress::parse("::1"), 1));
}

TEST(address_policy, decides_on_socket_addresses) {
  const AddressPolicy strict;
  const AddressPolicy open({*AllowedNetwork::parse("127.0.0.1:8080"), *AllowedNetwork::parse("::1/128:8080")});
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ipv4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ipv4.sin_port = htons(8080);
  EXPECT_FALSE(strict.allows(reinterpret_cast<sockaddr&>(ipv4)));
  EXPECT_TRUE(open.allows(reinterpret_cast<sockaddr&>(ipv4)));
  ipv4.sin_port = htons(8081);
  EXPECT_FALSE(open.allows(reinterpret_cast<sockaddr&>(ipv4)));
  ipv4.sin_addr.s_addr = htonl(0x08080808);
  EXPECT_TRUE(strict.allows(reinterpret_cast<sockaddr&>(ipv4)));

  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  ipv6.sin6_addr = in6addr_loopback;
  ipv6.sin6_port = htons(8080);
  EXPECT_FALSE(strict.allows(reinterpret_cast<sockaddr&>(ipv6)));
  EXPECT_TRUE(open.allows(reinterpret_cast<sockaddr&>(ipv6)));
  inet_pton(AF_INET6, "::ffff:127.0.0.1", &ipv6.sin6_addr);
  EXPECT_FALSE(open.allows(reinterpret_cast<sockaddr&>(ipv6)));

  sockaddr_un local{};
  local.sun_family = AF_UNIX;
  EXPECT_FALSE(strict.allows(reinterpret_cast<sockaddr&>(local)));
}

}  // namespace
}  // namespace darkroom
