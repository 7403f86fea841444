#include "darkroom/serve/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "darkroom/web/metrics_server.h"
#include "serve_client.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// Answers /slow by a maker that waits, and everything else at once.
struct SlowMaker final : HttpService {
  void handle(HttpQuestion question, std::stop_token /*gone*/, Answer answer) override {
    if (question.path != "/slow") {
      answer(HttpReply{.body = "quick"});
      return;
    }
    answer(ReplyMaker([this] {
      ++num_making;
      num_making.notify_all();
      may_end.wait(false);
      return HttpReply{.body = "slow"};
    }));
  }
  std::atomic<int> num_making = 0;
  std::atomic<bool> may_end = false;
};

TEST(http_server, replies_that_are_ready_do_not_wait_for_those_that_are_made) {
  SlowMaker service;
  const auto server = HttpServer::start(service, {.address = parse_metrics_address("0").value()}).value();
  std::vector<std::unique_ptr<ServeClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(std::make_unique<ServeClient>(server->address()));
    clients.back()->send_text(get("/slow"));
  }
  service.num_making.wait(0);
  const ServeClient quick(server->address());
  quick.send_text(get("/ping"));
  EXPECT_THAT(quick.receive_all(), HasSubstr("quick"));
  service.may_end = true;
  service.may_end.notify_all();
  for (const auto& client : clients) {
    EXPECT_THAT(client->receive_all(), HasSubstr("slow"));
  }
}

TEST(http_server, one_connection_too_many_ends_one_that_asks_nothing_and_never_one_that_waits) {
  SlowMaker service;
  const auto server = HttpServer::start(service, {.address = parse_metrics_address("0").value(), .max_connections = 2}).value();
  const ServeClient waiting(server->address());
  waiting.send_text(get("/slow"));
  service.num_making.wait(0);
  const ServeClient idle(server->address());
  const ServeClient next(server->address());
  next.send_text(get("/slow"));
  EXPECT_EQ(idle.receive_all(), "");
  service.num_making.wait(1);
  const ServeClient refused(server->address());
  EXPECT_EQ(refused.receive_all(), "");
  service.may_end = true;
  service.may_end.notify_all();
  EXPECT_THAT(waiting.receive_all(), HasSubstr("slow"));
  EXPECT_THAT(next.receive_all(), HasSubstr("slow"));
}

TEST(http_server, refuses_a_port_that_is_taken_and_bad_options) {
  struct Deaf final : HttpService {
    void handle(HttpQuestion, std::stop_token, Answer) override {}
  } service;
  HttpServerOptions options{.address = parse_metrics_address("0").value()};
  const auto server = HttpServer::start(service, options).value();
  options.address = server->address();
  EXPECT_THAT(HttpServer::start(service, options).status().message(), HasSubstr("the port is taken"));
  options.max_connections = 0;
  EXPECT_EQ(HttpServer::start(service, options).status().code(), StatusCode::kInvalidArgument);
}

/// A body that the test gives piece by piece.
class GivenStream final : public ReplyStream {
 public:
  ~GivenStream() override { ended_.set_value(); }
  std::optional<Piece> next(std::function<void()> wake) override {
    const std::lock_guard lock(mutex_);
    ++num_asked_;
    changed_.notify_all();
    if (fails_) {
      throw std::runtime_error("planted");
    }
    wake_ = std::move(wake);
    if (pieces_.empty()) {
      return std::nullopt;
    }
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    return piece;
  }
  void give(std::string bytes, bool is_last = false) {
    std::function<void()> wake;
    {
      const std::lock_guard lock(mutex_);
      pieces_.push_back({.bytes = std::move(bytes), .is_last = is_last});
      wake = wake_;
    }
    if (wake != nullptr) {
      wake();
    }
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    fails_ = true;
  }
  bool await_asked(int count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] { return num_asked_ >= count; });
  }
  int num_asked() {
    const std::lock_guard lock(mutex_);
    return num_asked_;
  }
  std::function<void()> wake() {
    const std::lock_guard lock(mutex_);
    return wake_;
  }
  std::future<void> end() { return ended_.get_future(); }

 private:
  std::promise<void> ended_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> pieces_;
  std::function<void()> wake_;
  int num_asked_ = 0;
  bool fails_ = false;
};

/// Answers /stream with one stream, which it does not keep, and everything else with "quick".
class streamed_reply : public testing::Test, public HttpService {
 protected:
  void SetUp() override { start({}); }
  void start(HttpServerOptions options) {
    server_.reset();
    stream_ = std::make_shared<GivenStream>();
    ended_ = stream_->end();
    weak_ = stream_;
    options.address = parse_metrics_address("0").value();
    server_ = HttpServer::start(*this, options).value();
  }
  size_t max_body_bytes(const HttpQuestion& head) const override { return head.path == "/small" ? 3 : SIZE_MAX; }
  void handle(HttpQuestion question, std::stop_token gone, Answer answer) override {
    if (question.path != "/stream") {
      answer(HttpReply{.body = question.query.empty() ? "quick" : question.query});
      return;
    }
    gone_ = std::move(gone);
    answer(
        StreamedReply{.type = "text/event-stream", .headers = {{"X-Ours", "1"}}, .stream = std::move(stream_), .idle_bytes = idle_bytes_});
    answer(HttpReply{.body = "a second answer"});
  }
  bool await_end() { return ended_.wait_for(std::chrono::minutes(1)) == std::future_status::ready; }
  std::unique_ptr<ServeClient> asking(const std::string& request) {
    auto client = std::make_unique<ServeClient>(server_->address());
    client->send_text(request);
    return client;
  }

  static constexpr const char* kAsk = "GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n";
  std::string idle_bytes_;
  std::shared_ptr<GivenStream> stream_;
  std::weak_ptr<GivenStream> weak_;
  std::future<void> ended_;
  std::stop_token gone_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(streamed_reply, comes_in_chunks_as_they_are_made_and_the_connection_goes_on) {
  const auto stream = weak_.lock();
  stream->give("first");
  const auto client = asking(kAsk);
  const std::string head = client->receive_until("\r\n\r\n");
  EXPECT_THAT(head, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Transfer-Encoding: chunked"), HasSubstr("text/event-stream"),
                          HasSubstr("X-Ours: 1"), Not(HasSubstr("Content-Length"))));
  EXPECT_EQ(client->receive(10), "5\r\nfirst\r\n");
  stream->give("");
  stream->give("second");
  EXPECT_EQ(client->receive(11), "6\r\nsecond\r\n");
  stream->give("last", true);
  EXPECT_EQ(client->receive(9), "4\r\nlast\r\n");
  EXPECT_EQ(client->receive(5), "0\r\n\r\n");
  client->send_text(get("/other?a=b?c"));
  EXPECT_THAT(client->receive_all(), AllOf(StartsWith("HTTP/1.1 200"), EndsWith("a=b?c")));
}

TEST_F(streamed_reply, of_http_1_0_goes_on_to_the_connections_end) {
  const auto stream = weak_.lock();
  const auto client = asking("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  stream->give("first ");
  stream->give("last", true);
  EXPECT_THAT(client->receive_all(),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Connection: close"), Not(HasSubstr("chunked")), EndsWith("\r\n\r\nfirst last")));
}

TEST_F(streamed_reply, to_head_is_a_head) {
  const auto client = asking("HEAD /stream HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client->receive_all(), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("text/event-stream"), EndsWith("\r\n\r\n")));
  EXPECT_TRUE(await_end());
}

TEST_F(streamed_reply, is_not_asked_for_more_than_its_client_takes) {
  const auto stream = weak_.lock();
  const std::string large(64'000'000, 'x');  // More than sockets hold.
  stream->give(large);
  stream->give("last", true);
  const auto client = asking(kAsk);
  client->receive_until("\r\n\r\n");
  EXPECT_EQ(client->receive(9), "3d09000\r\n");
  EXPECT_EQ(stream->num_asked(), 1);
  const auto quick = asking(get("/other"));
  EXPECT_THAT(quick->receive_all(), HasSubstr("quick"));
  EXPECT_EQ(stream->num_asked(), 1);
  EXPECT_TRUE(client->receive(large.size()) == large);
  EXPECT_EQ(client->receive(16), "\r\n4\r\nlast\r\n0\r\n\r\n");
}

TEST_F(streamed_reply, ends_when_its_client_leaves) {
  {
    const auto client = asking(kAsk);
    EXPECT_TRUE(weak_.lock()->await_asked(1));
  }
  EXPECT_TRUE(await_end());
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));
  EXPECT_TRUE(gone_.stop_requested());
}

TEST_F(streamed_reply, of_a_client_that_takes_nothing_ends) {
  start({.reply_timeout = milliseconds(100)});
  weak_.lock()->give(std::string(64'000'000, 'x'));
  const auto client = asking(kAsk);
  EXPECT_TRUE(await_end());
  EXPECT_TRUE(gone_.stop_requested());
}

TEST_F(streamed_reply, says_now_and_then_that_it_goes_on) {
  idle_bytes_ = ": idle\n\n";
  start({.idle_period = milliseconds(1)});
  const auto stream = weak_.lock();
  const auto client = asking(kAsk);
  client->receive_until("\r\n\r\n");
  EXPECT_EQ(client->receive(26), "8\r\n: idle\n\n\r\n8\r\n: idle\n\n\r\n");
  stream->give("last", true);
  EXPECT_THAT(client->receive_until("0\r\n\r\n"), EndsWith("4\r\nlast\r\n0\r\n\r\n"));
}

TEST_F(streamed_reply, counts_as_open_in_a_drain_and_ends_its_connection) {
  const auto stream = weak_.lock();
  const auto client = asking(kAsk);
  EXPECT_TRUE(stream->await_asked(1));
  server_->drain();
  EXPECT_FALSE(server_->await_quiet(milliseconds(0)));
  stream->give("last", true);
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));
  EXPECT_THAT(client->receive_all(), EndsWith("4\r\nlast\r\n0\r\n\r\n"));
}

TEST_F(streamed_reply, that_fails_ends_without_a_last_chunk) {
  const auto stream = weak_.lock();
  stream->give("first");
  const auto client = asking(kAsk);
  EXPECT_THAT(client->receive_until("first\r\n"), StartsWith("HTTP/1.1 200"));
  stream->fail();
  stream->wake()();
  EXPECT_EQ(client->receive_all(), "");
}

TEST_F(streamed_reply, may_be_woken_after_its_server) {
  const auto stream = weak_.lock();
  const auto client = asking(kAsk);
  EXPECT_TRUE(stream->await_asked(1));
  const auto wake = stream->wake();
  server_.reset();
  wake();
  stream->give("last", true);
  bool is_whole = true;
  dechunked(client->receive_all(), &is_whole);
  EXPECT_FALSE(is_whole);
}

TEST_F(streamed_reply, of_many_clients_each_has_its_own) {
  // Streams that always have something, over the same two makers.
  struct Counting final : ReplyStream {
    std::optional<Piece> next(std::function<void()> wake) override {
      wake();  // Within the call, and for nothing.
      return Piece{.bytes = "x", .is_last = ++num_asked == 100};
    }
    int num_asked = 0;
  };
  struct Service final : HttpService {
    void handle(HttpQuestion, std::stop_token, Answer answer) override {
      answer(StreamedReply{.type = "text/plain", .stream = std::make_shared<Counting>()});
    }
  } service;
  const auto server = HttpServer::start(service, {.address = parse_metrics_address("0").value()}).value();
  std::vector<std::unique_ptr<ServeClient>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<ServeClient>(server->address()));
    clients.back()->send_text(get("/"));
  }
  for (const auto& client : clients) {
    bool is_whole = false;
    EXPECT_EQ(dechunked(client->receive_all(), &is_whole), std::string(100, 'x'));
    EXPECT_TRUE(is_whole);
  }
}

TEST_F(streamed_reply, bodies_have_the_bound_of_their_path) {
  EXPECT_THAT(asking(post("/small", "abc"))->receive_all(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(asking(post("/small", "abcd"))->receive_all(), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(asking(post("/large", "abcd"))->receive_all(), StartsWith("HTTP/1.1 200"));
  const std::string chunked = "POST /small HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
  EXPECT_THAT(asking(chunked + "3\r\nabc\r\n0\r\n\r\n")->receive_all(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(asking(chunked + "2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n")->receive_all(), StartsWith("HTTP/1.1 413"));
}

/// Keeps the questions whose path is /keep, and has more to say to /large than a connection holds.
struct Keeper final : HttpService {
  static constexpr size_t kLarge = 32'000'000;

  void handle(HttpQuestion question, std::stop_token /*gone*/, Answer answer) override {
    if (question.path == "/keep") {
      const std::lock_guard lock(mutex);
      kept.push_back(std::move(question));
    }
    answer(HttpReply{.body = question.path == "/large" ? std::string(kLarge, 'x') : "taken"});
  }
  void let_go() {
    const std::lock_guard lock(mutex);
    kept.clear();
  }
  std::mutex mutex;
  std::vector<HttpQuestion> kept;
};

TEST(http_server, bodies_have_a_bound_in_common_and_those_beyond_it_are_not_read) {
  Keeper service;
  const auto server =
      HttpServer::start(service, {.address = parse_metrics_address("0").value(), .max_body_bytes = 1000, .max_bodies_bytes = 1500}).value();
  const auto ask = [&](const std::string& request) {
    const ServeClient client(server->address());
    client.send_text(request);
    return client.receive_all();
  };
  const auto refused = AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After: 1"));
  EXPECT_THAT(ask(post("/keep", std::string(800, 'x'))), HasSubstr("taken"));  // Whoever keeps a question keeps its room.
  EXPECT_THAT(ask("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 701\r\nExpect: 100-continue\r\n\r\n"), refused);
  const std::string chunked = "POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n2bc\r\n";
  EXPECT_THAT(ask(chunked + std::string(700, 'x') + "\r\n1\r\nx\r\n0\r\n\r\n"), refused);  // Its last byte finds no room.
  EXPECT_THAT(ask(chunked + std::string(700, 'x') + "\r\n0\r\n\r\n"), HasSubstr("taken"));
  EXPECT_THAT(ask(post("/x", std::string(700, 'x'))), HasSubstr("taken"));
  EXPECT_THAT(ask(get("/x")), HasSubstr("taken"));
  EXPECT_THAT(ask(post("/x", std::string(701, 'x'))), refused);
  service.let_go();
  EXPECT_THAT(ask(post("/x", std::string(1000, 'x'))), HasSubstr("taken"));
}

TEST(http_server, names_bounds_and_files_that_do_not_go_together) {
  EXPECT_THAT((HttpServerOptions{.max_body_bytes = 10, .max_bodies_bytes = 9}).validate().message(), HasSubstr("10"));
  for (const HttpServerOptions& wrong :
       {HttpServerOptions{.head_timeout = milliseconds(0)}, HttpServerOptions{.keep_alive_timeout = milliseconds(0)},
        HttpServerOptions{.body_period = milliseconds(0)}, HttpServerOptions{.min_body_bytes = 0}}) {
    EXPECT_EQ(wrong.validate().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_GT(HttpServerOptions{}.keep_alive_timeout, std::chrono::seconds(60));  // What proxies keep.
}

/// What clients may take their time for. Time passes for the server when it ends a connection that says nothing.
class http_limits : public testing::Test {
 protected:
  static constexpr milliseconds kShort{300};
  static constexpr milliseconds kLong = std::chrono::minutes(10);
  static constexpr const char* kGet = "GET /x HTTP/1.1\r\nHost: x\r\n\r\n";

  void start(HttpServerOptions options) {
    options.address = parse_metrics_address("0").value();
    server_ = HttpServer::start(service_, options).value();
  }
  /// What is answered on a new connection; tried again where this process was too late with its first byte.
  std::unique_ptr<ServeClient> asking(const std::string& text, std::string_view answer) const {
    for (int i = 0; i < 20; ++i) {
      auto client = std::make_unique<ServeClient>(server_->address());
      client->send_text(text);
      if (client->receive_until(answer).ends_with(answer)) {
        return client;
      }
    }
    ADD_FAILURE() << "the server does not say " << answer;
    return std::make_unique<ServeClient>(server_->address());
  }
  /// A connection that has begun to send a body, which the server reads.
  std::unique_ptr<ServeClient> sending(size_t num_bytes) const {
    return asking("POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: " +
                      std::to_string(num_bytes) + "\r\n\r\n",
                  "100 Continue\r\n\r\n");
  }
  /// Waits until head_timeout has passed.
  void pass_head_timeout() const {
    const ServeClient silent(server_->address());
    EXPECT_EQ(silent.receive_all(), "");
    EXPECT_TRUE(silent.has_ended());
  }

  Keeper service_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(http_limits, a_head_that_does_not_go_on_is_told_so_and_one_that_never_came_is_not) {
  start({.head_timeout = kShort, .keep_alive_timeout = kLong, .body_period = kLong});
  pass_head_timeout();
  EXPECT_THAT(asking("GET /x HTTP/1.1\r\nHo", "HTTP/1.1 408 ")->receive_all(), HasSubstr("Connection: close"));
  EXPECT_THAT(asking(std::string(kGet) + "GET /x HT", "taken")->receive_all(), StartsWith("HTTP/1.1 408"));
}

TEST_F(http_limits, a_connection_is_kept_between_requests_longer_than_a_head_may_take) {
  start({.head_timeout = kShort, .keep_alive_timeout = kLong});
  const auto client = asking(kGet, "taken");
  for (int i = 0; i < 3; ++i) {
    pass_head_timeout();
    client->send_text(kGet);
    EXPECT_THAT(client->receive_until("taken"), StartsWith("HTTP/1.1 200"));
  }
  client->send_text("GET /x HTTP");  // From its first byte on it is a head.
  EXPECT_THAT(client->receive_all(), StartsWith("HTTP/1.1 408"));
}

TEST_F(http_limits, a_connection_that_asks_nothing_more_ends_in_silence) {
  start({.head_timeout = kLong, .keep_alive_timeout = kShort});
  const auto client = asking(kGet, "taken");
  EXPECT_EQ(client->receive_all(), "");
  EXPECT_TRUE(client->has_ended());
}

TEST_F(http_limits, a_body_that_comes_slowly_arrives) {
  constexpr int kPieces = 10;  // In as many of kShort, which is longer than the period of a body.
  start({.head_timeout = kShort, .body_period = milliseconds(2000), .min_body_bytes = 1});
  const auto client = sending(kPieces);
  for (int i = 0; i < kPieces; ++i) {
    pass_head_timeout();
    client->send_text("x");
  }
  EXPECT_THAT(client->receive_all(), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("taken")));
}

TEST_F(http_limits, a_body_that_stalls_is_told_so) {
  start({.body_period = kShort, .min_body_bytes = 10});
  EXPECT_THAT(sending(100)->receive_all(), AllOf(StartsWith("HTTP/1.1 408"), HasSubstr("Connection: close")));
  const auto drip = sending(100);
  drip->send_text("x");
  EXPECT_THAT(drip->receive_all(), StartsWith("HTTP/1.1 408"));
  const ServeClient chunked(server_->address());
  chunked.send_text("POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nxxxxxxxxx\r\n1;longer=than-its-chunk");
  EXPECT_THAT(chunked.receive_all(), StartsWith("HTTP/1.1 408"));
}

TEST_F(http_limits, a_body_that_stalled_has_given_its_room_back) {
  start({.max_body_bytes = 1000, .max_bodies_bytes = 1000, .body_period = kShort, .min_body_bytes = 10});
  EXPECT_THAT(sending(1000)->receive_all(), StartsWith("HTTP/1.1 408"));
  const ServeClient next(server_->address());
  next.send_text(post("/x", std::string(1000, 'x')));
  EXPECT_THAT(next.receive_all(), HasSubstr("taken"));
}

TEST_F(http_limits, lengths_that_are_only_declared_take_no_room) {
  start({.max_body_bytes = 1000, .max_bodies_bytes = 2000, .body_period = kLong, .min_body_bytes = 1});
  const std::array drips = {sending(1000), sending(1000)};
  for (const auto& drip : drips) {
    drip->send_text("x");
  }
  const ServeClient next(server_->address());
  next.send_text(post("/x", std::string(10, 'x')));
  EXPECT_THAT(next.receive_all(), HasSubstr("taken"));
  for (const auto& drip : drips) {
    drip->send_text(std::string(999, 'x'));
    EXPECT_THAT(drip->receive_all(), HasSubstr("taken"));
  }
}

TEST_F(http_limits, of_too_many_connections_those_that_take_no_reply_go_where_there_is_no_other) {
  start({.reply_timeout = kLong, .max_connections = 2});
  std::vector<std::unique_ptr<ServeClient>> silent;
  for (int i = 0; i < 2; ++i) {
    silent.push_back(std::make_unique<ServeClient>(server_->address()));
    silent.back()->send_text(get("/large"));
    EXPECT_EQ(silent.back()->receive(1), "H");  // It is being sent.
  }
  const ServeClient next(server_->address());
  next.send_text(get("/x"));
  EXPECT_THAT(next.receive_all(), HasSubstr("taken"));
  EXPECT_LT(silent[0]->receive_all().size(), Keeper::kLarge);
  EXPECT_GT(silent[1]->receive_all().size(), Keeper::kLarge);
}

TEST_F(http_limits, of_too_many_connections_those_that_send_a_body_go_last) {
  start({.head_timeout = kLong, .body_period = kLong, .max_connections = 2});
  const auto upload = sending(3);
  for (int i = 0; i < 20; ++i) {
    const ServeClient drip(server_->address());
    drip.send_text("G");
    const ServeClient quick(server_->address());
    quick.send_text(get("/x"));
    EXPECT_THAT(quick.receive_all(), HasSubstr("taken"));
  }
  upload->send_text("abc");
  EXPECT_THAT(upload->receive_all(), HasSubstr("taken"));
}

TEST_F(http_limits, drips_of_bodies_keep_nobody_out) {
  start({.head_timeout = kLong, .body_period = kLong, .max_connections = 4});
  std::vector<std::unique_ptr<ServeClient>> drips;
  for (int i = 0; i < 20; ++i) {
    drips.push_back(sending(100));
    drips.back()->send_text("x");
    const ServeClient quick(server_->address());
    quick.send_text(get("/x"));
    EXPECT_THAT(quick.receive_all(), HasSubstr("taken"));
  }
}

}  // namespace
}  // namespace darkroom
