#include "web/dns_channel.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/stub_dns.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using std::chrono::seconds;

class DrivenChannel : public testing::Test {
 protected:
  struct Answered {
    std::string name;
    DnsAnswer answer;
    seconds ttl;
  };

  std::vector<Answered> answered_;
  ResolverOptions options_{.servers = {}, .hosts_file = "", .try_time = std::chrono::minutes(5), .num_tries = 1};
  DnsChannel channel_{options_, [this](const std::string& name, const DnsAnswer& answer, seconds ttl) {
                        answered_.push_back({name, answer, ttl});
                      }};
};

TEST_F(DrivenChannel, says_once_what_both_families_say_and_for_how_long) {
  StubDns dns([](const StubDns::Question& asked) {
    const bool is_ipv4 = asked.type == StubDns::kA;
    const uint32_t ttl = is_ipv4 == (asked.name == "a.example") ? 7 : 300;
    return StubDns::Answer{.records = {is_ipv4 ? StubDns::a(asked.name, "192.0.2.1", ttl) : StubDns::aaaa(asked.name, "2001:db8::1", ttl)}};
  });
  options_.servers = {dns.server()};
  ASSERT_TRUE(channel_.open().is_ok());
  channel_.ask("a.example");
  channel_.ask("b.example");
  EXPECT_EQ(channel_.num_queries(), 2);
  while (channel_.num_queries() > 0) {
    channel_.drive();
  }
  ASSERT_EQ(answered_.size(), 2u);
  EXPECT_NE(answered_[0].name, answered_[1].name);
  for (const Answered& one : answered_) {
    EXPECT_EQ(one.ttl, seconds(7)) << one.name;
    ASSERT_EQ(one.answer.addresses.size(), 2u) << one.name;
    EXPECT_EQ(one.answer.addresses[0].to_string(), "192.0.2.1") << one.name;
    EXPECT_EQ(one.answer.addresses[1].to_string(), "2001:db8::1") << one.name;
  }
}

TEST_F(DrivenChannel, answers_at_a_cancel_to_all_that_is_on_its_way) {
  StubDns dns([](const StubDns::Question&) { return StubDns::Answer{.is_silent = true}; });
  options_.servers = {dns.server()};
  ASSERT_TRUE(channel_.open().is_ok());
  channel_.ask("one.example");
  channel_.ask("two.example");
  channel_.cancel();
  ASSERT_EQ(answered_.size(), 2u);
  for (const Answered& one : answered_) {
    EXPECT_EQ(one.answer.kind, DnsAnswer::Kind::kStopped) << one.name;
    EXPECT_EQ(one.ttl, seconds::max()) << one.name;
  }
  EXPECT_EQ(channel_.num_queries(), 0);
}

TEST_F(DrivenChannel, gives_back_what_former_name_servers_owe_once_others_are_named) {
  StubDns dns([](const StubDns::Question&) { return StubDns::Answer{.is_silent = true}; });
  const TemporaryFolder folder;
  options_.resolv_conf = folder.path("resolv.conf");
  options_.port = static_cast<uint16_t>(std::stoi(dns.server().substr(dns.server().find(':') + 1)));
  std::ofstream(options_.resolv_conf) << "nameserver 127.0.0.1\n";
  ASSERT_TRUE(channel_.open().is_ok());
  channel_.ask("owed.example");
  EXPECT_TRUE(channel_.follow_resolv_conf().empty());
  std::ofstream(options_.resolv_conf) << "# being written\n";
  EXPECT_TRUE(channel_.follow_resolv_conf().empty());
  EXPECT_EQ(channel_.num_queries(), 1);
  std::ofstream(options_.resolv_conf) << "# another network\nnameserver 127.0.0.1\n";
  EXPECT_EQ(channel_.follow_resolv_conf(), std::vector<std::string>{"owed.example"});
  EXPECT_TRUE(answered_.empty());
  EXPECT_EQ(channel_.num_queries(), 0);
  EXPECT_TRUE(channel_.follow_resolv_conf().empty());
}

TEST_F(DrivenChannel, refuses_servers_that_are_no_addresses) {
  options_.servers = {"nowhere"};
  const Status status = channel_.open();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("nowhere"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace darkroom
