#include "darkroom/web/resolver.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/web/url_hop.h"
#include "support/stub_dns.h"
#include "support/temporary_folder.h"
#include "web/dns_cache.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Question = StubDns::Question;
using StubAnswer = StubDns::Answer;

std::string shown(const DnsAnswer& answer) {
  std::string text(dns_answer_name(answer.kind));
  for (const IpAddress& address : answer.addresses) {
    text += " " + address.to_string();
  }
  return text;
}

constexpr milliseconds kSoonGivenUp{500};  // A try, in tests that wait for its end.

// A resolver that asks one stub; it waits as long as an answer takes on a loaded machine, unless a test needs its tries to end.
class ResolverWeb {
 public:
  explicit ResolverWeb(StubDns::Script script, ResolverOptions options = {}, milliseconds try_time = std::chrono::minutes(5))
      : dns_(std::move(script)) {
    options.servers = {dns_.server()};
    options.hosts_file = hosts_file;
    options.try_time = try_time;
    options.num_tries = 2;
    auto resolver = start_resolver(options, clock, metrics);
    EXPECT_TRUE(resolver.is_ok()) << resolver.status().to_string();
    resolver_ = *std::move(resolver);
  }

  void begin(const std::string& host) { resolver_->resolve(host, keep(host)); }
  void begin_at_once(const std::string& host) { resolver_->resolve_at_once(host, keep(host)); }
  std::vector<DnsAnswer> wait_for(const std::string& host, size_t count = 1) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, seconds(60), [&] { return answers_[host].size() >= count; })) << host;
    return std::exchange(answers_[host], {});
  }
  DnsAnswer ask(const std::string& host) {
    begin(host);
    const auto answers = wait_for(host);
    return answers.empty() ? DnsAnswer{DnsAnswer::Kind::kStopped} : answers.front();
  }
  std::string asked(const std::string& host) { return shown(ask(host)); }
  StubDns& dns() { return dns_; }
  void end() { resolver_.reset(); }

  std::string hosts_file = "";
  FakeClock clock;
  MetricsRegistry metrics;

 private:
  std::function<void(const DnsAnswer&)> keep(const std::string& host) {
    return [this, host](const DnsAnswer& answer) {
      const std::lock_guard lock(mutex_);
      answers_[host].push_back(answer);
      changed_.notify_all();
    };
  }

  StubDns dns_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<DnsAnswer>> answers_;
  std::unique_ptr<Resolver> resolver_;
};

StubAnswer only(const Question& question, const StubDns::Record& record) {
  return question.type == record.type ? StubAnswer{.records = {record}} : StubAnswer{};
}

TEST(resolver, finds_the_addresses_of_both_families) {
  ResolverWeb web([](const Question& q) {
    return q.type == StubDns::kA
               ? StubAnswer{.records = {StubDns::a(q.name, "192.0.2.1"), StubDns::a(q.name, "192.0.2.2"), StubDns::a(q.name, "192.0.2.1")}}
               : StubAnswer{.records = {StubDns::aaaa(q.name, "2001:db8::1")}};
  });
  const DnsAnswer answer = web.ask("pictures.example");
  EXPECT_EQ(answer.kind, DnsAnswer::Kind::kOk);
  EXPECT_EQ(answer.addresses.size(), 3u);
  EXPECT_NE(shown(answer).find(" 192.0.2.1"), std::string::npos);
  EXPECT_NE(shown(answer).find(" 192.0.2.2"), std::string::npos);
  EXPECT_NE(shown(answer).find(" 2001:db8::1"), std::string::npos);
  EXPECT_FALSE(answer.is_from_cache);
  EXPECT_TRUE(web.ask("PICTURES.example.").is_from_cache);  // The same name.
  EXPECT_EQ(web.dns().num_questions(), 2);
}

TEST(resolver, asks_nobody_for_numbers_and_for_what_is_no_name) {
  ResolverWeb web([](const Question&) { return StubAnswer{.rcode = 3}; });
  EXPECT_EQ(web.asked("127.0.0.1"), "ok 127.0.0.1");
  EXPECT_EQ(web.asked("::1"), "ok ::1");
  EXPECT_EQ(web.asked(""), "no_name");
  EXPECT_EQ(web.asked(std::string(254, 'a')), "no_name");
  EXPECT_EQ(web.asked(std::string(64, 'a') + ".example"), "no_name");
  EXPECT_EQ(web.asked("a..example"), "no_name");
  EXPECT_EQ(web.asked(std::string("a\0.example", 10)), "no_name");
  EXPECT_EQ(web.dns().num_questions(), 0);
}

TEST(resolver, tells_no_such_name_from_servers_in_trouble) {
  ResolverWeb web(
      [](const Question& q) {
        if (q.name == "servfail.example") {
          return StubAnswer{.rcode = 2};
        }
        if (q.name == "refused.example") {
          return StubAnswer{.rcode = 5};
        }
        if (q.name == "silent.example") {
          return StubAnswer{.is_silent = true};
        }
        if (q.name == "empty.example") {
          return StubAnswer{};
        }
        if (q.name == "once.example" && q.number == 0) {
          return StubAnswer{.rcode = 2};
        }
        return q.name == "once.example" ? only(q, StubDns::a(q.name, "192.0.2.1")) : StubAnswer{.rcode = 3};
      },
      {}, kSoonGivenUp);
  EXPECT_EQ(web.asked("none.example"), "no_name");
  EXPECT_EQ(web.asked("empty.example"), "no_name");
  EXPECT_EQ(web.asked("servfail.example"), "server_failed");
  EXPECT_EQ(web.asked("refused.example"), "server_failed");
  EXPECT_EQ(web.asked("silent.example"), "timeout");
  EXPECT_EQ(web.asked("once.example"), "ok 192.0.2.1");  // A second try.
  const auto count = [&](const char* result) {
    return web.metrics.counter("darkroom_dns_total", "Look-ups by how they ended, those of the cache left out.", {{"result", result}})
        .value();
  };
  EXPECT_EQ(count("no_name"), 2);
  EXPECT_EQ(count("server_failed"), 2);
  EXPECT_EQ(count("timeout"), 1);
  EXPECT_EQ(count("ok"), 1);
}

TEST(resolver, keeps_answers_for_their_time_within_bounds) {
  ResolverWeb web([](const Question& q) {
    const uint32_t ttl = q.name == "zero.example" ? 0 : q.name == "long.example" ? 1'000'000 : 300;
    return q.name == "none.example" ? StubAnswer{.rcode = 3} : only(q, StubDns::a(q.name, "192.0.2." + std::to_string(q.number + 1), ttl));
  });
  const auto ask_all = [&] {
    std::string text;
    for (const char* host : {"zero.example", "five.example", "long.example", "none.example"}) {
      text += web.asked(host);
      text += web.ask(host).is_from_cache ? "; " : " (not kept); ";
    }
    return text;
  };
  EXPECT_EQ(ask_all(), "ok 192.0.2.1; ok 192.0.2.1; ok 192.0.2.1; no_name; ");
  EXPECT_EQ(web.dns().num_questions("none.example"), 2);
  web.clock.advance(seconds(59));
  EXPECT_EQ(ask_all(), "ok 192.0.2.1; ok 192.0.2.1; ok 192.0.2.1; no_name; ");
  EXPECT_EQ(web.dns().num_questions("none.example"), 4);  // Kept for 30 s.
  web.clock.advance(seconds(1));
  EXPECT_EQ(ask_all(), "ok 192.0.2.2; ok 192.0.2.1; ok 192.0.2.1; no_name; ");
  web.clock.advance(seconds(240));
  EXPECT_EQ(web.asked("five.example"), "ok 192.0.2.2");
  web.clock.advance(seconds(3'299));
  EXPECT_EQ(web.asked("long.example"), "ok 192.0.2.1");
  web.clock.advance(seconds(1));
  EXPECT_EQ(web.asked("long.example"), "ok 192.0.2.2");
}

TEST(resolver, follows_aliases_but_not_for_ever) {
  ResolverWeb web([](const Question& q) {
    if (q.name == "loop.example") {
      return StubAnswer{.records = {StubDns::cname("loop.example", "pool.example"), StubDns::cname("pool.example", "loop.example")}};
    }
    return q.type == StubDns::kA ? StubAnswer{.records = {StubDns::cname(q.name, "b.example"), StubDns::cname("b.example", "c.example"),
                                                          StubDns::a("c.example", "192.0.2.9")}}
                                 : StubAnswer{.records = {StubDns::cname(q.name, "b.example")}};
  });
  EXPECT_EQ(web.asked("a.example"), "ok 192.0.2.9");
  EXPECT_EQ(web.asked("loop.example"), "no_name");
}

TEST(resolver, reads_long_answers_over_tcp) {
  ResolverWeb web([](const Question& q) {
    if (q.type != StubDns::kA) {
      return StubAnswer{};
    }
    if (!q.is_tcp) {
      return StubAnswer{.is_truncated = true};
    }
    StubAnswer answer;
    for (int i = 0; i < 200; ++i) {
      answer.records.push_back(StubDns::a(q.name, "192.0.2." + std::to_string(i)));
    }
    return answer;
  });
  EXPECT_EQ(web.ask("many.example").addresses.size(), 16u);  // Who names more wants connections to be made, and memory.
}

TEST(resolver, asks_once_however_many_wait) {
  ResolverWeb web(
      [](const Question& q) {
        return q.number == 0 ? StubAnswer{.is_silent = true}
                             : only(q, StubDns::a(q.name, "192.0.2.1"));  // The first try is lost: all wait.
      },
      {}, 2 * kSoonGivenUp);
  for (int i = 0; i < 100; ++i) {
    web.begin("busy.example");
  }
  const auto answers = web.wait_for("busy.example", 100);
  EXPECT_EQ(answers.size(), 100u);
  for (const DnsAnswer& answer : answers) {
    EXPECT_EQ(shown(answer), "ok 192.0.2.1");
  }
  EXPECT_EQ(web.dns().num_questions(), 4);  // Two types, two tries.
}

TEST(resolver, asks_for_no_more_names_at_once_than_it_may) {
  ResolverOptions options;
  options.max_queries = 1;
  ResolverWeb web(
      [](const Question& q) {
        return q.name == "silent.example" ? StubAnswer{.is_silent = true} : only(q, StubDns::a(q.name, "192.0.2.1"));
      },
      options, kSoonGivenUp);
  web.begin("silent.example");
  EXPECT_EQ(web.asked("next.example"), "ok 192.0.2.1");
  EXPECT_EQ(shown(web.wait_for("silent.example").front()), "timeout");  // Had ended before the next one was sent:
  EXPECT_EQ(web.dns().num_questions("silent.example"), 4);
}

TEST(resolver, says_of_no_name_that_it_has_no_address_unless_it_heard_so_of_both_families) {
  ResolverWeb web(
      [](const Question& q) {  // One family fails at once, the other one has nothing, after a lost try.
        const bool fails = (q.type == StubDns::kA) == q.name.starts_with("a.");
        return fails ? StubAnswer{.rcode = 2} : q.number == 0 ? StubAnswer{.is_silent = true} : StubAnswer{};
      },
      {}, 2 * kSoonGivenUp);
  EXPECT_NE(web.asked("a.example"), "no_name");
  EXPECT_NE(web.asked("aaaa.example"), "no_name");
}

TEST(resolver, an_answer_says_when_its_query_was_sent) {
  ResolverWeb web(
      [](const Question& q) { return q.number == 0 ? StubAnswer{.is_silent = true} : only(q, StubDns::a(q.name, "192.0.2.1")); }, {},
      2 * kSoonGivenUp);
  const auto before = std::chrono::steady_clock::now();
  web.begin("busy.example");
  while (web.dns().num_questions("busy.example") == 0) {
    std::this_thread::yield();
  }
  const auto asked = std::chrono::steady_clock::now();
  web.begin("busy.example");
  for (const DnsAnswer& answer : web.wait_for("busy.example", 2)) {
    EXPECT_GE(answer.asked_at, before);
    EXPECT_LE(answer.asked_at, asked);
  }
}

TEST(resolver, asks_at_once_past_silent_names) {
  ResolverOptions options;
  options.max_queries = 1;
  ResolverWeb web(
      [](const Question& q) {
        return q.name.starts_with("silent") ? StubAnswer{.is_silent = true} : only(q, StubDns::a(q.name, "192.0.2.1"));
      },
      options);
  web.begin("silent1.example");
  web.begin("silent2.example");
  web.begin_at_once("now.example");
  EXPECT_EQ(shown(web.wait_for("now.example").front()), "ok 192.0.2.1");
  EXPECT_EQ(web.dns().num_questions("silent2.example"), 0);
}

TEST(resolver, answers_to_all_when_it_ends) {
  ResolverWeb web([](const Question&) { return StubAnswer{.is_silent = true}; });
  for (int i = 0; i < 300; ++i) {  // More than may be asked for at once.
    web.begin("host" + std::to_string(i) + ".example");
  }
  web.end();
  for (int i = 0; i < 300; ++i) {
    const std::string host = "host" + std::to_string(i) + ".example";
    EXPECT_EQ(shown(web.wait_for(host).at(0)), "stopped") << host;
  }
}

TEST(resolver, gives_a_hop_no_private_address_even_when_the_name_changes_its_mind) {
  // DNS rebinding: public at first, private the next time. The hop connects to what was checked.
  ResolverWeb web([](const Question& q) { return only(q, StubDns::a(q.name, q.number == 0 ? "8.8.8.8" : "127.0.0.1", 0)); });
  const HopPolicy policy;
  const auto hop = UrlHop::parse("http://rebind.example/", policy);
  const auto first = allowed_addresses(*hop, web.ask("rebind.example").addresses, policy);
  ASSERT_TRUE(first.is_ok());
  EXPECT_EQ(first->at(0).to_string(), "8.8.8.8:80");
  web.clock.advance(seconds(60));
  EXPECT_EQ(allowed_addresses(*hop, web.ask("rebind.example").addresses, policy).error().name(), "blocked_host");
}

TEST(resolver, reads_the_hosts_file) {
  const TemporaryFolder folder;
  std::ofstream(folder.path("hosts")) << "# comment\n127.0.0.1 localhost loop # more\n\n::1 localhost\nnonsense x\n192.0.2.7\tStore.Lan.\n";
  MetricsRegistry metrics;
  const auto resolver = start_resolver({.servers = {"127.0.0.1:1"}, .hosts_file = folder.path("hosts")}, system_clock(), metrics);
  ASSERT_TRUE(resolver.is_ok()) << resolver.status().to_string();
  std::string all;
  for (const char* host : {"localhost", "loop", "store.lan"}) {
    (*resolver)->resolve(host, [&](const DnsAnswer& answer) { all += shown(answer) + "; "; });
  }
  EXPECT_EQ(all, "ok 127.0.0.1 ::1; ok 127.0.0.1; ok 192.0.2.7; ");
}

// A name server on 127.0.0.2 that says nothing.
class SilentDns {
 public:
  explicit SilentDns(uint16_t port) {
    const sockaddr_storage place = SocketAddress{*IpAddress::parse("127.0.0.2"), port}.to_sockaddr();
    is_bound_ = bind(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof(sockaddr_in)) == 0;
  }
  ~SilentDns() { ::close(socket_); }
  SilentDns(const SilentDns&) = delete;
  SilentDns& operator=(const SilentDns&) = delete;
  // False: somebody else has the port.
  bool is_bound() const { return is_bound_; }
  // Whether a question comes that holds this part of a name.
  bool is_asked_for(std::string_view label) const {
    std::array<char, 512> bytes{};
    pollfd waited{.fd = socket_, .events = POLLIN, .revents = 0};
    while (poll(&waited, 1, 60'000) == 1) {
      const ssize_t num_bytes = recv(socket_, bytes.data(), bytes.size(), 0);
      if (num_bytes > 0 && std::string_view(bytes.data(), static_cast<size_t>(num_bytes)).find(label) != std::string_view::npos) {
        return true;
      }
    }
    return false;
  }

 private:
  const int socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  bool is_bound_ = false;
};

// Two name servers at the same port.
struct TwoServers {
  TwoServers() {
    for (int i = 0; i < 16 && !(former && former->is_bound()); ++i) {
      next.emplace([](const Question& q) { return only(q, StubDns::a(q.name, "192.0.2.1")); });
      port = static_cast<uint16_t>(std::stoi(next->server().substr(next->server().find(':') + 1)));
      former.emplace(port);
    }
  }
  std::optional<StubDns> next;      // On 127.0.0.1.
  std::optional<SilentDns> former;  // On 127.0.0.2.
  uint16_t port = 0;
};

TEST(resolver, asks_the_name_servers_of_a_resolv_conf_that_has_changed_also_what_waits_for_the_former_ones) {
  const TemporaryFolder folder;
  const TwoServers servers;
  ASSERT_TRUE(servers.former->is_bound());
  std::ofstream(folder.path("resolv.conf")) << "nameserver 127.0.0.2\n";
  ResolverOptions options;
  options.resolv_conf = folder.path("resolv.conf");
  options.port = servers.port;
  options.hosts_file = "";
  options.try_time = std::chrono::minutes(5);
  options.num_tries = 1;
  MetricsRegistry metrics;
  std::promise<std::string> waits, early, gone, late;
  const auto resolver = start_resolver(options, system_clock(), metrics);
  ASSERT_TRUE(resolver.is_ok()) << resolver.status().to_string();
  (*resolver)->resolve("waits.example", [&](const DnsAnswer& answer) { waits.set_value(shown(answer)); });
  ASSERT_TRUE(servers.former->is_asked_for("waits"));
  std::ofstream(folder.path("resolv.conf")) << "# being written\n";  // It names no server yet.
  (*resolver)->resolve("early.example", [&](const DnsAnswer& answer) { early.set_value(shown(answer)); });
  ASSERT_TRUE(servers.former->is_asked_for("early"));
  std::filesystem::remove(folder.path("resolv.conf"));  // As between the two steps of who writes it anew.
  (*resolver)->resolve("gone.example", [&](const DnsAnswer& answer) { gone.set_value(shown(answer)); });
  std::ofstream(folder.path("anew")) << "# another network\nnameserver 127.0.0.1\n";
  std::filesystem::rename(folder.path("anew"), folder.path("resolv.conf"));
  (*resolver)->resolve_at_once("late.example", [&](const DnsAnswer& answer) { late.set_value(shown(answer)); });
  EXPECT_EQ(late.get_future().get(), "ok 192.0.2.1");
  EXPECT_EQ(waits.get_future().get(), "ok 192.0.2.1");
  EXPECT_EQ(early.get_future().get(), "ok 192.0.2.1");
  EXPECT_EQ(gone.get_future().get(), "ok 192.0.2.1");
}

TEST(resolver, takes_all_addresses_of_a_name_from_one_search_domain_and_a_final_dot_at_its_word) {
  ASSERT_EQ(setenv("LOCALDOMAIN", "one.test two.test", 1), 0);
  ResolverWeb web(
      [](const Question& q) {
        if (q.name == "node-3.one.test") {
          return only(q, StubDns::aaaa(q.name, "2001:db8::1"));
        }
        return q.name == "node-3.two.test" ? only(q, StubDns::a(q.name, "192.0.2.1")) : StubAnswer{.rcode = 3};
      },
      {.uses_search_domains = true});
  EXPECT_EQ(web.asked("Node-3"), "ok 2001:db8::1");
  EXPECT_EQ(web.asked("node-3."), "no_name");
  EXPECT_EQ(web.asked("127.0.0.1"), "ok 127.0.0.1");
  unsetenv("LOCALDOMAIN");
}

TEST(resolver, refuses_options_that_make_no_sense) {
  MetricsRegistry metrics;
  const auto code = [&](const ResolverOptions& options) { return start_resolver(options, system_clock(), metrics).status().code(); };
  EXPECT_EQ(code({.servers = {"no.address"}}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.try_time = milliseconds(0)}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.num_tries = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.max_queries = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.shortest_life = seconds(10), .longest_life = seconds(9)}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.negative_life = seconds(-1)}), StatusCode::kInvalidArgument);
}

TEST(dns_cache, forgets_what_was_asked_for_longest_ago) {
  DnsCache cache(2);
  const Clock::Instant now{};
  cache.keep("a", {}, seconds(60), now);
  cache.keep("b", {}, seconds(60), now);
  EXPECT_TRUE(cache.find("a", now).has_value());
  cache.keep("c", {}, seconds(60), now);
  EXPECT_FALSE(cache.find("b", now).has_value());
  EXPECT_TRUE(cache.find("a", now).has_value());
  EXPECT_TRUE(cache.find("c", now).has_value());
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_FALSE(cache.find("a", now + seconds(60)).has_value());
  EXPECT_EQ(cache.size(), 1u);
  cache.keep("c", {DnsAnswer::Kind::kNoName}, seconds(60), now);
  EXPECT_EQ(cache.find("c", now)->kind, DnsAnswer::Kind::kNoName);
  cache.keep("d", {}, seconds(0), now);
  EXPECT_FALSE(cache.find("d", now).has_value());
}

}  // namespace
}  // namespace darkroom
