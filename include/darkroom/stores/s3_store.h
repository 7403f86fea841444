#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "darkroom/core/clock.h"
#include "darkroom/core/metrics.h"
#include "darkroom/core/result.h"
#include "darkroom/files/store.h"
#include "darkroom/web/http_client.h"

namespace darkroom {

/// Which S3 server, and whom to be there. Holds no secret.
struct S3Options {
  std::string endpoint = {};     ///< HOST or HOST:PORT; empty: AWS in `region`.
  std::string scheme = "https";  ///< Or "http".
  std::string region = {};       ///< Empty: us-east-1. A bucket of AWS that is elsewhere is found all the same.
  std::string profile = {};      ///< Of the shared AWS files; empty: the environment decides.
  bool anonymous = false;        ///< Requests are not signed.
  bool path_style = true;        ///< ENDPOINT/BUCKET/KEY, not BUCKET.ENDPOINT/KEY. With an endpoint only.

  std::chrono::milliseconds timeout{30'000};  ///< How long a silent store is waited for.
  int max_tries = 8;                          ///< Of one request, waits of 0.2 s to 20 s between them.
  int64_t part_bytes = int64_t{8} << 20;      ///< Of an upload: an object may have 10,000 parts. Three are in memory per object.
  int64_t max_copy_bytes = 5'368'709'120;     ///< Of one CopyObject (Amazon's limit): what is larger is copied in parts.

  std::chrono::milliseconds least_patience{2'000};  ///< Of a call that takes back what was begun; after a stop of any call.

  Status validate() const;  ///< kInvalidArgument naming the first bad field.
};

/// With what a store works. What it refers to outlives the store.
struct StoreTools {
  HttpClient& http;
  Clock& clock;
  MetricsRegistry* metrics = nullptr;  ///< docs/metrics.md: darkroom_store_*.
  std::stop_token stop = {};           ///< Of whoever works with the store.
  /// How long a server that answered before is waited for while it cannot be reached, after the tries of a request. Zero: not at all.
  std::chrono::seconds outage_patience{0};
};

/// A store of objects on a server that speaks S3 (Amazon S3 API reference, 2006-03-01). Paths are BUCKET/KEY; a folder is what keys begin
/// with. Objects become visible whole, by one request: nothing is ever seen of one that is not published.
///
/// publish() keeps to first-wins by the condition If-None-Match where the server has it for PUT and CompleteMultipartUpload (kAtomic); by a
/// commit record where only PUT has it (kCommitRecord); else it looks just before (kLookBefore). Which of them is found out by trying, with
/// eight requests, once a bucket. Each object carries `x-amz-meta-darkroom-writer`, a mark that is never used twice, so that a lost reply
/// tells no lie: who finds the name taken looks whose the object is.
///
/// Failures that may pass are tried again with growing waits. Before the server has answered at all, a dead, unknown, refusing or silent
/// one is given up within 15 seconds, after three tries when it is silent. A bucket that says "slow down" is asked at half the rate, which
/// grows back. One that answered before and cannot be reached is waited for as `tools.outage_patience` says, and the log tells so.
///
/// When `tools.stop` is requested, calls under way end with kCancelled, and no part of an upload begins any more. Those that begin
/// afterwards, by which a job takes back what it had begun, have two seconds each (least_patience), and those that the store does not do
/// two seconds together; the first one that gets no answer ends them all. Without a stop, too, an upload that is given up is aborted
/// within two seconds or left to the sweep.
///
/// Keys are found as find_s3_credentials says when the store is made; temporary ones are asked for anew before they expire. No message,
/// URI, environment or child ever holds them. Errors: kInvalidArgument (options), kFailedPrecondition (no credentials), kUnavailable (who
/// gives out temporary keys cannot be reached), kCancelled.
/// Thread safety: as Store.
Result<std::unique_ptr<Store>> make_s3_store(const S3Options& options, const StoreTools& tools);

}  // namespace darkroom
