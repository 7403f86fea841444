#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "darkroom/core/sha256.h"
#include "s3_server.h"
#include "stores/s3_object_store.h"
#include "support/interleaver.h"

namespace darkroom {
namespace {

using std::chrono::hours;
using testing::IsEmpty;
using testing::Not;
using Conditions = FakeS3::Conditions;
using S3Fault = FakeS3::Fault;

constexpr const char* kObject = "out/part";

/// A writer with a store and connections of its own. Before each of its requests it asks for keys: there a test can stop it.
class Writer {
 public:
  Writer(S3Server& server, std::string bytes) : server_(server), bytes_(std::move(bytes)) {
    EXPECT_TRUE(store_.first_wins(std::string(FakeS3::kBucket) + "/out").is_ok());
    num_requests = 0;
  }

  std::function<void(int number)> before_request = [](int) {};  // Parts are sent by threads of their own: each is told its own number.
  std::atomic<int> num_requests = 0;
  PublishOutcome outcome = PublishOutcome::kAlreadyThere;

  Result<PublishOutcome> try_to_publish() {
    const auto object = store_.begin_object(std::string(FakeS3::kBucket) + "/out", "part").value();
    DARKROOM_RETURN_IF_ERROR(object->write_text(bytes_));
    DARKROOM_ASSIGN_OR_RETURN(outcome, object->publish());
    return outcome;
  }
  void publish() {
    const Status published = try_to_publish().status();
    ASSERT_TRUE(published.is_ok()) << published.to_string();
  }
  const std::string& bytes() const { return bytes_; }
  bool has_won() const { return outcome == PublishOutcome::kPublished; }
  S3Store& store() { return store_; }

 private:
  S3KeySource keys() {
    return [this, keys = server_.keys()](bool anew) {
      before_request(++num_requests);
      return keys(anew);
    };
  }

  S3Server& server_;
  const std::string bytes_;
  std::unique_ptr<HttpClient> http_ = HttpClient::start({.num_loops = 1}, server_.metrics).value();
  S3Store store_{std::make_unique<S3Client>(server_.options(), keys(), StoreTools{*http_, server_.clock})};
};

struct Race {
  Conditions conditions;
  size_t one_size;
  size_t other_size;
};

class S3Race : public testing::TestWithParam<Race> {
 protected:
  static std::string one_bytes() { return std::string(GetParam().one_size, 'a'); }
  static std::string other_bytes() { return std::string(GetParam().other_size, 'b'); }

  void begin_round() {
    server_.fake.with_state([](FakeS3Objects& state) {
      state.objects.clear();
      state.past.clear();
    });
    one_.outcome = other_.outcome = PublishOutcome::kAlreadyThere;
  }
  /// One object, and its bytes never changed.
  void check_round(const std::string& what) {
    const FakeS3Objects state = server_.fake.with_state([](FakeS3Objects& s) { return s; });
    const std::vector<std::string>& past = state.past.at(kObject);
    if (GetParam().conditions == Conditions::kNone) {
      EXPECT_TRUE(one_.has_won() || other_.has_won()) << what;  // Both may, at the same instant.
      EXPECT_TRUE(past.back() == one_.bytes() || past.back() == other_.bytes()) << what;
    } else {
      EXPECT_EQ(past.size(), 1u) << what;
      EXPECT_NE(one_.has_won(), other_.has_won()) << what;
      EXPECT_TRUE(past.front() == (one_.has_won() ? one_ : other_).bytes()) << what;
    }
    EXPECT_EQ(state.objects.size(), 1u) << what << ": " << state.objects.begin()->first;
    EXPECT_EQ(state.uploads.size(), 0u) << what;
  }

  S3Server server_{GetParam().conditions};
  Writer one_{server_, one_bytes()};
  Writer other_{server_, other_bytes()};
};

INSTANTIATE_TEST_SUITE_P(Writers, S3Race,
                         testing::Values(Race{Conditions::kEverywhere, 10, 11}, Race{Conditions::kEverywhere, 250, 251},
                                         Race{Conditions::kEverywhere, 10, 250}, Race{Conditions::kEverywhere, 250, 10},
                                         Race{Conditions::kPutOnly, 10, 11}, Race{Conditions::kPutOnly, 250, 251},
                                         Race{Conditions::kPutOnly, 10, 250}, Race{Conditions::kPutOnly, 250, 10},
                                         Race{Conditions::kNone, 10, 11}, Race{Conditions::kNone, 250, 251}),
                         [](const auto& info) {
                           const char* mode = info.param.conditions == Conditions::kEverywhere ? "atomic"
                                              : info.param.conditions == Conditions::kPutOnly  ? "record"
                                                                                               : "look_before";
                           return fmt::format("{}_{}_{}", mode, info.param.one_size, info.param.other_size);
                         });

TEST_P(S3Race, keeps_one_object_when_a_writer_pauses_before_any_of_its_requests) {
  begin_round();
  one_.publish();
  const int num_steps = one_.num_requests;
  ASSERT_GE(num_steps, 1);
  for (int step = 1; step <= num_steps; ++step) {
    begin_round();
    one_.before_request = [&, begin = one_.num_requests.load()](int number) {
      if (number == begin + step) {
        other_.publish();
      }
    };
    one_.publish();
    one_.before_request = [](int) {};
    check_round(fmt::format("paused before request {}", step));
  }
}

TEST_P(S3Race, keeps_one_object_in_orders_drawn_by_chance) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    begin_round();
    Interleaver order(seed);
    one_.before_request = other_.before_request = [&order](int) { order.pause(); };
    order.run({[&] { one_.publish(); }, [&] { other_.publish(); }});
    check_round(fmt::format("seed {}", seed));
  }
}

class S3RecordRace : public S3Race {};
INSTANTIATE_TEST_SUITE_P(Writers, S3RecordRace, testing::Values(Race{Conditions::kPutOnly, 10, 11}, Race{Conditions::kPutOnly, 250, 251}),
                         [](const auto& info) { return fmt::format("of_{}_bytes", info.param.one_size); });

TEST_P(S3RecordRace, a_sweep_completes_what_a_record_names_and_takes_what_is_old_and_named_by_none) {
  begin_round();
  one_.publish();
  const int num_steps = one_.num_requests;
  int num_completed = 0;
  int num_aborted = 0;
  for (int step = 1; step <= num_steps; ++step) {
    begin_round();
    one_.before_request = [&, begin = one_.num_requests.load()](int number) {
      if (number != begin + step) {
        return;
      }
      const bool is_named = !server_.fake.keys_below("out/_tmp").empty();
      const bool was_there = server_.fake.bytes_of(kObject).has_value();
      const SweepReport report =
          other_.store().sweep(std::string(FakeS3::kBucket) + "/out", hours(24), server_.fake.state.now + hours(25)).value();
      EXPECT_EQ(report.num_completed, is_named && !was_there ? 1 : 0) << step;
      EXPECT_EQ(server_.fake.bytes_of(kObject).has_value(), is_named || was_there) << step;
      EXPECT_EQ(server_.fake.num_uploads(), 0u) << step;
      num_completed += static_cast<int>(report.num_completed);
      num_aborted += static_cast<int>(report.num_uploads);
    };
    const Result<PublishOutcome> published = one_.try_to_publish();
    one_.before_request = [](int) {};
    if (published.is_ok()) {
      check_round(fmt::format("swept before request {}", step));
    } else {
      EXPECT_EQ(server_.fake.bytes_of(kObject), std::nullopt) << step << ": " << published.status().to_string();
      EXPECT_EQ(server_.fake.num_uploads(), 0u) << step;
    }
  }
  EXPECT_GE(num_completed, 1);
  EXPECT_GE(num_aborted, 1);
}

/// A fault at about 3 of 10 calls, the same for the same seed, key and count of tries.
class Faults {
 public:
  explicit Faults(uint64_t seed) : seed_(seed) {}

  S3Fault operator()(const FakeS3::Call& call) {
    const std::string what = fmt::format("{} {} {}", seed_, call.operation, call.key);
    const std::lock_guard hold(mutex_);
    std::minstd_rand random(static_cast<unsigned>(std::hash<std::string>()(fmt::format("{} {}", what, counts_[what]++))));
    random.discard(3);
    const auto draw = random() % 1000;
    num_faults_ += draw < 300 ? 1 : 0;
    if (draw < 3) {
      return S3Fault::kHang;
    }
    constexpr S3Fault kKinds[] = {S3Fault::kSlowDown,  S3Fault::kInternal,     S3Fault::kReset,
                                  S3Fault::kLostReply, S3Fault::kInternalDone, S3Fault::kErrorIn200};
    const S3Fault kind = kKinds[draw % 6];
    const bool fits = kind != S3Fault::kErrorIn200 || call.operation == "complete" || call.operation == "copy";
    return draw >= 300 ? S3Fault::kNone : fits ? kind : S3Fault::kInternal;
  }
  int num_faults() const { return num_faults_; }

 private:
  const uint64_t seed_;
  std::mutex mutex_;
  std::map<std::string, int> counts_;
  std::atomic<int> num_faults_ = 0;
};

class S3Faults : public testing::TestWithParam<Conditions> {};
INSTANTIATE_TEST_SUITE_P(Servers, S3Faults, testing::Values(Conditions::kEverywhere, Conditions::kPutOnly, Conditions::kNone));

TEST_P(S3Faults, end_with_every_object_right_when_three_of_ten_requests_fail) {
  Faults faults(11);  // Asked by the server's threads to their end.
  S3Server server(GetParam());
  S3Options options = server.options();
  options.timeout = std::chrono::milliseconds(4'000);
  S3Store store(server.make_client(options));
  const std::string folder = std::string(FakeS3::kBucket) + "/out";
  ASSERT_TRUE(store.first_wins(folder).is_ok());
  server.fake.fault = std::ref(faults);
  constexpr int kNumObjects = 150;
  const auto bytes_of_object = [](int i) { return std::string(static_cast<size_t>(i * 37 % 410), static_cast<char>('a' + i % 26)); };
  int num_given_up = 0;
  for (int i = 0; i < kNumObjects; ++i) {
    Result<PublishOutcome> published = Status::internal("not tried");
    for (int attempt = 0; attempt < 5 && !published.is_ok(); ++attempt) {  // As a job does it.
      const auto object = store.begin_object(folder, fmt::format("part-{}", i)).value();
      const Status written = object->write_text(bytes_of_object(i));
      published = written.is_ok() ? object->publish() : written;
      num_given_up += published.is_ok() ? 0 : 1;
    }
    ASSERT_TRUE(published.is_ok()) << published.status().to_string();
  }
  EXPECT_GT(faults.num_faults(), kNumObjects / 3);
  EXPECT_LT(num_given_up, kNumObjects / 20);
  server.fake.fault = [](const FakeS3::Call&) { return S3Fault::kNone; };
  const auto now = server.fake.with_state([](const FakeS3Objects& state) { return state.now; });
  ASSERT_TRUE(store.sweep(folder, hours(24), now + hours(25)).is_ok());
  for (int i = 0; i < kNumObjects; ++i) {
    const std::string key = fmt::format("out/part-{}", i);
    EXPECT_EQ(server.fake.bytes_of(key), bytes_of_object(i)) << i;
    for (const std::string& past : server.fake.with_state([&](FakeS3Objects& state) { return state.past[key]; })) {
      EXPECT_EQ(past, bytes_of_object(i)) << i;
    }
  }
  EXPECT_EQ(server.fake.num_uploads(), 0u);
  EXPECT_THAT(server.fake.keys_below("out/_tmp"), IsEmpty());
}

TEST(s3_secrets, are_in_no_message_and_no_log_whatever_the_server_echoes) {
  const S3Keys keys{.id = "AKCANARYID", .secret = "canary/secret", .token = "canary-token-that-is-short"};
  MetricsRegistry metrics;
  const auto http = HttpClient::start({}, metrics).value();
  LeapClock clock;
  testing::internal::CaptureStderr();
  std::string messages;
  for (const int status : {200, 301, 307, 400, 401, 403, 404, 409, 412, 416, 500, 501, 503, 507}) {
    for (const std::string code : {"InvalidAccessKeyId", "ExpiredToken", "AuthorizationHeaderMalformed", "RequestTimeTooSkewed", "X"}) {
      const ScriptedServer server([&](const ScriptedServer::Request& request) {
        const std::string echo = "AKCANARYID canary/secret canary-token-that-is-short " + sha256_hex(request.head);
        const std::string body = fmt::format(
            "<Error><Code>{}</Code><Message>{}</Message><RequestId>{}</RequestId><Region>{}</Region></Error>", code, echo, echo, echo);
        return ScriptedServer::Answer{fmt::format("HTTP/1.1 {} {}\r\nx-amz-bucket-region: {}\r\nETag: {}\r\nContent-Length: {}\r\n\r\n{}",
                                                  status, echo, echo, echo, body.size(), body),
                                      ScriptedServer::Answer::Then::kClose};
      });
      const S3Options options{.endpoint = fmt::format("127.0.0.1:{}", server.port()), .scheme = "http", .max_tries = 2};
      const S3KeySource source = [&](bool) -> Result<std::optional<S3Keys>> { return std::optional(keys); };
      S3Store store(std::make_unique<S3Client>(options, source, StoreTools{*http, clock}));
      messages += store.read_small("b/k", 10).status().to_string() + store.replace_small("b/k", "x").to_string() +
                  store.list("b/k").status().to_string() + store.first_wins("b/k").status().to_string() +
                  store.sweep("b/k", hours(1), clock.wall()).status().to_string() + store.move_object("b/k", "b/l").to_string();
      const auto object = store.begin_object("b/o", "p").value();
      messages += object->write_text(std::string(20, 'x')).to_string();
      messages += object->publish().status().to_string() + object->describe();
    }
  }
  messages += testing::internal::GetCapturedStderr();
  EXPECT_GT(messages.size(), 1000u);
  for (const char* secret : {"CANARY", "canary", "Signature=", "Credential="}) {
    EXPECT_THAT(messages, Not(testing::HasSubstr(secret)));
  }
}

}  // namespace
}  // namespace darkroom
