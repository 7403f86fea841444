#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "darkroom/web/fetch.h"
#include "fetch_web.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;

TEST(fetch_safety, refuses_urls_that_it_must_not_send) {
  FetchWeb web;
  web.start();
  const std::string host = fmt::format("127.0.0.1:{}", web.web().port());
  const auto fetcher = make_fetcher(web.options());
  for (const std::string& url : {std::string(),
                                 std::string(" "),
                                 std::string("not a url"),
                                 std::string("pictures/1.jpg"),
                                 std::string("//example.com/1.jpg"),
                                 std::string("http://"),

                                 std::string("https://"),
                                 host + "/a.jpg",
                                 "ftp://" + host + "/a.jpg",
                                 std::string("file:///etc/passwd"),
                                 std::string("data:image/png;base64,AAAA"),
                                 "gopher://" + host + "/",
                                 "dict://" + host + "/",
                                 "HTTP+unix://" + host,
                                 "http://user@" + host + "/",
                                 "http://user:secret@" + host + "/",
                                 "http://:@" + host + "/",
                                 "http://" + host + "x/",
                                 std::string("http://127.0.0.1:99999/"),
                                 std::string("http://[::1/"),
                                 std::string("http://a b.com/"),
                                 std::string("http://exa\tmple.com/"),
                                 std::string("http://example.com/\r\nX: y"),
                                 "http://" + host + "/" + std::string(20'000, 'a'),
                                 std::string("http://example.com/\0.jpg", 24)}) {
    const FetchReply reply = fetch_with(*fetcher, url);
    EXPECT_EQ(outcome(reply), "bad_url") << url;
    EXPECT_EQ(reply.num_retries, 0);
  }
  EXPECT_EQ(web.web().num_connections(), 0);
  EXPECT_EQ(fetcher->stats().num_attempts, 0);
}

TEST(fetch_safety, takes_no_url_as_relative_to_the_one_before) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  const auto fetcher = make_fetcher(web.options());
  for (const char* url : {"a.jpg", "/a.jpg", "./a.jpg", "?a", "#a", "//a.jpg", "http://", "http:a.jpg", "http:/a.jpg", ""}) {
    EXPECT_EQ(outcome(fetch_with(*fetcher, web.url("/a.jpg"))), "ok");
    EXPECT_NE(outcome(fetch_with(*fetcher, url)), "ok") << url;
  }
  EXPECT_EQ(web.web().num_requests(), 10);
}

TEST(fetch_safety, connects_to_no_private_address_however_it_is_written) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  FetchOptions options = web.options();
  options.allow_private.clear();
  const auto fetcher = make_fetcher(options);
  const std::string end = fmt::format(":{}/a.jpg", web.web().port());
  for (const char* host : {"127.0.0.1",
                           "127.1",
                           "127.0.1",
                           "0x7f.1",
                           "0x7f000001",
                           "2130706433",
                           "017700000001",
                           "0177.0.0.01",
                           "0",
                           "0.0.0.0",
                           "localhost",
                           "LOCALHOST",
                           "localhost.",
                           "a.localhost",
                           "127.0.0.1.",
                           "127.255.255.254",
                           "[::1]",
                           "[::]",
                           "[0:0:0:0:0:0:0:1]",
                           "[::ffff:127.0.0.1]",
                           "[::ffff:7f00:1]",
                           "[::127.0.0.1]",
                           "[64:ff9b::7f00:1]",
                           "[64:ff9b::a9fe:a9fe]",
                           "[2002:7f00:1::]",
                           "[fe80::1]",
                           "[fd00:ec2::254]",
                           "10.0.0.1",
                           "0xa000001",
                           "169.254.169.254",
                           "2852039166",
                           "0xa9fea9fe",
                           "0251.0376.0251.0376",
                           "192.168.0.1",
                           "172.16.0.1",
                           "100.64.0.1",
                           "100.100.100.200",
                           "168.63.129.16",
                           "192.0.0.192",
                           "224.0.0.1",
                           "255.255.255.255",
                           "\xEF\xBC\x91\xEF\xBC\x92\xEF\xBC\x97.0.0.1",
                           "%31%32%37.0.0.1"}) {
    const FetchReply reply = fetch_with(*fetcher, std::string("http://") + host + end);
    EXPECT_TRUE(outcome(reply) == "blocked_host" || outcome(reply) == "bad_url" || outcome(reply) == "dns")
        << host << " " << outcome(reply);
    EXPECT_EQ(reply.num_retries, 0) << host;
  }
  EXPECT_EQ(outcome(fetch_with(*fetcher, "http://0x7f.1" + end)), "blocked_host");
  EXPECT_EQ(outcome(fetch_with(*fetcher, "http://2130706433" + end)), "blocked_host");
  EXPECT_EQ(outcome(fetch_with(*fetcher, "http://localhost" + end)), "blocked_host");
  EXPECT_EQ(outcome(fetch_with(*fetcher, "https://169.254.169.254/latest/meta-data/")), "blocked_host");
  EXPECT_EQ(web.web().num_connections(), 0);
  EXPECT_EQ(fetcher->stats().num_connections, 0);
}

TEST(fetch_safety, allows_a_private_network_on_its_port_only) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  FetchOptions options = web.options_without_probes();
  options.allow_private = {*AllowedNetwork::parse("127.0.0.0/8")};
  EXPECT_EQ(outcome(fetch_one(options, web.url("/a.jpg"))), "ok");
  options.allow_private = {*AllowedNetwork::parse("127.0.0.0/8:1")};
  EXPECT_EQ(outcome(fetch_one(options, web.url("/a.jpg"))), "blocked_host");
  EXPECT_EQ(web.web().num_connections(), 1);
}

TEST(fetch_safety, checks_the_address_again_at_every_redirect) {
  FetchWeb inner;
  inner.add_route("/secret", {});
  inner.start();
  FetchWeb web;
  web.add_route("/1", {{"trouble", "redirect_private"}, {"location", inner.url("/secret")}});
  for (int hop = 2; hop <= 5; ++hop) {
    web.add_route(fmt::format("/{}", hop), {{"trouble", "redirect"}, {"location", fmt::format("/{}", hop - 1)}});
  }
  for (const auto& [path, location] :
       {std::pair("/private", "http://10.0.0.1/"), std::pair("/metadata", "http://169.254.169.254/latest/meta-data/"),
        std::pair("/ipv6", "http://[fc00::1]/"), std::pair("/mapped", "http://[::ffff:10.0.0.1]/"),
        std::pair("/decimal", "http://2852039166/"), std::pair("/tls", "https://192.168.1.1/")}) {
    web.add_route(path, {{"trouble", "redirect_private"}, {"location", location}});
  }
  web.start();
  const auto fetcher = make_fetcher(web.options_without_probes());
  for (const char* path : {"/1", "/2", "/3", "/4", "/5", "/private", "/metadata", "/ipv6", "/mapped", "/decimal", "/tls"}) {
    const FetchReply reply = fetch_with(*fetcher, web.url(path));
    EXPECT_EQ(outcome(reply), "blocked_host") << path;
    EXPECT_EQ(reply.num_retries, 0) << path;
  }
  EXPECT_EQ(inner.web().num_connections(), 0);
  EXPECT_EQ(fetcher->stats().num_connections, web.web().num_connections());
  EXPECT_EQ(fetcher->stats().num_refused, 11);
}

TEST(fetch_safety, follows_no_redirect_to_another_scheme_or_with_a_user_name) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.add_route("/file", {{"trouble", "redirect"}, {"location", "file:///etc/passwd"}});
  web.add_route("/ftp", {{"trouble", "redirect"}, {"location", "ftp://127.0.0.1/a.jpg"}});
  web.add_route("/gopher", {{"trouble", "redirect"}, {"location", "gopher://127.0.0.1/"}});
  web.add_route("/user", {{"trouble", "redirect"}, {"location", "http://user:secret@127.0.0.1/"}});
  web.start();
  const auto fetcher = make_fetcher(web.options());
  for (const char* path : {"/file", "/ftp", "/gopher", "/user"}) {
    EXPECT_EQ(outcome(fetch_with(*fetcher, web.url(path))), "bad_url") << path;
  }
}

TEST(fetch_safety, ignores_the_proxies_of_the_environment) {
  FetchWeb proxy;
  proxy.start();
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  setenv("http_proxy", proxy.url("").c_str(), 1);
  setenv("all_proxy", proxy.url("").c_str(), 1);
  EXPECT_EQ(outcome(fetch_one(web.options(), web.url("/a.jpg"))), "ok");
  unsetenv("http_proxy");
  unsetenv("all_proxy");
  EXPECT_EQ(proxy.web().num_connections(), 0);
}

TEST(fetch_safety, tells_names_that_do_not_resolve) {
  FetchWeb web;
  web.start();
  // A label of more than 63 letters is refused by the resolver itself, without a network.
  const FetchReply reply = fetch_one(web.options(), "http://" + std::string(70, 'a') + ".example/1.jpg");
  EXPECT_EQ(outcome(reply), "dns");
  EXPECT_EQ(reply.num_retries, 0);
}

TEST(fetch_safety, tells_refused_connections_and_retries_them) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  const std::string url = web.url("/a.jpg");
  const FetchOptions options = web.options();
  web.web().stop();
  const FetchReply reply = fetch_one(options, url);
  EXPECT_EQ(outcome(reply), "connect");
  EXPECT_EQ(reply.num_retries, 2);
}

TEST(fetch_safety, a_server_that_closes_at_a_handshake_is_a_broken_connection) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  const FetchReply reply = fetch_one(web.options(), fmt::format("https://127.0.0.1:{}/a.jpg", web.web().port()));
  EXPECT_EQ(outcome(reply), "connect");
}

TEST(fetch_safety, stops_a_body_at_the_cap_announced_or_not) {
  FetchWeb web;
  web.add_route("/length", {});
  web.add_route("/chunked", {{"trouble", "chunked"}});
  web.add_route("/endless", {{"trouble", "endless"}});
  web.start();
  FetchOptions options = web.options();
  options.max_body_bytes = FetchWeb::kPictureBytes;
  EXPECT_EQ(outcome(fetch_one(options, web.url("/length"))), "ok");
  EXPECT_EQ(outcome(fetch_one(options, web.url("/chunked"))), "ok");
  options.max_body_bytes = FetchWeb::kPictureBytes - 1;
  const FetchReply announced = fetch_one(options, web.url("/length"));
  EXPECT_EQ(outcome(announced), "too_large");
  EXPECT_EQ(announced.num_bytes, 0);  // Known from the headers.
  EXPECT_EQ(outcome(fetch_one(options, web.url("/chunked"))), "too_large");
  const FetchReply endless = fetch_one(options, web.url("/endless"));
  EXPECT_EQ(outcome(endless), "too_large");
  EXPECT_EQ(endless.num_retries, 0);
  EXPECT_LE(endless.num_bytes, options.max_body_bytes + 65'536);
}

TEST(fetch_safety, stops_endless_headers) {
  FetchWeb web;
  web.add_route("/a.jpg", {{"trouble", "huge_headers"}});
  web.start();
  EXPECT_EQ(outcome(fetch_one(web.options(), web.url("/a.jpg"))), "too_large");
}

TEST(fetch_safety, does_not_read_long_error_pages_to_their_end) {
  FetchWeb web;
  web.add_route("/404", {{"trouble", "endless"}, {"status", 404}});
  web.add_route("/503", {{"trouble", "endless"}, {"status", 503}});
  web.start();
  const FetchReply lasting = fetch_one(web.options(), web.url("/404"));
  EXPECT_EQ(outcome(lasting), "http_404");
  EXPECT_LE(lasting.num_bytes, 200'000);
  const FetchReply retried = fetch_one(web.options(), web.url("/503"));
  EXPECT_EQ(outcome(retried), "http_503");
  EXPECT_EQ(retried.num_retries, 2);
}

TEST(fetch_safety, respects_noai_before_the_body) {
  FetchWeb web;
  web.add_route("/noai", {{"trouble", "noai"}});
  web.add_route("/both", {{"trouble", "noai"}, {"value", "noindex, NoImageAI"}});
  web.add_route("/ours", {{"trouble", "noai"}, {"value", "darkroom: noai"}});
  web.add_route("/other", {{"trouble", "noai"}, {"value", "otherbot: noai"}});
  web.add_route("/moved", {{"trouble", "redirect"}, {"location", "/noai"}});
  web.start();
  for (const char* path : {"/noai", "/both", "/ours", "/moved"}) {
    const FetchReply reply = fetch_one(web.options(), web.url(path));
    EXPECT_EQ(outcome(reply), "opted_out") << path;
    EXPECT_EQ(reply.num_bytes, path == std::string("/moved") ? 6 : 0) << path;  // What the redirect's own body has.
    EXPECT_EQ(reply.num_retries, 0) << path;
  }
  EXPECT_EQ(outcome(fetch_one(web.options(), web.url("/other"))), "ok");
  FetchOptions options = web.options();
  options.respect.noai = false;
  EXPECT_EQ(outcome(fetch_one(options, web.url("/noai"))), "ok");
}

TEST(fetch_safety, reads_robots_tags) {
  const std::vector<std::string> forbidding = {"noai",
                                               " NOAI ",
                                               "noindex,noai",
                                               "noimageai",
                                               "darkroom: noai",
                                               "DarkRoom:noindex, noimageai",
                                               "*: noai",
                                               "otherbot: noindex, darkroom: noai",
                                               "unavailable_after: 25 Jun 2030 15:00:00 PST, noai",
                                               "max-snippet: 5, noai"};
  const std::vector<std::string> allowing = {
      "", ",", ":", "all", "noindex", "noaix", "no ai", "otherbot: noai", "otherbot: noindex, noai", "darkroom: all, otherbot: noai"};
  FetchWeb web;
  for (const auto* tags : {&forbidding, &allowing}) {
    for (size_t i = 0; i < tags->size(); ++i) {
      web.add_route(fmt::format("{}{}", tags == &allowing ? "/allow" : "/forbid", i), {{"trouble", "noai"}, {"value", (*tags)[i]}});
    }
  }
  web.start();
  const auto fetcher = make_fetcher(web.options());
  for (size_t i = 0; i < forbidding.size(); ++i) {
    EXPECT_EQ(outcome(fetch_with(*fetcher, web.url(fmt::format("/forbid{}", i)))), "opted_out") << forbidding[i];
  }
  for (size_t i = 0; i < allowing.size(); ++i) {
    EXPECT_EQ(outcome(fetch_with(*fetcher, web.url(fmt::format("/allow{}", i)))), "ok") << allowing[i];
  }
}

TEST(fetch_safety, holds_no_more_bytes_than_the_limit_and_one_body) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  FetchOptions options = web.options();
  options.max_body_bytes = FetchWeb::kPictureBytes;
  for (const int64_t limit : {int64_t{1}, int64_t{50'000}, int64_t{150'000}, int64_t{400'000}}) {
    options.max_bytes_in_flight = limit;
    const auto fetcher = make_fetcher(options);
    for (uint64_t id = 0; id < 40; ++id) {
      ASSERT_TRUE(fetcher->submit({id, web.url("/a.jpg")}));
    }
    fetcher->close();
    int num_replies = 0;
    while (const auto reply = fetcher->next()) {
      ASSERT_EQ(outcome(*reply), "ok");
      EXPECT_EQ(*reply->body, web.picture());
      ++num_replies;
    }
    EXPECT_EQ(num_replies, 40);
    EXPECT_LE(fetcher->stats().peak_bytes_in_flight, limit + options.max_body_bytes) << limit;
    EXPECT_EQ(fetcher->stats().bytes_in_flight, 0);
  }
}

TEST(fetch_safety, the_byte_limit_holds_while_nobody_takes_and_stops_deadlines) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  FetchOptions options = web.options();
  options.timeout = milliseconds(2'000);
  options.max_body_bytes = FetchWeb::kPictureBytes;
  options.max_bytes_in_flight = 250'000;
  const auto fetcher = make_fetcher(options);
  for (uint64_t id = 0; id < 40; ++id) {
    ASSERT_TRUE(fetcher->submit({id, web.url("/a.jpg")}));
  }
  fetcher->close();
  std::this_thread::sleep_for(2 * options.timeout);  // Past the deadline of every transfer that is held up.
  EXPECT_LE(fetcher->stats().peak_bytes_in_flight, options.max_bytes_in_flight + options.max_body_bytes);
  int num_ok = 0;
  while (const auto reply = fetcher->next()) {
    num_ok += outcome(*reply) == "ok" ? 1 : 0;
  }
  EXPECT_EQ(num_ok, 40);
}

}  // namespace
}  // namespace darkroom
