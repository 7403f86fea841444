#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "darkroom/core/metrics.h"
#include "darkroom/web/http_client.h"
#include "stores/s3_client.h"
#include "support/fake_s3.h"
#include "support/leap_clock.h"

namespace darkroom {

/// A fake server and what talks to it; no wait takes time.
class S3Server {
 public:
  explicit S3Server(FakeS3::Conditions conditions = FakeS3::Conditions::kEverywhere) : fake(conditions) {}

  S3Options options() const {
    return {.endpoint = fake.endpoint(), .scheme = "http", .timeout = std::chrono::milliseconds(20'000), .part_bytes = 100};
  }
  S3KeySource keys() {
    return [this](bool anew) -> Result<std::optional<S3Keys>> {
      num_renewals += anew ? 1 : 0;
      return fake.is_anonymous ? std::optional<S3Keys>() : std::optional(anew ? renewed_keys.value_or(used_keys) : used_keys);
    };
  }
  std::unique_ptr<S3Client> make_client(const S3Options& options) {
    return std::make_unique<S3Client>(options, keys(), StoreTools{*http, clock, &metrics, stop.get_token(), outage_patience});
  }
  std::unique_ptr<S3Client> make_client() { return make_client(options()); }

  FakeS3 fake;
  S3Keys used_keys = fake.keys;
  std::optional<S3Keys> renewed_keys;
  std::atomic<int> num_renewals = 0;  // Uploads ask for keys in threads of their own.
  LeapClock clock;
  std::stop_source stop;  // Of the store.
  std::chrono::seconds outage_patience{0};
  MetricsRegistry metrics;
  std::unique_ptr<HttpClient> http = HttpClient::start({}, metrics).value();
};

inline S3Name in_bucket(const std::string& key) { return {.bucket = FakeS3::kBucket, .key = key}; }

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// Puts one piece.
inline Result<S3Outcome> put_text(S3Client& client, const std::string& key, const std::string& text, const std::string& writer,
                                  S3Condition condition = S3Condition::kAbsent) {
  const std::span<const std::byte> piece = bytes_of(text);
  return client.put(in_bucket(key), std::span(&piece, 1), writer, condition);
}

/// An upload of one part, and what completes it.
struct OneUpload {
  std::string id;
  std::vector<S3Part> parts;
};
inline OneUpload upload_text(S3Client& client, const std::string& key, const std::string& text, const std::string& writer) {
  OneUpload upload{.id = client.create_upload(in_bucket(key), writer).value(), .parts = {}};
  const std::span<const std::byte> piece = bytes_of(text);
  upload.parts.push_back({.number = 1, .etag = client.upload_part(in_bucket(key), upload.id, 1, std::span(&piece, 1)).value()});
  return upload;
}

}  // namespace darkroom
