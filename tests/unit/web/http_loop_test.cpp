#include "darkroom/web/http_loop.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "fetch_web.h"
#include "http_caller.h"
#include "support/http_answers.h"
#include "support/scripted_server.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Answer = ScriptedServer::Answer;
using Request = ScriptedServer::Request;

constexpr const char* kOk = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

// A request to a name that no resolver knows, at the server's address.
HttpRequest to(const ScriptedServer& server, const std::string& path = "/", const std::string& host = "pictures.invalid") {
  return {.url = "http://" + host + path, .connect_to = SocketAddress{*IpAddress::parse("127.0.0.1"), server.port()}};
}

Answer always(const std::string& bytes, Answer::Then then = Answer::Then::kClose) { return {bytes, then}; }

// How an exchange ends that is answered with these bytes.
HttpResult ask(const std::string& bytes, Answer::Then then = Answer::Then::kClose, HttpLimits limits = {}) {
  const ScriptedServer server([&](const Request&) { return always(bytes, then); });
  HttpCaller caller;
  RecordingSink sink;
  HttpRequest request = to(server);
  request.limits = limits;
  return caller.perform(request, sink);
}

std::string end_name(const HttpResult& result) { return std::string(http_end_name(result.end)); }

TEST(http_loop, gets_a_body_and_its_headers) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  HttpCaller caller;
  RecordingSink sink;
  const HttpResult result = caller.perform({.url = web.url("/a.jpg")}, sink);
  EXPECT_EQ(result.end, HttpEnd::kAnswered) << result.detail;
  EXPECT_EQ(result.head.status, 200);
  EXPECT_EQ(result.head.find("CONTENT-type"), "image/jpeg");
  EXPECT_EQ(result.head.content_length, static_cast<int64_t>(FetchWeb::kPictureBytes));
  EXPECT_EQ(sink.body, web.picture());
  EXPECT_EQ(sink.num_heads, 1);
  EXPECT_LE(sink.longest_piece, 16'384u);
  EXPECT_EQ(result.num_bytes, static_cast<int64_t>(FetchWeb::kPictureBytes));
  ASSERT_TRUE(result.peer.has_value());
  EXPECT_EQ(result.peer->to_string(), "127.0.0.1:" + std::to_string(web.web().port()));
  ASSERT_TRUE(result.connected_after && result.first_byte_after);
  EXPECT_LE(*result.connected_after, *result.first_byte_after);
  EXPECT_LE(*result.first_byte_after, result.ended_after);
}

struct TroubleCase {
  const char* name;
  nlohmann::json route;
  const char* end;
  int status;
};

TEST(http_loop, ends_every_trouble_of_the_web_by_its_name) {
  const std::vector<TroubleCase> cases = {
      {"none", nlohmann::json::object(), "answered", 200},
      {"status", {{"trouble", "status"}, {"status", 503}}, "answered", 503},
      {"retry_after", {{"trouble", "retry_after"}}, "answered", 429},
      {"truncated", {{"trouble", "truncated"}}, "truncated", 200},
      {"redirect", {{"trouble", "redirect"}, {"location", "/none"}}, "answered", 302},
      {"redirect_loop", {{"trouble", "redirect_loop"}}, "answered", 302},
      {"slow_drip", {{"trouble", "slow_drip"}, {"bytes_per_second", 10}}, "deadline", 200},
      {"reset", {{"trouble", "reset"}}, "broken", 0},
      {"hang", {{"trouble", "hang"}}, "deadline", 0},
      {"garbage", {{"trouble", "garbage"}}, "not_http", 0},
      {"chunked", {{"trouble", "chunked"}}, "answered", 200},
      {"cut_chunks", {{"trouble", "cut_chunks"}}, "truncated", 200},
      {"endless", {{"trouble", "endless"}}, "body_too_large", 200},
      {"huge_headers", {{"trouble", "huge_headers"}}, "headers_too_large", 0},
      {"noai", {{"trouble", "noai"}}, "answered", 200},
      {"gzip_label", {{"trouble", "gzip_label"}}, "answered", 200},
  };
  FetchWeb web;
  for (const TroubleCase& trouble : cases) {
    web.add_route(std::string("/") + trouble.name, trouble.route);
  }
  web.start();
  HttpCaller caller;
  for (const TroubleCase& trouble : cases) {
    RecordingSink sink;
    HttpRequest request{.url = web.url(std::string("/") + trouble.name)};
    request.limits.max_body_bytes = 200'000;
    if (std::string_view(trouble.end) == "deadline") {
      request.limits.total = seconds(2);  // In which its head has come, on any machine.
    }
    const HttpResult result = caller.perform(request, sink);
    EXPECT_EQ(end_name(result), trouble.end) << trouble.name << ": " << result.detail;
    EXPECT_EQ(result.head.status, trouble.status) << trouble.name;
    EXPECT_EQ(result.detail.empty(), result.end == HttpEnd::kAnswered) << trouble.name;
    EXPECT_EQ(result.num_bytes, static_cast<int64_t>(sink.body.size())) << trouble.name;
    if (trouble.status == 200 && result.end == HttpEnd::kAnswered) {
      EXPECT_EQ(sink.body, web.picture()) << trouble.name;  // Also what is labelled gzip: as served.
    }
  }
}

TEST(http_loop, tells_a_refused_connection_from_a_refused_address) {
  HttpCaller caller;
  RecordingSink sink;
  const SocketAddress nobody{*IpAddress::parse("127.0.0.1"), closed_port()};
  HttpResult result = caller.perform({.url = "http://pictures.invalid/", .connect_to = nobody}, sink);
  EXPECT_EQ(end_name(result), "connection_refused") << result.detail;
  EXPECT_FALSE(may_be_own_network(result.end));

  const ScriptedServer server([](const Request&) { return always(kOk); });
  const AddressPolicy policy;
  HttpRequest request = to(server);
  request.policy = &policy;
  result = caller.perform(request, sink);
  EXPECT_EQ(end_name(result), "refused_address");
  EXPECT_EQ(result.detail, "the address is not allowed: 127.0.0.1:" + std::to_string(server.port()));
  EXPECT_EQ(server.num_connections(), 0);

  request.connect_to.reset();
  request.url = "http://localhost:" + std::to_string(server.port()) + "/";  // Resolved by the system, checked all the same.
  EXPECT_EQ(end_name(caller.perform(request, sink)), "refused_address");
  EXPECT_EQ(server.num_connections(), 0);
}

TEST(http_loop, connects_to_the_given_address_only_and_never_shares_a_connection_between_names) {
  const ScriptedServer server([](const Request&) { return always(kOk, Answer::Then::kNext); });
  HttpCaller caller;
  for (const char* host : {"a.invalid", "b.invalid", "a.invalid", "A.invalid"}) {
    RecordingSink sink;
    EXPECT_EQ(end_name(caller.perform(to(server, "/", host), sink)), "answered");
    EXPECT_EQ(sink.body, "ok");
  }
  EXPECT_EQ(server.num_connections(), 2);
  EXPECT_NE(server.requests()[1].head.find("Host: b.invalid\r\n"), std::string::npos);

  const ScriptedServer other([](const Request&) { return always(kOk, Answer::Then::kNext); });
  RecordingSink sink;
  EXPECT_EQ(end_name(caller.perform(to(other, "/", "a.invalid"), sink)), "answered");  // The same name, elsewhere.
  EXPECT_EQ(other.num_connections(), 1);
}

TEST(http_loop, keeps_connections_as_it_is_told) {
  const ScriptedServer server([](const Request&) { return always(kOk, Answer::Then::kNext); });
  HttpCaller caller;
  RecordingSink sink;
  HttpRequest request = to(server);
  caller.perform(request, sink);
  caller.perform(request, sink);
  EXPECT_EQ(server.num_connections(), 1);
  request.needs_new_connection = true;
  caller.perform(request, sink);
  EXPECT_EQ(server.num_connections(), 2);
  request = to(server);
  request.may_keep_connection = false;
  caller.perform(request, sink);
  caller.perform(to(server), sink);
  EXPECT_LE(server.num_connections(), 3);
  EXPECT_EQ(caller.metrics().counter("darkroom_http_connections_total", "Sockets opened by the HTTP loops.").value(),
            server.num_connections());
}

TEST(http_loop, sends_the_request_as_it_is) {
  const ScriptedServer server([](const Request&) { return always(kOk, Answer::Then::kNext); });
  HttpCaller caller;
  RecordingSink sink;
  HttpRequest request = to(server, "/a/./b/../c//d%2e%2E/?x=../y&z=%C3%BC#part");
  request.headers = {{"Range", "bytes=0-9"}, {"X-Empty", ""}};
  EXPECT_EQ(end_name(caller.perform(request, sink)), "answered");
  const std::string head = server.requests()[0].head;
  EXPECT_TRUE(head.starts_with("GET /a/./b/../c//d%2e%2E/?x=../y&z=%C3%BC HTTP/1.1\r\n")) << head;
  EXPECT_NE(head.find("\r\nRange: bytes=0-9\r\n"), std::string::npos) << head;
  EXPECT_NE(head.find("\r\nX-Empty:\r\n"), std::string::npos) << head;
  for (const char* unasked : {"TE:", "Accept-Encoding", "Expect", "Referer", "Authorization", "Cookie", "Upgrade", "Transfer-Encoding"}) {
    EXPECT_EQ(head.find(unasked), std::string::npos) << head;
  }
}

TEST(http_loop, sends_bodies_and_forgets_them_for_the_next_request) {
  const ScriptedServer server([](const Request&) { return always(kOk, Answer::Then::kNext); });
  HttpCaller caller;
  RecordingSink sink;
  const std::string first(300'001, 'a');
  const std::string last = "z";
  HttpRequest put = to(server, "/put");
  put.method = "PUT";
  put.body = {std::as_bytes(std::span(first)), {}, std::as_bytes(std::span(last))};
  EXPECT_EQ(end_name(caller.perform(put, sink)), "answered");
  for (const char* method : {"POST", "PUT", "DELETE", "GET", "HEAD", "GET"}) {
    HttpRequest request = to(server, "/");
    request.method = method;
    if (request.method != "HEAD") {  // The script answers with a body.
      EXPECT_EQ(end_name(caller.perform(request, sink)), "answered") << method;
    } else {
      request.may_keep_connection = false;
      EXPECT_EQ(end_name(caller.perform(request, sink)), "answered") << method;
    }
  }
  const auto requests = server.requests();
  ASSERT_EQ(requests.size(), 7u);
  EXPECT_TRUE(requests[0].head.starts_with("PUT /put "));
  EXPECT_EQ(requests[0].body, first + last);
  EXPECT_EQ(requests[0].head.find("Expect"), std::string::npos);
  EXPECT_TRUE(requests[1].head.starts_with("POST / "));
  EXPECT_NE(requests[1].head.find("Content-Length: 0\r\n"), std::string::npos);
  EXPECT_NE(requests[2].head.find("Content-Length: 0\r\n"), std::string::npos);
  EXPECT_TRUE(requests[3].head.starts_with("DELETE / "));
  EXPECT_TRUE(requests[4].head.starts_with("GET / "));
  EXPECT_TRUE(requests[5].head.starts_with("HEAD / "));
  EXPECT_TRUE(requests[6].head.starts_with("GET / "));
  for (size_t i = 3; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].head.find("Content-Length"), std::string::npos) << requests[i].head;
  }
}

TEST(http_loop, refuses_requests_that_would_smuggle_another) {
  const ScriptedServer server([](const Request&) { return always(kOk); });
  HttpCaller caller;
  RecordingSink sink;
  const auto end = [&](const std::function<void(HttpRequest&)>& spoil) {
    HttpRequest request = to(server);
    spoil(request);
    return end_name(caller.perform(request, sink));
  };
  EXPECT_EQ(end([](HttpRequest& r) { r.url += "a\r\nX: y"; }), "bad_request");
  EXPECT_EQ(end([](HttpRequest& r) { r.url += std::string("a\0b", 3); }), "bad_request");
  EXPECT_EQ(end([](HttpRequest& r) { r.method = "GET /x HTTP/1.1\r\n"; }), "bad_request");
  EXPECT_EQ(end([](HttpRequest& r) { r.method = ""; }), "bad_request");
  EXPECT_EQ(end([](HttpRequest& r) { r.headers = {{"X", "a\nY: b"}}; }), "bad_request");
  EXPECT_EQ(end([](HttpRequest& r) { r.headers = {{"X: y", "a"}}; }), "bad_request");
  EXPECT_EQ(end([](HttpRequest& r) { r.headers = {{"", "a"}}; }), "bad_request");
  EXPECT_EQ(end([](HttpRequest& r) { r.url = "http://user:secret@pictures.invalid/"; }), "bad_request");
  EXPECT_EQ(end([](HttpRequest& r) { r.url = "ftp://pictures.invalid/"; }), "bad_request");
  EXPECT_EQ(end([](HttpRequest& r) { r.url = ""; }), "bad_request");
  EXPECT_EQ(server.num_connections(), 0);
  EXPECT_EQ(end([](HttpRequest&) {}), "answered");
}

TEST(http_loop, stops_a_transfer_coding_that_it_did_not_ask_for) {
  const std::string gzip("\x1f\x8b\x08\0\0\0\0\0\0\xff\x4b\x04\0\x43\xbe\xb7\xe8\x01\0\0\0", 21);
  for (const char* coding : {"gzip", "gzip, chunked", "identity", "chunked, chunked", "deflate"}) {
    const HttpResult result = ask(std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: ") + coding + "\r\n\r\n" + gzip);
    EXPECT_EQ(end_name(result), "not_http") << coding;
    EXPECT_EQ(result.num_bytes, 0) << coding;
  }
  EXPECT_EQ(end_name(ask("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n1\r\na\r\n0\r\n\r\n")), "answered");
}

TEST(http_loop, bounds_headers_by_their_sum_and_by_the_line) {
  const auto with_line = [](size_t num_bytes) { return "HTTP/1.1 200 OK\r\nX: " + std::string(num_bytes, 'x') + "\r\n\r\n"; };
  EXPECT_EQ(end_name(ask(with_line(90'000))), "answered");
  EXPECT_EQ(end_name(ask(with_line(102'401))), "headers_too_large");
  EXPECT_EQ(end_name(ask(with_line(1'000'000))), "headers_too_large");
  HttpLimits limits;
  limits.max_header_bytes = 100;
  EXPECT_EQ(end_name(ask(with_line(50), Answer::Then::kClose, limits)), "answered");
  EXPECT_EQ(end_name(ask(with_line(100), Answer::Then::kClose, limits)), "headers_too_large");
  // Provisional answers and trailers count, too.
  std::string many;
  for (int i = 0; i < 10; ++i) {
    many += "HTTP/1.1 103 Early\r\n\r\n";
  }
  EXPECT_EQ(end_name(ask(many + "HTTP/1.1 204 -\r\n\r\n", Answer::Then::kClose, limits)), "headers_too_large");
  EXPECT_EQ(end_name(ask("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nT: " + std::string(100, 't') + "\r\n\r\n",
                         Answer::Then::kClose, limits)),
            "headers_too_large");
}

TEST(http_loop, reads_heads_of_every_shape) {
  HttpResult result =
      ask("HTTP/1.1 103 Early\r\nContent-Length: 7\r\nX-Early: 1\r\n\r\nHTTP/1.1 200 OK\r\nA: 1\r\n\tmore\r\nA: 2\r\nB:\r\n\r\nbody");
  EXPECT_EQ(end_name(result), "answered");
  EXPECT_EQ(result.num_bytes, 4);
  EXPECT_EQ(result.head.content_length, std::nullopt);
  EXPECT_EQ(result.head.find("x-early"), std::nullopt);
  EXPECT_EQ(result.head.find("a"), "1 more");
  EXPECT_EQ(result.head.find("b"), "");
  std::string all;
  result.head.for_each([&](std::string_view name, std::string_view value) { all += std::string(name) + "=" + std::string(value) + ";"; });
  EXPECT_EQ(all, "A=1 more;A=2;B=;");

  result = ask("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nHTTP/1.1 404 Not: found\r\nX-Robots-Tag: noai\r\n\r\n");
  EXPECT_EQ(end_name(result), "answered");
  EXPECT_EQ(result.head.status, 200);  // A trailer changes nothing.
  EXPECT_EQ(result.head.find("x-robots-tag"), std::nullopt);
  EXPECT_EQ(result.num_bytes, 1);
}

TEST(http_loop, gives_a_status_whatever_becomes_of_a_body_that_nobody_wants) {
  const std::string long_body(1'000'000, 'x');
  const auto drop = [](const std::string& bytes, Answer::Then then, milliseconds total = milliseconds(20'000)) {
    const ScriptedServer server([&](const Request&) { return always(bytes, then); });
    HttpCaller caller;
    RecordingSink sink;
    sink.on_headers = [](const HttpHead&) { return HttpSink::Want::kDrop; };
    HttpRequest request = to(server);
    request.limits.total = total;
    const HttpResult result = caller.perform(request, sink);
    EXPECT_EQ(end_name(result), "answered") << result.detail;
    EXPECT_EQ(sink.body, "");
    return result;
  };
  for (const char* status : {"206", "300", "302", "404", "500"}) {
    const HttpResult result =
        drop(std::string("HTTP/1.1 ") + status + " -\r\nContent-Length: 1000000\r\n\r\n" + long_body, Answer::Then::kClose);
    EXPECT_EQ(result.head.status, std::stoi(status));
    EXPECT_GT(result.num_bytes, 65'536);
    EXPECT_LE(result.num_bytes, 65'536 + 16'384);
  }
  EXPECT_EQ(drop("HTTP/1.1 404 -\r\nContent-Length: 99999999999\r\n\r\nshort", Answer::Then::kClose).num_bytes, 5);
  EXPECT_EQ(drop("HTTP/1.1 404 -\r\nContent-Length: 10\r\n\r\nshort", Answer::Then::kReset).head.status, 404);
  EXPECT_EQ(drop("HTTP/1.1 503 -\r\nContent-Length: 10\r\n\r\nshort", Answer::Then::kHang, seconds(2)).head.status, 503);
}

TEST(http_loop, bounds_a_wanted_body_by_its_length_and_by_its_bytes) {
  HttpLimits limits;
  limits.max_body_bytes = 4;
  HttpResult result = ask("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345", Answer::Then::kHang, limits);
  EXPECT_EQ(end_name(result), "body_too_large");
  EXPECT_EQ(result.num_bytes, 0);
  EXPECT_EQ(end_name(ask("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n1234", Answer::Then::kHang, limits)), "answered");
  EXPECT_EQ(end_name(ask("HTTP/1.1 200 OK\r\n\r\n12345", Answer::Then::kClose, limits)), "body_too_large");
  EXPECT_EQ(end_name(ask("HTTP/1.1 200 OK\r\n\r\n1234", Answer::Then::kClose, limits)), "answered");
}

TEST(http_loop, has_a_limit_for_silence_of_its_own) {
  HttpLimits limits;
  limits.idle = seconds(1);
  limits.total = std::chrono::hours(1);
  EXPECT_EQ(end_name(ask("", Answer::Then::kHang, limits)), "idle_timeout");
  const HttpResult result = ask("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n123", Answer::Then::kHang, limits);
  EXPECT_EQ(end_name(result), "idle_timeout");
  EXPECT_EQ(result.head.status, 200);
  EXPECT_EQ(result.num_bytes, 3);
  EXPECT_GE(result.ended_after, seconds(1));
}

TEST(http_loop, gives_up_connecting_in_time) {
  // A listener whose queue is full answers no further SYN.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(listener, 0), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::vector<int> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    connect(waiting.back(), reinterpret_cast<sockaddr*>(&address), size);
  }
  HttpCaller caller;
  RecordingSink sink;
  HttpRequest request{.url = "http://pictures.invalid/",
                      .connect_to = SocketAddress{*IpAddress::parse("127.0.0.1"), ntohs(address.sin_port)}};
  request.limits.connect = milliseconds(100);
  request.limits.idle = milliseconds(10);  // Does not count before the connection.
  const HttpResult result = caller.perform(request, sink);
  EXPECT_EQ(end_name(result), "connect_timeout") << result.detail;
  EXPECT_GE(result.ended_after, milliseconds(90));
  EXPECT_EQ(result.connected_after, std::nullopt);

  request.limits.connect = std::chrono::hours(1);  // Cancelled while connecting.
  const ExchangeId id = caller.begin(request, sink);
  caller.loop().cancel(id);
  EXPECT_EQ(end_name(caller.wait_for(id)), "cancelled");
  for (const int descriptor : waiting) {
    ::close(descriptor);
  }
  ::close(listener);
}

TEST(http_loop, does_what_the_sink_says) {
  const ScriptedServer server([](const Request&) { return always(kOk, Answer::Then::kNext); });
  HttpCaller caller;
  const auto end = [&](const std::function<void(RecordingSink&)>& change) {
    RecordingSink sink;
    change(sink);
    const HttpResult result = caller.perform(to(server), sink);
    EXPECT_EQ(result.head.status, 200);
    return end_name(result) + " " + result.detail;
  };
  EXPECT_EQ(end([](RecordingSink& s) { s.on_headers = [](const HttpHead&) { return HttpSink::Want::kStop; }; }), "stopped at the headers");
  EXPECT_EQ(end([](RecordingSink& s) { s.on_bytes = [](const std::string&) { return HttpSink::Take::kStop; }; }),
            "stopped after 0 body bytes");
  EXPECT_EQ(
      end([](RecordingSink& s) { s.on_headers = [](const HttpHead&) -> HttpSink::Want { throw std::runtime_error("no memory for it"); }; }),
      "sink_failed no memory for it");
  EXPECT_EQ(end([](RecordingSink& s) { s.on_bytes = [](const std::string&) -> HttpSink::Take { throw 7; }; }),
            "sink_failed an exception of no known kind");
  EXPECT_EQ(end([](RecordingSink&) {}), "answered ");  // The loop goes on.
}

// Pauses once after `num_bytes`, then takes what `after` says.
struct PausingSink {
  explicit PausingSink(size_t num_bytes, HttpSink::Take after = HttpSink::Take::kTaken) {
    sink.on_bytes = [this, num_bytes, after](const std::string& body) {
      if (body.size() < num_bytes) {
        return HttpSink::Take::kTaken;
      }
      if (!is_resumed) {
        paused.make();
        return HttpSink::Take::kPause;
      }
      return after;
    };
  }
  RecordingSink sink;
  std::atomic<bool> is_resumed{false};
  Announcement paused;
};

TEST(http_loop, pauses_without_losing_a_byte_or_time) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  HttpCaller caller;
  for (const size_t at : {0, 1, 16'384, 16'385, 50'000}) {
    PausingSink pausing(at);
    HttpRequest request{.url = web.url("/a.jpg")};
    request.limits.total = request.limits.idle = seconds(1);
    const ExchangeId id = caller.begin(request, pausing.sink);
    ASSERT_TRUE(pausing.paused.await());
    caller.loop().resume(id + 1'000);  // Nobody's.
    // Longer than its limits: the other exchange ends by its own.
    RecordingSink silent;
    const ScriptedServer server([](const Request&) { return always("", Answer::Then::kHang); });
    HttpRequest waiting = to(server);
    waiting.limits.total = milliseconds(1'250);
    EXPECT_EQ(end_name(caller.perform(waiting, silent)), "deadline");
    EXPECT_FALSE(caller.has_ended(id));
    pausing.is_resumed = true;
    caller.loop().resume(id);
    caller.loop().resume(id);  // Not paused any more.
    const HttpResult result = caller.wait_for(id);
    EXPECT_EQ(end_name(result), "answered") << at << ": " << result.detail;
    EXPECT_EQ(pausing.sink.body, web.picture()) << at;
  }
}

TEST(http_loop, ends_a_paused_exchange_however_it_has_to) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.start();
  HttpCaller caller;
  {
    PausingSink pausing(0, HttpSink::Take::kStop);
    const ExchangeId id = caller.begin({.url = web.url("/a.jpg")}, pausing.sink);
    ASSERT_TRUE(pausing.paused.await());
    pausing.is_resumed = true;
    caller.loop().resume(id);
    EXPECT_EQ(end_name(caller.wait_for(id)), "stopped");
  }
  {
    PausingSink pausing(20'000);
    const ExchangeId id = caller.begin({.url = web.url("/a.jpg")}, pausing.sink);
    ASSERT_TRUE(pausing.paused.await());
    caller.loop().cancel(id);
    EXPECT_EQ(end_name(caller.wait_for(id)), "cancelled");
  }
  {
    PausingSink pausing(0);
    const ExchangeId id = caller.begin({.url = web.url("/a.jpg")}, pausing.sink);
    ASSERT_TRUE(pausing.paused.await());
    caller.end_loop();
    EXPECT_EQ(end_name(caller.wait_for(id)), "cancelled");
  }
}

TEST(http_loop, cancels_in_every_state) {
  const ScriptedServer server([](const Request& request) {
    if (request.head.starts_with("GET /silent ")) {
      return always("", Answer::Then::kHang);
    }
    if (request.head.starts_with("GET /head ")) {
      return always("HTTP/1.1 200 OK\r\nX: y\r\n", Answer::Then::kHang);
    }
    if (request.head.starts_with("GET /body ")) {
      return always("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n123", Answer::Then::kHang);
    }
    return always(kOk, Answer::Then::kNext);
  });
  HttpCaller caller;
  for (const char* path : {"/silent", "/head", "/body"}) {
    RecordingSink sink;
    Announcement has_bytes;
    sink.on_bytes = [&](const std::string&) {
      has_bytes.make();
      return HttpSink::Take::kTaken;
    };
    const ExchangeId id = caller.begin(to(server, path), sink);
    if (std::string_view(path) == "/body") {
      ASSERT_TRUE(has_bytes.await());
    }
    caller.loop().cancel(id);
    caller.loop().cancel(id);
    EXPECT_EQ(end_name(caller.wait_for(id)), "cancelled") << path;
    caller.loop().cancel(id);  // Ended: nothing happens.
  }
  // Within the sink's own calls, and within done.
  RecordingSink sink;
  ExchangeId id = 0;
  Announcement has_id;
  sink.on_headers = [&](const HttpHead&) {
    EXPECT_TRUE(has_id.await());
    caller.loop().cancel(id);
    return HttpSink::Want::kBody;
  };
  id = caller.begin(to(server, "/body"), sink);
  has_id.make();
  EXPECT_EQ(end_name(caller.wait_for(id)), "cancelled");

  Announcement is_done;
  RecordingSink other;
  caller.loop().begin(to(server), other, [&](HttpResult result) {
    caller.loop().cancel(result.id);
    caller.loop().begin(to(server), other, [&](HttpResult again) {
      EXPECT_EQ(end_name(again), "answered");
      is_done.make();
    });
  });
  EXPECT_TRUE(is_done.await());
  EXPECT_EQ(other.body, "okok");
}

TEST(http_loop, ends_everything_when_it_ends) {
  const ScriptedServer server([](const Request&) { return always("", Answer::Then::kHang); });
  HttpCaller caller;
  std::vector<std::unique_ptr<RecordingSink>> sinks;
  std::vector<ExchangeId> ids;
  for (int i = 0; i < 100; ++i) {
    sinks.push_back(std::make_unique<RecordingSink>());
    ids.push_back(caller.begin(to(server), *sinks.back()));
  }
  caller.end_loop();
  for (const ExchangeId id : ids) {
    EXPECT_TRUE(caller.has_ended(id));
    EXPECT_EQ(end_name(caller.wait_for(id)), "cancelled");
  }
  EXPECT_EQ(caller.num_ended(HttpEnd::kCancelled), 100);
  EXPECT_EQ(caller.metrics().gauge("darkroom_http_active", "HTTP exchanges on the wire or paused.").value(), 0.0);
}

TEST(http_loop, takes_exchanges_of_many_threads) {
  FetchWeb web;
  web.add_route("/a.jpg", {{"file", "tiny.jpg"}});
  web.start();
  HttpCaller caller;
  constexpr int kThreads = 4;
  constexpr int kEach = 100;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::vector<RecordingSink> sinks(kEach);
      std::vector<ExchangeId> ids;
      for (int i = 0; i < kEach; ++i) {
        ids.push_back(caller.begin({.url = web.url("/a.jpg")}, sinks[static_cast<size_t>(i)]));
        if ((i + t) % 3 == 0) {
          caller.loop().cancel(ids.back());
        }
      }
      for (int i = 0; i < kEach; ++i) {
        const HttpResult result = caller.wait_for(ids[static_cast<size_t>(i)]);
        if (result.end == HttpEnd::kAnswered) {
          EXPECT_EQ(sinks[static_cast<size_t>(i)].body, "tiny");
        } else {
          EXPECT_EQ(end_name(result), "cancelled") << result.detail;
          EXPECT_EQ((i + t) % 3, 0);
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(caller.num_ended(HttpEnd::kAnswered) + caller.num_ended(HttpEnd::kCancelled), kThreads * kEach);
}

TEST(http_loop, does_not_blame_the_host_for_our_lack_of_descriptors) {
  const ScriptedServer server([](const Request&) { return always(kOk); });
  HttpCaller caller;
  RecordingSink sink;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none{0, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const HttpResult result = caller.perform(to(server), sink);
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(end_name(result), "no_descriptors") << result.detail;
  EXPECT_FALSE(may_be_own_network(result.end));
  EXPECT_EQ(end_name(caller.perform(to(server), sink)), "answered");
}

TEST(http_loop, refuses_https_of_a_server_that_speaks_none) {
  const ScriptedServer server([](const Request&) { return always(kOk); });
  HttpCaller caller;
  RecordingSink sink;
  HttpRequest request = to(server);
  request.url = "https://pictures.invalid/";
  request.limits.connect = milliseconds(100);  // The server waits for the end of the headers.
  EXPECT_EQ(end_name(caller.perform(request, sink)), "connect_timeout");
}

TEST(http_loop, does_not_start_without_what_it_needs) {
  MetricsRegistry metrics;
  EXPECT_EQ(HttpLoop::start({.num_kept_connections = 0}, metrics).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(HttpLoop::start({.certificate_authorities = "/no/such/roots.pem"}, metrics).status().code(), StatusCode::kNotFound);
}

TEST(http_loop, takes_its_trusted_roots_from_the_file_that_ssl_cert_file_names) {
  MetricsRegistry metrics;
  setenv("SSL_CERT_FILE", "/no/such/bundle.pem", 1);
  const Status refused = HttpLoop::start({}, metrics).status();
  unsetenv("SSL_CERT_FILE");
  EXPECT_EQ(refused.code(), StatusCode::kNotFound);
  EXPECT_THAT(refused.message(), testing::HasSubstr("/no/such/bundle.pem"));
  EXPECT_TRUE(HttpLoop::start({}, metrics).is_ok());
}

}  // namespace
}  // namespace darkroom
