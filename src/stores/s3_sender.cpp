#include "s3_sender.h"

#include <algorithm>
#include <array>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/sha256.h"
#include "darkroom/web/retry_rules.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kFirstContact{12};  // No try begins later.
// How long the tries wait for a server that has never answered: with the waits between them less than 15 s.
constexpr std::array<milliseconds, 3> kFirstPatience = {milliseconds(3'000), milliseconds(4'000), milliseconds(6'000)};
constexpr milliseconds kLongestConnect{10'000};
constexpr int kMaxSilentTries = 3;                // Each waits a third of the time-out.
constexpr int kMaxSlowTries = 2;                  // Of what may take long on the server: each waits all of it.
constexpr int64_t kLeastBytesPerSecond = 65'536;  // Slower is a failure.
constexpr Backoff kS3Backoff{.first = milliseconds(200), .longest = milliseconds(20'000)};
constexpr size_t kMaxShownIdBytes = 64;

std::string hash_of_pieces(std::span<const std::span<const std::byte>> pieces) {
  Sha256 hash;
  for (const auto piece : pieces) {
    hash.update(piece);
  }
  return hash.finish_hex();
}

int64_t size_of_pieces(std::span<const std::span<const std::byte>> pieces) {
  int64_t num_bytes = 0;
  for (const auto piece : pieces) {
    num_bytes += static_cast<int64_t>(piece.size());
  }
  return num_bytes;
}

bool is_region_name(std::string_view text) {
  return !text.empty() && text.size() <= 64 && text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

/// A request id, or nothing where it could be something else.
std::string shown_id(const std::string& id) {
  const bool is_plain = id.size() <= kMaxShownIdBytes && std::ranges::all_of(id, [](char c) {
                          return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
                        });
  return is_plain ? id : std::string();
}

/// "host:443" is "host" where https goes to 443 anyway: so says the Host header, which is signed.
std::string without_own_port(const std::string& endpoint, std::string_view scheme) {
  const std::string_view port = scheme == "https" ? ":443" : ":80";
  return endpoint.ends_with(port) ? endpoint.substr(0, endpoint.size() - port.size()) : endpoint;
}

}  // namespace

S3Address address_of(const S3Options& options, std::string_view region, const S3Name& name) {
  const std::string host = options.endpoint.empty() ? fmt::format("s3.{}.{}", region, aws_domain_of(region))
                                                    : without_own_port(options.endpoint, options.scheme);
  // A certificate for *.HOST is not one for a bucket with dots.
  const bool has_own_host = options.endpoint.empty() ? name.bucket.find('.') == std::string::npos : !options.path_style;
  if (has_own_host) {
    return {.host = fmt::format("{}.{}", name.bucket, host), .path = "/" + name.key};
  }
  return {.host = host, .path = name.key.empty() ? "/" + name.bucket : fmt::format("/{}/{}", name.bucket, name.key)};
}

Status S3Options::validate() const {
  if (scheme != "https" && scheme != "http") {
    return Status::invalid_argument("scheme of an S3 store must be https or http:", scheme);
  }
  if (endpoint.find_first_of("/@?# \t\r\n") != std::string::npos) {
    return Status::invalid_argument("endpoint of an S3 store must be HOST or HOST:PORT, without scheme and path");
  }
  if (!region.empty() && !is_region_name(region)) {
    return Status::invalid_argument("region of an S3 store must be lower-case letters, digits and dashes:", region);
  }
  if (timeout < milliseconds(1) || timeout > std::chrono::hours(1)) {
    return Status::invalid_argument("timeout of an S3 store must be 1 ms to 1 hour, in ms:", timeout.count());
  }
  if (max_tries < 1 || max_tries > kMaxS3Tries) {
    return Status::invalid_argument(fmt::format("max_tries of an S3 store must be 1 to {}:", kMaxS3Tries), max_tries);
  }
  if (least_patience < milliseconds(1) || least_patience > std::chrono::hours(1)) {
    return Status::invalid_argument("least_patience of an S3 store must be 1 ms to 1 hour, in ms:", least_patience.count());
  }
  if (part_bytes < 1 || part_bytes > (int64_t{1} << 30)) {
    return Status::invalid_argument("part_bytes of an S3 store must be 1 byte to 1 GiB (and servers want 5 MiB at least):", part_bytes);
  }
  if (max_copy_bytes < 1) {
    return Status::invalid_argument("max_copy_bytes of an S3 store must be positive:", max_copy_bytes);
  }
  return Status::ok();
}

struct S3Sender::Attempt {
  Bucket& bucket;
  const std::stop_token stop;
  const Clock::Instant began;
  const std::optional<Clock::Instant> deadline;  ///< Of a call with little patience.
  const bool is_after_stop;
  int64_t num_silences;  ///< When its tries began.
  const std::string payload_hash;
  Clock::Instant try_began = {};
  int num_tries = 0;
  int num_silent = 0;
  bool knows_region = false;  ///< Of the server, in this call.
  bool knows_time = false;
  bool has_new_keys = false;
  bool wants_new_keys = false;
  bool needs_new_connection = false;
  bool was_answered = true;                     ///< The last try.
  bool has_all_tries_anew = false;              ///< Though the bucket could be reached when they were over.
  std::string region = {};                      ///< That the last try was signed for.
  std::optional<S3Reply> reply = std::nullopt;  ///< That stands.
};

S3Sender::S3Sender(S3Options options, S3KeySource keys, StoreTools tools)
    : options_(std::move(options)), keys_(std::move(keys)), tools_(std::move(tools)), last_words_left_(options_.least_patience) {}

S3Sender::Bucket::Bucket(const std::string& name, const StoreTools& tools)
    : outage(S3Name{.bucket = name, .key = {}}.uri(), tools.clock, tools.metrics, tools.outage_patience) {}

S3Sender::Bucket& S3Sender::bucket_of(const std::string& name) {
  const std::lock_guard hold(mutex_);
  std::unique_ptr<Bucket>& bucket = buckets_[name];
  if (!bucket) {
    bucket = std::make_unique<Bucket>(name, tools_);
  }
  return *bucket;
}

std::string S3Sender::region_of(Bucket& bucket) const {
  const std::lock_guard hold(bucket.mutex);
  if (!bucket.region.empty()) {
    return bucket.region;
  }
  return options_.region.empty() ? "us-east-1" : options_.region;
}

double S3Sender::draw_chance() {
  const std::lock_guard hold(mutex_);
  return std::uniform_real_distribution<double>()(chance_);
}

Status S3Sender::sleep(Clock::Instant until, const std::stop_token& stop) {
  return tools_.clock.sleep_until(until, stop) ? Status::ok() : Status::cancelled("a request to a store was stopped");
}

/// When a call must have ended, whatever became of it. Nothing: it has all the patience of the options.
std::optional<Clock::Instant> S3Sender::deadline_of(const S3Call& call, bool is_after_stop) {
  const Clock::Instant now = tools_.clock.now();
  if (is_after_stop) {
    const std::lock_guard hold(mutex_);
    return now + last_words_left_;
  }
  return call.patience == S3Patience::kLeast ? std::optional(now + options_.least_patience) : std::nullopt;
}

bool S3Sender::is_mute() {
  const std::lock_guard hold(mutex_);
  return num_silences_ != num_silences_ended_;
}

int64_t S3Sender::num_silences() {
  const std::lock_guard hold(mutex_);
  return num_silences_;
}

/// What the end of a call means for those with little patience that follow.
void S3Sender::note_end(const Attempt& attempt, bool has_reply) {
  const bool is_broken_off = attempt.stop.stop_requested();
  const std::lock_guard hold(mutex_);
  if (attempt.num_tries > 0 && attempt.was_answered) {
    num_silences_ended_ = std::max(num_silences_ended_, attempt.num_silences);  // A later silence is not over.
  } else if (attempt.num_tries > 0 && attempt.deadline && !is_broken_off) {
    ++num_silences_;
  }
  if (attempt.is_after_stop && !has_reply && !is_broken_off) {
    last_words_left_ = std::max(Clock::Instant::duration::zero(), last_words_left_ - (tools_.clock.now() - attempt.began));
  }
}

Result<S3Reply> S3Sender::send(const S3Call& call, std::stop_token stop) {
  const bool is_after_stop = is_stopped();
  std::stop_source ends;
  const auto end = [&ends] { ends.request_stop(); };
  const std::stop_callback at_callers(std::move(stop), end);
  const std::stop_callback at_stores(is_after_stop ? std::stop_token() : tools_.stop, end);
  const bool is_hashed = options_.scheme == "http";  // TLS keeps the body whole otherwise.
  Attempt attempt{.bucket = bucket_of(call.name.bucket),
                  .stop = ends.get_token(),
                  .began = tools_.clock.now(),
                  .deadline = deadline_of(call, is_after_stop),
                  .is_after_stop = is_after_stop,
                  .num_silences = num_silences(),
                  .payload_hash = is_hashed ? hash_of_pieces(call.body) : std::string(kUnsignedPayload)};
  Result<S3Reply> reply = try_to_send(call, attempt);
  note_end(attempt, reply.is_ok());
  const bool is_cut = is_stopped() && reply.status().code() == StatusCode::kUnavailable;
  return is_cut ? Status::cancelled(reply.status().message()) : std::move(reply);
}

Result<S3Reply> S3Sender::try_to_send(const S3Call& call, Attempt& attempt) {
  if (attempt.deadline && is_mute()) {
    return Status::unavailable(fmt::format("{} {} was not tried: the store gave no answer just now", call.doing, call.name.uri()));
  }
  while (!attempt.reply) {
    const Clock::Instant now = tools_.clock.now();
    if (attempt.deadline && now >= *attempt.deadline) {
      return Status::unavailable(fmt::format("{} {}: no time is left for it", call.doing, call.name.uri()));
    }
    const Clock::Instant turn = attempt.deadline ? now : attempt.bucket.rate.take_turn(now);  // The queue may be longer than its patience.
    DARKROOM_RETURN_IF_ERROR(sleep(turn, attempt.stop));
    Result<HttpRequest> request = make_request(call, attempt);
    if (request.status().code() == StatusCode::kUnavailable) {  // Who gives out the keys may be out of reach with the store.
      attempt.was_answered = false;
      DARKROOM_RETURN_IF_ERROR(outlast(call, request.status(), attempt));
      continue;
    }
    DARKROOM_RETURN_IF_ERROR(request.status());
    attempt.try_began = tools_.clock.now();
    HttpResponse response = tools_.http.exchange(*request, attempt.stop);
    DARKROOM_RETURN_IF_ERROR(judge(call, *request, std::move(response), attempt));
  }
  return *std::move(attempt.reply);
}

Result<HttpRequest> S3Sender::make_request(const S3Call& call, Attempt& attempt) {
  attempt.region = region_of(attempt.bucket);
  const S3Address address = address_of(options_, attempt.region, call.name);
  const S3Request meant{.method = call.method,
                        .host = address.host,
                        .path = address.path,
                        .query = call.query,
                        .headers = call.headers,
                        .payload_hash = attempt.payload_hash};
  HttpRequest request{.method = call.method, .url = fmt::format("{}://{}{}", options_.scheme, address.host, request_target(meant))};
  for (const S3Header& header : call.headers) {
    request.headers.emplace_back(header.name, header.value);
  }
  DARKROOM_ASSIGN_OR_RETURN(const std::optional<S3Keys> keys, keys_(std::exchange(attempt.wants_new_keys, false)));
  if (keys) {
    const WallTime now = tools_.clock.wall() + seconds(skew_seconds_.load());
    DARKROOM_ASSIGN_OR_RETURN(const std::vector<S3Header> signature, sign_request(meant, *keys, {.region = attempt.region}, now));
    for (const S3Header& header : signature) {
      request.headers.emplace_back(header.name, header.value);
    }
  }
  request.body = call.body;
  request.limits = limits_of(call, attempt);
  request.needs_new_connection = attempt.needs_new_connection;
  return request;
}

HttpLimits S3Sender::limits_of(const S3Call& call, const Attempt& attempt) const {
  HttpLimits limits;
  const milliseconds share = std::max(milliseconds(1), options_.timeout / kMaxSilentTries);
  if (!has_answered_) {
    const size_t num_waited = std::min<size_t>(attempt.num_silent, kFirstPatience.size() - 1);
    limits.idle = limits.connect = std::min(share, kFirstPatience[num_waited]);
  } else {
    limits.idle = call.may_be_silent ? options_.timeout : share;
    limits.connect = std::min(kLongestConnect, options_.timeout);
  }
  limits.total = limits.idle + seconds((size_of_pieces(call.body) + call.max_answer_bytes) / kLeastBytesPerSecond);
  if (attempt.deadline) {
    const auto left = std::chrono::ceil<milliseconds>(*attempt.deadline - tools_.clock.now());
    limits.idle = limits.connect = limits.total = std::max(milliseconds(1), left);
  }
  limits.max_body_bytes = call.max_answer_bytes;
  return limits;
}

Status S3Sender::judge(const S3Call& call, HttpRequest& request, HttpResponse response, Attempt& attempt) {
  ++attempt.num_tries;
  attempt.was_answered = response.is_answered();
  if (!response.is_answered()) {
    const S3Verdict verdict = judge_s3_end(response.end);
    count(call, result_word(response.end), attempt);
    const Status failure = http_failure(request, response).with_context(fmt::format("{} {}", call.doing, call.name.uri()));
    return verdict == S3Verdict::kFinal ? failure : wait_before_next(call, verdict, failure, attempt);
  }
  attempt.bucket.outage.note_answer();
  S3Reply reply{.status = response.status(), .head = std::move(response.head), .body = std::move(response.body)};
  reply.error = error_in(call, reply.status, reply.body);
  S3Verdict verdict = judge_s3_answer(reply.status, reply.error.code);
  if (reply.status == 400 && reply.error.code.empty() && reply.head.find("x-amz-bucket-region").value_or("") != attempt.region &&
      reply.head.find("x-amz-bucket-region")) {
    verdict = S3Verdict::kWrongRegion;  // The answer to a HEAD says it in this header alone.
  }
  if (verdict == S3Verdict::kRetry && reply.error.code == "InternalError" && call.is_in_vain && call.is_in_vain()) {
    verdict = S3Verdict::kFinal;
  }
  count(call, result_word(reply, verdict), attempt);
  if (verdict == S3Verdict::kRetry || verdict == S3Verdict::kSlowDown) {
    if (verdict == S3Verdict::kSlowDown) {
      attempt.bucket.rate.slow_down(tools_.clock.now());
    }
    return wait_before_next(call, verdict, failure_of(call, reply), attempt);
  }
  has_answered_ = true;
  if (verdict != S3Verdict::kWrongRegion) {  // Which another host than the bucket's may say.
    attempt.bucket.has_answered = true;
  }
  if (verdict != S3Verdict::kFinal) {
    return mend(call, verdict, reply, attempt);
  }
  attempt.reply = std::move(reply);
  return Status::ok();
}

void S3Sender::count(const S3Call& call, std::string_view result, const Attempt& attempt) {
  if (tools_.metrics == nullptr) {
    return;
  }
  const std::string op(operation_of(call));
  tools_.metrics
      ->counter("darkroom_store_requests_total", "Requests to an S3 store, by operation and how they ended.",
                {{"op", op}, {"result", std::string(result)}})
      .add();
  tools_.metrics->histogram("darkroom_store_seconds", "Time of one request to an S3 store.", latency_bounds(), {{"op", op}})
      .observe(std::chrono::duration<double>(tools_.clock.now() - attempt.try_began).count());
}

/// Ok: the next try is made otherwise.
Status S3Sender::mend(const S3Call& call, S3Verdict verdict, const S3Reply& reply, Attempt& attempt) {
  const std::string where = call.name.uri();
  if (verdict == S3Verdict::kWrongRegion) {
    if (learn_region(call, reply, attempt)) {
      return Status::ok();
    }
    return Status::failed_precondition("the bucket is in another region; give its own with ?region= (object, region signed for, code):",
                                       where, attempt.region, reply.error.code);
  }
  if (verdict == S3Verdict::kSkewedClock) {
    // A date, read as seconds since a time long enough ago: Retry-After has the same three forms.
    const WallTime before = tools_.clock.wall() - std::chrono::hours(24 * 365);
    const auto since = parse_retry_after(reply.head.find("date").value_or(""), before);
    if (attempt.knows_time || !since) {
      return Status::failed_precondition("this machine's clock differs too much from the store's; set it (object):", where);
    }
    attempt.knows_time = true;
    skew_seconds_ = std::chrono::duration_cast<seconds>(*since - std::chrono::hours(24 * 365)).count();
    return Status::ok();
  }
  if (attempt.has_new_keys) {
    return Status::failed_precondition("the credentials for the store have expired; renew them and run the same command again (object):",
                                       where);
  }
  attempt.has_new_keys = attempt.wants_new_keys = true;
  return Status::ok();
}

bool S3Sender::learn_region(const S3Call& call, const S3Reply& reply, Attempt& attempt) {
  std::string region = reply.error.region;
  if (const auto header = reply.head.find("x-amz-bucket-region")) {
    region = *header;
  }
  if (attempt.knows_region || !is_region_name(region) || region == attempt.region) {
    return false;
  }
  attempt.knows_region = true;
  const std::lock_guard hold(attempt.bucket.mutex);
  if (attempt.bucket.region != region) {
    log_info("the bucket {} is in region {}: its requests are signed for that one", call.name.bucket, region);
    attempt.bucket.region = region;
  }
  return true;
}

Status S3Sender::wait_before_next(const S3Call& call, S3Verdict verdict, const Status& failure, Attempt& attempt) {
  const bool is_silent = verdict == S3Verdict::kSilent;
  attempt.num_silent = is_silent ? attempt.num_silent + 1 : 0;
  const int max_silent = has_answered_ && call.may_be_silent ? kMaxSlowTries : kMaxSilentTries;
  const bool is_too_silent = is_silent && attempt.num_silent >= max_silent;
  const milliseconds delay = kS3Backoff.delay(attempt.num_tries - 1, draw_chance());
  const Clock::Instant until = tools_.clock.now() + delay;
  const bool is_first_contact_over = !has_answered_ && until - attempt.began > kFirstContact;
  const bool is_too_late = is_first_contact_over || (attempt.deadline && (is_silent || until >= *attempt.deadline));
  if (is_too_silent || is_too_late || attempt.num_tries >= options_.max_tries) {
    return outlast(call, failure, attempt);
  }
  attempt.needs_new_connection = verdict == S3Verdict::kSlowDown;  // Perhaps to another machine of the store.
  return sleep(until, attempt.stop);
}

/// Once the tries of a call are over. Ok: it has all of them anew.
Status S3Sender::outlast(const S3Call& call, const Status& failure, Attempt& attempt) {
  const Clock::Instant now = tools_.clock.now();
  const Status given_up = attempt.num_tries == 0 ? failure : failure.with_context(fmt::format("gave up after {} tries", attempt.num_tries));
  const bool may_wait = !attempt.was_answered && attempt.bucket.has_answered && !attempt.deadline && call.patience == S3Patience::kFull;
  if (!may_wait || now - attempt.began >= tools_.outage_patience) {
    return given_up;
  }
  switch (attempt.bucket.outage.outlast([&] { return answers(call, attempt); }, failure.message(), attempt.stop)) {
    case ServerOutage::End::kStopped:
      return Status::cancelled("stopped while the store could not be reached");
    case ServerOutage::End::kTooLong:
      return given_up.with_context(fmt::format("nobody answered for {} s", tools_.outage_patience.count()));
    case ServerOutage::End::kNone:
      if (attempt.has_all_tries_anew) {  // The store is there, and this request gets no answer all the same.
        return given_up;
      }
      attempt.has_all_tries_anew = true;  // An outage may have ended just now.
      DARKROOM_RETURN_IF_ERROR(sleep(now + kS3Backoff.longest, attempt.stop));
      break;
    case ServerOutage::End::kOver:
      attempt.has_all_tries_anew = false;
      break;
  }
  attempt.num_tries = attempt.num_silent = 0;
  attempt.num_silences = num_silences();
  attempt.needs_new_connection = true;                                      // Those from before may be dead and not know it.
  attempt.wants_new_keys = attempt.wants_new_keys || attempt.has_new_keys;  // Whatever was mended before is old now.
  attempt.has_new_keys = attempt.knows_time = false;
  return Status::ok();
}

/// Whether anything comes back from where a call goes. Not signed: a refusal is an answer, and new keys may be out of reach, too.
bool S3Sender::answers(const S3Call& call, const Attempt& attempt) {
  const S3Address address = address_of(options_, region_of(attempt.bucket), {.bucket = call.name.bucket, .key = {}});
  HttpRequest request{.method = "HEAD", .url = fmt::format("{}://{}{}", options_.scheme, address.host, address.path)};
  request.limits.connect = request.limits.idle = request.limits.total = std::min(kLongestConnect, options_.timeout);
  request.needs_new_connection = true;
  return !is_out_of_reach(tools_.http.exchange(request, attempt.stop).end);
}

Status S3Sender::failure_of(const S3Call& call, const S3Reply& reply) const {
  const S3Words words = words_of(reply);
  const std::string what = fmt::format("{} {}: {} (status, code, request id):", call.doing, call.name.uri(), words.what);
  return Status::make(words.code, what, reply.status, reply.error.code, shown_id(reply.error.request_id));
}

}  // namespace darkroom
