// Bodies in a memory of the caller, as the download's pipeline has it: they leave in order, and the oldest piece always goes on.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "fetch_web.h"

namespace darkroom {
namespace {

// Within a minute.
bool await(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!is_so() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return is_so();
}

/// Submits `urls` as pieces 0, 1, ..., takes the replies and lets the pieces leave in their order, as a writer would.
class OrderedPieces {
 public:
  OrderedPieces(FetchOptions options, size_t limit_bytes) : memory_(limit_bytes) {
    options.memory = &memory_;
    fetcher_ = make_fetcher(options);
  }
  void submit(const std::string& url) {
    enter(num_submitted_);
    submit_as(num_submitted_, url);
  }
  /// The piece is inside before its URL is.
  void enter(uint64_t order) { leases_.emplace(order, BodyLease(memory_, order)); }
  void submit_as(uint64_t order, const std::string& url) {
    ++num_submitted_;
    ASSERT_TRUE(fetcher_->submit({.id = order, .url = url, .order = order}));
  }
  /// The outcomes in the order of the pieces.
  std::vector<std::string> take_all() {
    std::map<uint64_t, FetchReply> replies;
    while (replies.size() < num_submitted_) {
      auto reply = fetcher_->next();
      if (!reply) {
        ADD_FAILURE() << "the fetcher ended";
        break;
      }
      EXPECT_EQ(leases_.at(reply->id).held_bytes(), reply->body.is_ok() ? reply->body->size() : 0u);
      replies.emplace(reply->id, *std::move(reply));
      while (num_left_ < num_submitted_ && replies.contains(num_left_)) {
        leases_.erase(num_left_++);
      }
    }
    std::vector<std::string> outcomes;
    for (const auto& [order, reply] : replies) {
      outcomes.push_back(outcome(reply));
    }
    return outcomes;
  }
  BodyMemory& memory() { return memory_; }
  Fetcher& fetcher() { return *fetcher_; }
  void end() { fetcher_.reset(); }

 private:
  BodyMemory memory_;
  std::map<uint64_t, BodyLease> leases_;
  std::unique_ptr<Fetcher> fetcher_;  // Ends before the leases do.
  uint64_t num_submitted_ = 0;
  uint64_t num_left_ = 0;
};

TEST(fetch_memory, of_the_caller_holds_bodies_until_their_pieces_leave) {
  FetchWeb web;
  web.add_route("/a.jpg", {});
  web.add_route("/gone", {{"trouble", "status"}, {"status", 404}});
  web.start();
  OrderedPieces pieces(web.options(), 10'000'000);
  for (const char* path : {"/a.jpg", "/gone", "/a.jpg"}) {
    pieces.submit(web.url(path));
  }
  pieces.submit("not a URL");
  EXPECT_EQ(pieces.take_all(), (std::vector<std::string>{"ok", "http_404", "ok", "bad_url"}));
  EXPECT_EQ(pieces.memory().num_inside(), 0u);
  EXPECT_EQ(pieces.memory().used_bytes(), 0u);
}

// The oldest is tried again and again, its host has one place, and memory is for two of forty bodies.
TEST(fetch_memory, that_is_full_never_holds_up_the_oldest) {
  FetchWeb web;
  web.add_route("/busy", {{"trouble", "status"}, {"status", 503}, {"times", 3}});
  web.add_route("/chunked", {{"trouble", "chunked"}});
  web.add_route("/a.jpg", {});
  web.start();
  FetchOptions options = web.options();
  options.per_host = 1;
  options.num_retries = 5;
  options.timeout = std::chrono::minutes(10);
  options.max_body_bytes = FetchWeb::kPictureBytes;
  OrderedPieces pieces(options, 2 * FetchWeb::kPictureBytes);
  pieces.submit(web.url("/busy"));
  for (int i = 1; i < 40; ++i) {
    pieces.submit(web.url(i % 3 == 0 ? "/chunked" : "/a.jpg"));
  }
  EXPECT_EQ(pieces.take_all(), std::vector<std::string>(40, "ok"));
  EXPECT_LE(pieces.memory().peak_bytes(), 3 * FetchWeb::kPictureBytes);
  EXPECT_EQ(pieces.memory().used_bytes(), 0u);
}

// The host has two places; the second piece takes its bytes and waits for more, the first comes back from its pause and needs them.
TEST(fetch_memory, is_given_back_with_its_place_by_who_waits_for_more) {
  FetchWeb web;
  web.add_route("/busy", {{"trouble", "retry_after"}, {"seconds", 1}, {"times", 1}});
  web.add_file("large.jpg", std::string(3'000'000, 'x'));
  web.add_route("/large.jpg", {{"file", "large.jpg"}, {"trouble", "chunked"}});
  web.start();
  FetchOptions options = web.options();
  options.per_host = 4;
  options.num_concurrent = 4;
  options.timeout = std::chrono::minutes(10);
  OrderedPieces pieces(options, 1'000'000);
  pieces.submit(web.url("/busy"));
  for (int i = 1; i < 9; ++i) {
    pieces.submit(web.url("/large.jpg"));
  }
  EXPECT_EQ(pieces.take_all(), std::vector<std::string>(9, "ok"));
  EXPECT_LE(pieces.memory().peak_bytes(), 1'000'000u + 4'000'000u);
}

// Pieces 2 and 3 fill it, 1 waits for it, and the oldest waits for a robots.txt that a younger piece asked for first.
TEST(fetch_memory, that_is_full_holds_up_no_robots_txt) {
  FetchWeb web;
  web.add_file("robots.txt", "");
  web.add_route("/robots.txt", {{"file", "robots.txt"}});
  web.add_route("/a.jpg", {});
  web.start();
  FetchOptions options = web.options();
  options.respect.robots = true;
  OrderedPieces pieces(options, 2 * FetchWeb::kPictureBytes);
  for (uint64_t order = 0; order < 5; ++order) {
    pieces.enter(order);
  }
  pieces.submit_as(2, web.url("/a.jpg"));
  pieces.submit_as(3, web.url("/a.jpg"));
  ASSERT_TRUE(await([&] { return pieces.memory().used_bytes() >= 2 * FetchWeb::kPictureBytes; }));
  pieces.submit_as(1, web.url("/a.jpg"));
  ASSERT_TRUE(await([&] { return pieces.memory().num_waiting() == 1; }));
  pieces.submit_as(4, web.url_of("localhost", "/a.jpg"));
  pieces.submit_as(0, web.url_of("localhost", "/a.jpg"));
  ASSERT_TRUE(await([&] { return web.web().num_requests("/robots.txt") == 2; })) << "nothing would ever move again";
  EXPECT_EQ(pieces.take_all(), std::vector<std::string>(5, "ok"));
}

TEST(fetch_memory, is_empty_of_a_fetcher_that_ends_while_bodies_come) {
  FetchWeb web;
  web.add_route("/endless", {{"trouble", "endless"}});
  web.add_route("/hang", {{"trouble", "hang"}});
  web.start();
  FetchOptions options = web.options();
  options.timeout = std::chrono::hours(1);
  OrderedPieces pieces(options, 300'000);
  pieces.submit(web.url("/hang"));
  for (int i = 1; i < 9; ++i) {
    pieces.submit(web.url("/endless"));
  }
  while (pieces.memory().num_waiting() == 0) {
    std::this_thread::yield();
  }
  pieces.end();
  EXPECT_EQ(pieces.memory().num_waiting(), 0u);
  EXPECT_EQ(pieces.memory().used_bytes(), 0u);
}

}  // namespace
}  // namespace darkroom
