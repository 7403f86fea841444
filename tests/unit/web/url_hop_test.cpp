#include "darkroom/web/url_hop.h"

#include <gtest/gtest.h>

#include <clocale>
#include <random>
#include <string>
#include <vector>

#include "support/rounds.h"

namespace darkroom {
namespace {

HopPolicy allowing(const std::vector<const char*>& networks) {
  std::vector<AllowedNetwork> allowed;
  for (const char* network : networks) {
    allowed.push_back(*AllowedNetwork::parse(network));
  }
  return HopPolicy(std::move(allowed));
}

// "URL HOST PORT", or the error's name.
std::string shown(const RowResult<UrlHop>& hop) {
  return hop.is_ok() ? hop->url() + " " + hop->host() + " " + std::to_string(hop->port()) : hop.error().name();
}
std::string read(std::string_view url) { return shown(UrlHop::parse(url, HopPolicy())); }

IpAddress ip(const char* text) { return *IpAddress::parse(text); }

std::string shown(const RowResult<std::vector<SocketAddress>>& addresses) {
  if (!addresses.is_ok()) {
    return addresses.error().name() + ": " + addresses.error().detail;
  }
  std::string text;
  for (const SocketAddress& address : *addresses) {
    text += (text.empty() ? "" : " ") + address.to_string();
  }
  return text;
}

TEST(url_hop, reads_a_url_as_browsers_do) {
  EXPECT_EQ(read("http://example.com/a.jpg"), "http://example.com/a.jpg example.com 80");
  EXPECT_EQ(read(" \thttps://Example.COM/A.jpg?q=1#part\n"), "https://example.com/A.jpg?q=1 example.com 443");
  EXPECT_EQ(read("http://example.com"), "http://example.com/ example.com 80");
  EXPECT_EQ(read("http://example.com:443/"), "http://example.com:443/ example.com 443");
  EXPECT_EQ(read("https://example.com:/a"), "https://example.com/a example.com 443");
  EXPECT_EQ(read("http://example.com./a"), "http://example.com./a example.com 80");
  EXPECT_EQ(read("http://example.com/a/./b/../c"), "http://example.com/a/c example.com 80");
  EXPECT_EQ(read("http://example.com/a b/\xC3\xBC?x=\xC3\xBC y"), "http://example.com/a%20b/%c3%bc?x=%c3%bc+y example.com 80");
  EXPECT_EQ(read("http://example.com/%2e%2E/a"), "http://example.com/a example.com 80");
  EXPECT_EQ(read("http://example.com/b/c/%2e./%2E/.%2E?x=/%2e%2e/"), "http://example.com/?x=/%2e%2e/ example.com 80");
  EXPECT_EQ(read("http://example.com/%2e%2e%2e/%2e%2ea/"), "http://example.com/%2e%2e%2e/%2e%2ea/ example.com 80");
  EXPECT_EQ(read("HTTP://example.com/"), "http://example.com/ example.com 80");
  EXPECT_EQ(read("http:///a"), "http://a/ a 80");
  EXPECT_EQ(read("http://0x7f.1/"), "http://127.0.0.1/ 127.0.0.1 80");
  EXPECT_EQ(read("http://[2001:DB8::1]/"), "http://[2001:db8::1]/ 2001:db8::1 80");
  EXPECT_TRUE(UrlHop::parse("http://[::1]/", HopPolicy())->address().has_value());
  EXPECT_FALSE(UrlHop::parse("http://example.com/", HopPolicy())->address().has_value());
}

TEST(url_hop, writes_names_of_other_alphabets_in_punycode_in_any_locale) {
  const std::string before = setlocale(LC_CTYPE, nullptr);
  ASSERT_EQ(before, "C");  // That of the program, which sets none.
  for (const char* locale : {"C", "C.UTF-8"}) {
    ASSERT_NE(setlocale(LC_CTYPE, locale), nullptr) << locale;
    EXPECT_EQ(read("http://B\xC3\xBC\x63her.example/"), "http://xn--bcher-kva.example/ xn--bcher-kva.example 80");
    EXPECT_EQ(read("https://b%C3%BC\x63her.example:443/\xC3\xBC?x"),
              "https://xn--bcher-kva.example:443/%c3%bc?x xn--bcher-kva.example 443");
    EXPECT_EQ(read("http://bu\xCC\x88\x63her.example/"), "http://xn--bcher-kva.example/ xn--bcher-kva.example 80");  // u and two dots.
    EXPECT_EQ(read("http://fa\xC3\x9F.example/"), "http://xn--fa-hia.example/ xn--fa-hia.example 80");
    EXPECT_EQ(read("http://FA\xE1\xBA\x9E.example/"), "http://xn--fa-hia.example/ xn--fa-hia.example 80");
    EXPECT_EQ(read("http://\xF0\x9F\xAB\xA0.example/"), "http://xn--129h.example/ xn--129h.example 80");      // An emoji of Unicode 14.
    EXPECT_EQ(read("http://\xF0\x9F\x98\xAD.example/"), "http://xn--o38h.example/ xn--o38h.example 80");      // An emoji.
    EXPECT_EQ(read("http://a_b.\xE6\x97\xA5\xE3\x80\x82jp./"), "http://a_b.xn--wgv.jp./ a_b.xn--wgv.jp 80");  // Their full stop.
    const auto mapped = UrlHop::parse("http://\xEF\xBC\x91\xEF\xBC\x90.0.0.1/", HopPolicy());                 // Wide digits.
    EXPECT_EQ(shown(mapped), "http://10.0.0.1/ 10.0.0.1 80");
    EXPECT_TRUE(mapped->address().has_value());  // So that its address is asked of the policy.
    const auto base = UrlHop::parse("http://example.com/", HopPolicy());
    EXPECT_EQ(shown(base->follow("//\xC3\xBC.example/a", HopPolicy())), "http://xn--tda.example/a xn--tda.example 80");
  }
  setlocale(LC_CTYPE, before.c_str());
}

TEST(url_hop, refuses_names_that_are_none_in_any_alphabet) {
  for (const std::string& host : {std::string("b\xFC\x63her.example"),       // Latin-1.
                                  std::string("a\xEF\xBC\x8F\x62.example"),  // A wide slash.
                                  std::string("a\xEF\xBC\x9A\x38\x30"),      // A wide colon.
                                  std::string("a\xEF\xBC\xA0\x62.example"),  // A wide @.
                                  std::string("\xCC\x80\x61.example"),       // An accent over nothing.
                                  std::string("a\xEF\xBC\x85\x62.example"),  // A wide percent sign.
                                  std::string("\xF0\x9F\xAB\xA8.example"),   // An emoji of Unicode 15.
                                  std::string("\xE0\xB3\xB3.example"),       // The first of its letters.
                                  std::string("\xF0\xB2\x8E\xAF.example"),   // The last one.
                                  std::string("xn--b\xC3\xBC\x63her.example"), std::string("\xC3\xBC-.example"),
                                  std::string("\xC2\xAD"),  // A soft hyphen, which is left out.
                                  std::string(64, 'a') + "\xC3\xBC.example"}) {
    EXPECT_EQ(read("http://" + host + "/"), "bad_url") << host;
  }
}

TEST(url_hop, refuses_what_is_no_url_of_the_web) {
  for (const std::string& url : {std::string(),
                                 std::string(" "),
                                 std::string("a.jpg"),
                                 std::string("/a.jpg"),
                                 std::string("//example.com/a"),
                                 std::string("http://"),
                                 std::string("ftp://example.com/"),
                                 std::string("file:///etc/passwd"),
                                 std::string("data:image/png;base64,AAAA"),
                                 std::string("javascript:alert(1)"),
                                 std::string("http://user@example.com/"),
                                 std::string("http://:pw@example.com/"),
                                 std::string("http://@example.com/"),
                                 std::string("http://example.com:99999/"),
                                 std::string("http://example.com:0/"),
                                 std::string("http://[::1/"),
                                 std::string("http://a b.com/"),
                                 std::string("http://exa\tmple.com/"),
                                 std::string("http://example.com/\r\nX: y"),
                                 std::string("http://example.com/\0.jpg", 24),
                                 "http://example.com/" + std::string(16'384, 'a'),
                                 "http://example.com/" + std::string(6'000, ' ') + "a",  // Each takes three bytes.
                                 std::string("http://./"),
                                 std::string("http://exam%ple/"),
                                 std::string("http://exam%00ple/")}) {
    EXPECT_EQ(read(url), "bad_url") << url;
  }
  EXPECT_EQ(read("http://[fe80::1%25eth0]/"), "blocked_host");
}

TEST(url_hop, leads_to_ports_of_the_web_only) {
  for (const char* port : {"22", "25", "8080", "6379", "65535", "81"}) {
    EXPECT_EQ(read(std::string("http://example.com:") + port + "/"), "blocked_host") << port;
  }
  // A network with a port opens that port, and only for itself.
  const HopPolicy policy = allowing({"10.0.0.0/8:8080", "192.168.1.0/24"});
  const auto hop = UrlHop::parse("http://example.com:8080/", policy);
  ASSERT_TRUE(hop.is_ok());
  const std::vector<IpAddress> addresses = {ip("93.184.216.34"), ip("10.1.2.3"), ip("192.168.1.9"), ip("192.168.2.9"), ip("127.0.0.1")};
  EXPECT_EQ(shown(allowed_addresses(*hop, addresses, policy)), "10.1.2.3:8080 192.168.1.9:8080");
  const auto web = UrlHop::parse("http://example.com/", policy);
  EXPECT_EQ(shown(allowed_addresses(*web, addresses, policy)), "93.184.216.34:80 192.168.1.9:80");
  EXPECT_EQ(shown(UrlHop::parse("http://example.com:22/", allowing({"10.0.0.0/8:8080"}))), "blocked_host");
}

TEST(url_hop, leaves_out_every_address_that_must_not_be_asked) {
  const HopPolicy policy;
  const auto hop = UrlHop::parse("https://example.com/", policy);
  const auto given = [&](std::vector<IpAddress> addresses) { return shown(allowed_addresses(*hop, addresses, policy)); };
  EXPECT_EQ(given({ip("10.0.0.1"), ip("8.8.8.8")}), "8.8.8.8:443");
  EXPECT_EQ(given({ip("::ffff:10.0.0.1"), ip("169.254.169.254"), ip("::1")}),
            "blocked_host: not a public address at a port of the web: [::ffff:10.0.0.1]:443");
  EXPECT_EQ(given({ip("2606:4700::1"), ip("2606:4700::2"), ip("8.8.8.8"), ip("8.8.4.4"), ip("8.8.8.8"), ip("8.8.4.5")}),
            "[2606:4700::1]:443 8.8.8.8:443 [2606:4700::2]:443 8.8.4.4:443 8.8.4.5:443");
  EXPECT_EQ(given({ip("8.8.8.8"), ip("2606:4700::1")}), "8.8.8.8:443 [2606:4700::1]:443");
}

TEST(url_hop, agrees_with_the_policy_of_sockets) {
  // What a hop allows the socket's lock allows, too; it may refuse more.
  const HopPolicy policy = allowing({"10.0.0.0/8:8080", "fd00::/8"});
  std::minstd_rand random(7);
  for (int64_t i = 0; i < rounds(100'000); ++i) {
    SocketAddress address;
    address.ip.is_ipv4 = random() % 2 == 0;
    for (size_t b = 0; b < (address.ip.is_ipv4 ? 4u : 16u); ++b) {
      address.ip.bytes[b] = static_cast<uint8_t>(random());
    }
    if (random() % 4 == 0) {
      address.ip.bytes[0] = address.ip.is_ipv4 ? 10 : 0xFD;
    }
    address.port = static_cast<uint16_t>(std::vector<int>{80, 443, 8080, 22}[random() % 4]);
    const sockaddr_storage storage = address.to_sockaddr();
    const auto& socket = reinterpret_cast<const sockaddr&>(storage);
    ASSERT_EQ(SocketAddress::from_sockaddr(socket), address);
    if (policy.allows(address)) {
      ASSERT_TRUE(policy.addresses().allows(socket)) << address.to_string();
      ASSERT_TRUE(policy.may_allow(address.port)) << address.to_string();
    }
  }
}

TEST(url_hop, follows_relative_and_absolute_places) {
  const HopPolicy policy;
  const auto base = UrlHop::parse("https://example.com/a/b?q=1", policy);
  const auto to = [&](std::string_view location) { return shown(base->follow(location, policy)); };
  EXPECT_EQ(to("c.jpg"), "https://example.com/a/c.jpg example.com 443");
  EXPECT_EQ(to("../c.jpg"), "https://example.com/c.jpg example.com 443");
  EXPECT_EQ(to("/c d.jpg"), "https://example.com/c%20d.jpg example.com 443");
  EXPECT_EQ(to("?q=2"), "https://example.com/a/b?q=2 example.com 443");
  EXPECT_EQ(to("//cdn.example/x"), "https://cdn.example/x cdn.example 443");
  EXPECT_EQ(to("http://other.example/x"), "http://other.example/x other.example 80");
  EXPECT_EQ(to("http://10.0.0.1/"), "http://10.0.0.1/ 10.0.0.1 80");  // Its address is asked of the policy.
  EXPECT_EQ(to("http://example.com:6379/"), "blocked_host");
  for (const char* bad : {"", "ftp://example.com/", "file:///etc/passwd", "http://user:pw@example.com/", "//user@example.com/", "http://",
                          "gopher://example.com:70/", "/a\r\nX: y", "//example.com:99999/"}) {
    EXPECT_EQ(to(bad), "bad_url") << bad;
  }
  EXPECT_EQ(to("/" + std::string(16'384, 'a')), "bad_url");
}

TEST(url_hop, takes_five_statuses_as_redirects) {
  const auto location = [](int status, std::string_view line) {
    HttpHead head;
    head.status = status;
    head.add_line(line);
    return redirect_location(head);
  };
  for (const int status : {301, 302, 303, 307, 308}) {
    EXPECT_EQ(location(status, "LOCATION:  /b \r\n"), "/b") << status;
    EXPECT_EQ(location(status, "Location: \r\n"), std::nullopt) << status;
    EXPECT_EQ(location(status, "X: /b\r\n"), std::nullopt) << status;
  }
  for (const int status : {200, 201, 300, 304, 305, 306, 404}) {
    EXPECT_EQ(location(status, "Location: /b\r\n"), std::nullopt) << status;
  }
}

std::string names(const RedirectChain& chain) {
  std::string text;
  for (const auto& [name, value] : chain.headers()) {
    text += (text.empty() ? "" : " ") + name;
  }
  return text;
}

TEST(url_hop, takes_credentials_to_no_other_origin_and_back_to_none) {
  const HopPolicy policy = allowing({"192.0.2.0/24:8443"});
  const HttpHeaders headers = {{"AUTHORIZATION", "Bearer s"}, {"cookie", "c"},  {"X-Amz-Security-Token", "t"}, {"X-Api-Key", "k"},
                               {"Private-Token", "p"},        {"Referer", "r"}, {"Range", "bytes=0-1"},        {"User-Agent", "darkroom"}};
  const std::string all = "AUTHORIZATION cookie X-Amz-Security-Token X-Api-Key Private-Token Range User-Agent";
  const std::string others = "Range User-Agent";
  for (const auto& [location, kept] : std::vector<std::pair<const char*, std::string>>{{"/b", all},
                                                                                       {"https://hub.example/b", all},
                                                                                       {"https://HUB.example:443/b", all},
                                                                                       {"https://hub.example./b", all},
                                                                                       {"https://cdn.hub.example/b", others},
                                                                                       {"https://hub.example.evil.example/", others},
                                                                                       {"http://hub.example/b", others},
                                                                                       {"https://hub.example:8443/b", others},
                                                                                       {"//cdn.example/b", others}}) {
    RedirectChain chain(*UrlHop::parse("https://hub.example/a", policy), headers, 10);
    EXPECT_EQ(names(chain), all);
    EXPECT_EQ(chain.follow(location, policy), std::nullopt) << location;
    EXPECT_EQ(names(chain), kept) << location;
    EXPECT_EQ(chain.follow("https://hub.example/c", policy), std::nullopt);
    EXPECT_EQ(names(chain), kept) << location;  // Home again, empty-handed.
  }
}

TEST(url_hop, counts_redirects) {
  const HopPolicy policy;
  RedirectChain chain(*UrlHop::parse("http://example.com/0", policy), {}, 3);
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(chain.follow("/" + std::to_string(i), policy), std::nullopt);
  }
  EXPECT_EQ(chain.num_redirects(), 3);
  EXPECT_EQ(chain.follow("/4", policy)->name(), "too_many_redirects");
  EXPECT_EQ(chain.hop().url(), "http://example.com/3");
  RedirectChain none(*UrlHop::parse("http://example.com/0", policy), {}, 0);
  EXPECT_EQ(none.follow("/1", policy)->name(), "too_many_redirects");
  RedirectChain bad(*UrlHop::parse("http://example.com/0", policy), {}, 3);
  EXPECT_EQ(bad.follow("ftp://example.com/", policy)->name(), "bad_url");
  EXPECT_EQ(bad.num_redirects(), 0);
}

}  // namespace
}  // namespace darkroom
