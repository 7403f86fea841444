#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/web/fetch.h"
#include "support/stub_dns.h"
#include "support/temporary_folder.h"
#include "troubled_web/troubled_web.h"

namespace darkroom {

/// A troubled web with the file "picture.jpg" of kPictureBytes bytes, and the fetches that a test makes of it.
class FetchWeb {
 public:
  static constexpr size_t kPictureBytes = 100'003;

  FetchWeb() : picture_(kPictureBytes, '\0') {
    for (size_t i = 0; i < picture_.size(); ++i) {
      picture_[i] = static_cast<char>(i * 31 + i / 256);
    }
    add_file("picture.jpg", picture_);
    add_file("tiny.jpg", "tiny");
  }

  const std::string& picture() const { return picture_; }
  void add_file(const std::string& name, const std::string& bytes) { std::ofstream(folder_.path(name), std::ios::binary) << bytes; }

  /// Serves `fields` at `path`; its file is picture.jpg unless it names another.
  void add_route(const std::string& path, nlohmann::json fields) {
    if (!fields.contains("file")) {
      fields["file"] = "picture.jpg";
    }
    routes_[path] = std::move(fields);
  }

  void start() {
    std::ofstream(folder_.path("web.json")) << nlohmann::json{{"routes", routes_}};
    auto web = TroubledWeb::start(folder_.path());
    ASSERT_TRUE(web.is_ok()) << web.status().to_string();
    web_ = *std::move(web);
  }

  TroubledWeb& web() { return *web_; }
  std::string url(const std::string& path) const { return web_->url() + path; }
  /// The same under another host's name.
  std::string url_of(const std::string& host, const std::string& path) const {
    return fmt::format("http://{}:{}{}", host, web_->port(), path);
  }

  /// Without probes of the network, whose connections the web would count, too.
  FetchOptions options_without_probes() const {
    FetchOptions all = options();
    all.network.probe_after = std::chrono::hours(1);
    return all;
  }

  /// Short waits, a resolver that knows no name but localhost, and only this web is allowed besides public addresses.
  FetchOptions options() const {
    FetchOptions options;
    options.num_concurrent = 16;
    options.timeout = std::chrono::seconds(60);
    options.first_backoff = std::chrono::milliseconds(5);
    options.first_throttle = std::chrono::milliseconds(20);
    options.allow_private = {*AllowedNetwork::parse(fmt::format("127.0.0.1:{}", web_->port()))};
    options.resolver.servers = {names_.server()};
    options.network = {.probe_after = std::chrono::milliseconds(20),
                       .first_interval = std::chrono::milliseconds(20),
                       .longest_interval = std::chrono::milliseconds(200)};
    return options;
  }

 private:
  TemporaryFolder folder_;
  StubDns names_{[](const StubDns::Question&) { return StubDns::Answer{.rcode = 3}; }};
  std::string picture_;
  nlohmann::json routes_ = nlohmann::json::object();
  std::unique_ptr<TroubledWeb> web_;
};

inline std::unique_ptr<Fetcher> make_fetcher(const FetchOptions& options) {
  auto fetcher = Fetcher::create(options);
  EXPECT_TRUE(fetcher.is_ok()) << fetcher.status().to_string();
  return *std::move(fetcher);
}

inline FetchReply fetch_with(Fetcher& fetcher, const std::string& url) {
  EXPECT_TRUE(fetcher.submit({1, url}));
  return *fetcher.next();
}

inline FetchReply fetch_one(const FetchOptions& options, const std::string& url) { return fetch_with(*make_fetcher(options), url); }

/// "ok", or the error's stable name.
inline std::string outcome(const FetchReply& reply) { return reply.body.is_ok() ? "ok" : reply.body.error().name(); }

}  // namespace darkroom
