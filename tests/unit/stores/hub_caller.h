#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "darkroom/core/clock.h"
#include "darkroom/stores/hub.h"
#include "darkroom/stores/hub_store.h"
#include "darkroom/stores/web_client.h"
#include "support/fake_hub.h"

namespace darkroom {

/// A web client whose retries do not wait.
class WebTest : public testing::Test {
 protected:
  static WebOptions quick_options() {
    return {.max_tries = 3, .backoff = {.first = std::chrono::milliseconds(0), .longest = std::chrono::milliseconds(0)}};
  }

  MetricsRegistry metrics_;
  std::unique_ptr<HttpClient> http_ = HttpClient::start({.num_loops = 1}, metrics_).value();
  WebClient web_{*http_, system_clock(), quick_options()};
};

/// Beside it a hub with one model and one dataset.
class HubTest : public WebTest {
 protected:
  HubTest() { model_commit_ = hub_.add("models/org/model", "main", {{"README.md", {"read me"}}, {"unet/a.safetensors", {large_, true}}}); }

  HubClient client(std::optional<std::string> token = std::nullopt) {
    return HubClient(web_, {.endpoint = hub_.endpoint(), .token = std::move(token)});
  }
  static std::string bytes_of(size_t size, int seed) {
    std::string bytes(size, '\0');
    uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
    for (char& c : bytes) {
      state = state * 1664525u + 1013904223u;
      c = static_cast<char>(state >> 24);
    }
    return bytes;
  }

  const HubRepo model_{HubRepoKind::kModel, "org/model"};
  const HubRepo dataset_{HubRepoKind::kDataset, "org/data"};
  const std::string large_ = bytes_of(5000, 1);
  FakeHub hub_;
  std::string model_commit_;
};

}  // namespace darkroom
