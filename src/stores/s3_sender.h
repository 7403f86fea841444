#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <string>
#include <string_view>

#include "darkroom/core/clock.h"
#include "darkroom/core/result.h"
#include "darkroom/stores/s3_store.h"
#include "darkroom/web/http_client.h"
#include "s3_call.h"
#include "s3_retry.h"
#include "s3_signature.h"
#include "server_outage.h"

namespace darkroom {

/// The keys to sign with; nothing: requests are not signed. `anew`: those that were given last have expired. Any thread.
using S3KeySource = std::function<Result<std::optional<S3Keys>>(bool anew)>;

struct S3Address {
  std::string host;  ///< With the port unless it is the scheme's own.
  std::string path;
};

/// Where requests for an object go: to a host of the bucket's own, of AWS where no endpoint is given; the bucket is in the path where
/// `path_style` says so, and where it has dots on AWS, whose certificate (*.HOST) is none for it.
S3Address address_of(const S3Options& options, std::string_view region, const S3Name& name);

/// Signs requests, sends them, and tries again what may pass; where the tries are over because a bucket that answered before cannot be
/// reached, waits for it (StoreTools::outage_patience) and tries anew. After the stop of the tools: S3Patience::kLeast whatever a call
/// says, and the time of all that get no answer that stands together. Thread safety: any thread.
class S3Sender {
 public:
  /// REQUIRES: valid options.
  S3Sender(S3Options options, S3KeySource keys, StoreTools tools);

  /// Errors: no answer that stands, with the last failure; kCancelled, by `stop` or that of the tools. A reply may be a failure:
  /// failure_of().
  Result<S3Reply> send(const S3Call& call, std::stop_token stop);

  /// The failure that a reply is: kNotFound, kFailedPrecondition (no permission, no such bucket, wrong region, condition not met, not
  /// implemented), kResourceExhausted (quota), kUnavailable. Names the operation and the object, shows the error's code and no text of the
  /// server's. REQUIRES: the reply is not ok.
  Status failure_of(const S3Call& call, const S3Reply& reply) const;

  const S3Options& options() const { return options_; }
  /// By the stop of the tools: what begins now has little time.
  bool is_stopped() const { return tools_.stop.stop_requested(); }

 private:
  struct Bucket {
    Bucket(const std::string& name, const StoreTools& tools);

    ServerOutage outage;
    std::atomic<bool> has_answered = false;  // As below, of this bucket: it may be a host of its own.
    S3Rate rate;
    std::mutex mutex;    // Guards region.
    std::string region;  // Empty: that of the options.
  };
  struct Attempt;  // What the tries of one call know.

  Bucket& bucket_of(const std::string& name);
  std::string region_of(Bucket& bucket) const;
  std::optional<Clock::Instant> deadline_of(const S3Call& call, bool is_after_stop);
  bool is_mute();
  int64_t num_silences();
  void note_end(const Attempt& attempt, bool has_reply);
  Result<S3Reply> try_to_send(const S3Call& call, Attempt& attempt);
  void count(const S3Call& call, std::string_view result, const Attempt& attempt);
  Status sleep(Clock::Instant until, const std::stop_token& stop);
  Result<HttpRequest> make_request(const S3Call& call, Attempt& attempt);
  HttpLimits limits_of(const S3Call& call, const Attempt& attempt) const;
  Status judge(const S3Call& call, HttpRequest& request, HttpResponse response, Attempt& attempt);
  Status mend(const S3Call& call, S3Verdict verdict, const S3Reply& reply, Attempt& attempt);
  Status wait_before_next(const S3Call& call, S3Verdict verdict, const Status& failure, Attempt& attempt);
  Status outlast(const S3Call& call, const Status& failure, Attempt& attempt);
  bool answers(const S3Call& call, const Attempt& attempt);
  bool learn_region(const S3Call& call, const S3Reply& reply, Attempt& attempt);
  double draw_chance();

  const S3Options options_;
  const S3KeySource keys_;
  const StoreTools tools_;
  std::atomic<bool> has_answered_ = false;    // The server, ever, something else than "try later".
  std::atomic<int64_t> skew_seconds_ = 0;     // Of the server's clock before ours.
  std::mutex mutex_;                          // Guards what follows.
  Clock::Instant::duration last_words_left_;  // After a stop: for calls that get no answer that stands.
  int64_t num_silences_ = 0;                  // Calls with little patience that got no answer.
  int64_t num_silences_ended_ = 0;            // Those before an answered call began; fewer than the former: nobody answers.
  std::map<std::string, std::unique_ptr<Bucket>> buckets_;
  std::minstd_rand chance_{std::random_device()()};
};

}  // namespace darkroom
