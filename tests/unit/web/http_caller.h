#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "darkroom/web/http_loop.h"

namespace darkroom {

/// Keeps the body of one exchange and does what the test tells it to.
struct RecordingSink final : HttpSink {
  std::function<Want(const HttpHead&)> on_headers = [](const HttpHead&) { return Want::kBody; };
  std::function<Take(const std::string& body)> on_bytes = [](const std::string&) { return Take::kTaken; };  ///< With the bytes so far.
  std::string body;
  int num_heads = 0;
  size_t longest_piece = 0;

  Want headers(const HttpHead& head) override {
    ++num_heads;
    return on_headers(head);
  }
  Take bytes(std::span<const std::byte> piece) override {
    longest_piece = std::max(longest_piece, piece.size());
    const Take take = on_bytes(body);
    if (take == Take::kTaken) {
      body.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    return take;
  }
};

/// A loop, and the waiting of a test for what it does.
class HttpCaller {
 public:
  explicit HttpCaller(HttpLoopOptions options = {}) {
    auto loop = HttpLoop::start(options, metrics_);
    EXPECT_TRUE(loop.is_ok()) << loop.status().to_string();
    loop_ = *std::move(loop);
  }

  HttpLoop& loop() { return *loop_; }
  MetricsRegistry& metrics() { return metrics_; }
  void end_loop() { loop_.reset(); }

  ExchangeId begin(HttpRequest request, HttpSink& sink) {
    return loop_->begin(std::move(request), sink, [this](HttpResult result) {
      const std::lock_guard lock(mutex_);
      EXPECT_TRUE(results_.emplace(result.id, std::move(result)).second) << "an exchange ended twice";
      changed_.notify_all();
    });
  }
  HttpResult wait_for(ExchangeId id) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return results_.contains(id); })) {
      ADD_FAILURE() << "the exchange does not end";
      return {.end = HttpEnd::kInternal};
    }
    return results_.at(id);
  }
  HttpResult perform(HttpRequest request, HttpSink& sink) { return wait_for(begin(std::move(request), sink)); }
  bool has_ended(ExchangeId id) {
    const std::lock_guard lock(mutex_);
    return results_.contains(id);
  }
  int64_t num_ended(HttpEnd end) {
    return metrics_
        .counter("darkroom_http_requests_total", "HTTP exchanges that ended, by how.", {{"result", std::string(http_end_name(end))}})
        .value();
  }

 private:
  MetricsRegistry metrics_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<ExchangeId, HttpResult> results_;
  std::unique_ptr<HttpLoop> loop_;
};

/// One event that a callback announces and a test waits for.
class Announcement {
 public:
  void make() {
    const std::lock_guard lock(mutex_);
    is_made_ = true;
    changed_.notify_all();
  }
  [[nodiscard]] bool await() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return is_made_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_made_ = false;
};

}  // namespace darkroom
