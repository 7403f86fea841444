// Asks a real S3 server what no document says of it, and runs the store against it (docs/stores.md). Over http.
// usage: AWS_ACCESS_KEY_ID=... AWS_SECRET_ACCESS_KEY=... s3_server_check ENDPOINT NEW_BUCKET
// Prints what it finds; exits 1 when an object is not what it should be.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "darkroom/core/metrics.h"
#include "stores/s3_object_store.h"

namespace darkroom {
namespace {

constexpr size_t kMb = 1 << 20;
constexpr int64_t kMostBytes = 64 << 20;

int num_failures = 0;

void check(bool is_right, const std::string& what) {
  std::printf("%s %s\n", is_right ? "right" : "WRONG", what.c_str());
  num_failures += is_right ? 0 : 1;
}

std::string bytes_of_size(size_t size, char seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<char>(seed + i * 31 + i / 256);
  }
  return bytes;
}

/// One server, seen by a store.
class ServerCheck {
 public:
  ServerCheck(std::string endpoint, std::string bucket) : bucket_(std::move(bucket)) {
    const char* id = std::getenv("AWS_ACCESS_KEY_ID");
    const char* secret = std::getenv("AWS_SECRET_ACCESS_KEY");
    const S3Keys keys{.id = id == nullptr ? "" : id, .secret = secret == nullptr ? "" : secret, .token = ""};
    keys_ = [keys](bool) -> Result<std::optional<S3Keys>> { return std::optional(keys); };
    options_ = {.endpoint = std::move(endpoint), .scheme = "http", .part_bytes = static_cast<int64_t>(5 * kMb)};
    http_ = HttpClient::start({}, metrics_).value();
    store_ = make_store();
  }

  void run() {
    make_bucket();
    const FirstWins how = store_->first_wins(at("out")).value();
    std::printf("it publishes by %s\n", how == FirstWins::kAtomic         ? "conditions (atomic)"
                                        : how == FirstWins::kCommitRecord ? "a commit record"
                                                                          : "a look before");
    check_names();
    check_sizes();
    check_second_completion();
    check_gone_upload();
    check_racing_puts(how);
    check_racing_objects(how);
    check_folder();
    check_sweep();
  }

 private:
  std::string at(const std::string& key) const { return bucket_ + "/" + key; }
  std::unique_ptr<S3Store> make_store() {
    return std::make_unique<S3Store>(std::make_unique<S3Client>(options_, keys_, StoreTools{*http_, system_clock()}));
  }
  Result<PublishOutcome> publish(S3Store& store, const std::string& name, const std::string& bytes) {
    DARKROOM_ASSIGN_OR_RETURN(const auto object, store.begin_object(at("out"), name));
    DARKROOM_RETURN_IF_ERROR(object->write_text(bytes));
    return object->publish();
  }

  void make_bucket() {
    S3Sender sender(options_, keys_, StoreTools{*http_, system_clock()});
    const S3Call call{.doing = "making", .method = "PUT", .name = {.bucket = bucket_, .key = ""}};
    const Result<S3Reply> reply = sender.send(call, {});
    check(reply.is_ok() && reply->is_ok(), "makes a bucket: " + reply.status().to_string());
  }

  void check_names() {
    for (const std::string& name : {std::string("a b=+%?#&"), std::string("\xc3\xa4"), std::string("%41"), std::string("~*'()")}) {
      const Result<PublishOutcome> published = publish(*store_, name, name);
      const Result<std::string> read = store_->read_small(at("out/" + name), kMostBytes);
      check(published.is_ok() && read.is_ok() && *read == name, "object " + name + ": " + published.status().to_string());
    }
    check(store_->list(at("out")).value().size() == 4, "lists them");
  }

  void check_sizes() {
    for (const size_t size : {size_t{0}, size_t{1}, 5 * kMb - 1, 5 * kMb, 5 * kMb + 1, 11 * kMb + 7}) {
      const std::string name = "size-" + std::to_string(size);
      const std::string bytes = bytes_of_size(size, 'a');
      const Result<PublishOutcome> published = publish(*store_, name, bytes);
      check(published.is_ok() && *published == PublishOutcome::kPublished, name + ": " + published.status().to_string());
      const Result<std::string> read = store_->read_small(at("out/" + name), kMostBytes);
      check(read.is_ok() && *read == bytes, name + " is read: " + read.status().to_string());
      const Result<ObjectTail> tail = store_->read_tail(at("out/" + name), 1000);
      const std::string end = bytes.substr(size - std::min<size_t>(size, 1000));
      check(tail.is_ok() && tail->bytes == end && tail->size_bytes == static_cast<int64_t>(size), name + " by its end");
      const Result<PublishOutcome> again = publish(*store_, name, "other");
      check(again.is_ok() && *again == PublishOutcome::kAlreadyThere, name + " again: " + again.status().to_string());
    }
  }

  void check_second_completion() {
    S3Client& client = store_->client();
    S3Sender sender(options_, keys_, StoreTools{*http_, system_clock()});
    const S3Name name{.bucket = bucket_, .key = "out/twice"};
    const std::string bytes = "part";
    const auto piece = std::as_bytes(std::span(bytes));
    const std::string id = client.create_upload(name, "mark").value();
    const std::vector<S3Part> parts = {{1, client.upload_part(name, id, 1, std::span(&piece, 1)).value()}};
    const std::string body = complete_upload_body(parts);
    S3Call call{.doing = "completing", .method = "POST", .name = name, .query = {{"uploadId", id}}};
    call.body = {std::as_bytes(std::span(body))};
    for (int i = 0; i < 2; ++i) {
      const S3Reply reply = sender.send(call, {}).value();
      std::printf("completion %d of one upload: %d %s\n", i + 1, reply.status, reply.error.code.c_str());
    }
  }

  /// A server may say of it what it says of a completion that is under way.
  void check_gone_upload() {
    S3Client& client = store_->client();
    const S3Name name{.bucket = bucket_, .key = "out/gone"};
    const std::string bytes = "part";
    const auto piece = std::as_bytes(std::span(bytes));
    const std::string id = client.create_upload(name, "mark").value();
    const std::vector<S3Part> parts = {{1, client.upload_part(name, id, 1, std::span(&piece, 1)).value()}};
    check(client.abort(name, id).is_ok(), "an upload is aborted");
    const Result<S3Outcome> outcome = client.complete(name, id, parts, "mark", S3Condition::kNone);
    check(outcome.is_ok() && *outcome == S3Outcome::kGone, "a completion of an upload that is gone says so");
  }

  void check_racing_puts(FirstWins how) {
    constexpr int kNumRounds = 60;
    constexpr int kNumWriters = 16;
    int num_double = 0;
    for (int round = 0; round < kNumRounds; ++round) {
      std::atomic<int> num_stored = 0;
      std::vector<std::jthread> writers;
      for (int writer = 0; writer < kNumWriters; ++writer) {
        writers.emplace_back([&, writer] {
          const std::string bytes = fmt::format("writer {}", writer);
          const auto piece = std::as_bytes(std::span(bytes));
          const S3Name name{.bucket = bucket_, .key = fmt::format("race/{}", round)};
          const auto outcome = store_->client().put(name, std::span(&piece, 1), make_writer_mark(), S3Condition::kAbsent);
          num_stored += outcome.is_ok() && *outcome == S3Outcome::kStored ? 1 : 0;
        });
      }
      writers.clear();
      num_double += num_stored == 1 ? 0 : 1;
    }
    std::printf("conditional PUT: %d of %d races of %d writers without exactly one winner\n", num_double, kNumRounds, kNumWriters);
    check(num_double == 0 || how == FirstWins::kLookBefore, "conditional PUT has one winner");
  }

  void check_racing_objects(FirstWins how) {
    constexpr int kNumRounds = 12;
    constexpr int kNumWriters = 4;
    int num_wrong = 0;
    for (int round = 0; round < kNumRounds; ++round) {
      const std::string name = fmt::format("raced-{}", round);
      std::atomic<int> num_won = 0;
      std::atomic<int> winner = -1;
      std::vector<std::jthread> writers;
      for (int writer = 0; writer < kNumWriters; ++writer) {
        writers.emplace_back([&, writer] {
          const auto store = make_store();
          const Result<PublishOutcome> outcome = publish(*store, name, bytes_of_size(6 * kMb, static_cast<char>('a' + writer)));
          if (outcome.is_ok() && *outcome == PublishOutcome::kPublished) {
            ++num_won;
            winner = writer;
          } else if (!outcome.is_ok()) {
            std::printf("%s\n", outcome.status().to_string().c_str());
          }
        });
      }
      writers.clear();
      const Result<std::string> read = store_->read_small(at("out/" + name), kMostBytes);
      const bool is_right = num_won == 1 && read.is_ok() && *read == bytes_of_size(6 * kMb, static_cast<char>('a' + winner));
      num_wrong += is_right ? 0 : 1;
    }
    std::printf("objects of parts: %d of %d races of %d writers wrong\n", num_wrong, kNumRounds, kNumWriters);
    check(num_wrong == 0 || how == FirstWins::kLookBefore, "racing writers leave one object");
  }

  void check_folder() {
    const auto folder = store_->begin_folder(at("run"), "step-5").value();
    const bool is_written = store_->replace_small((folder->folder() / "unet/weights").path, "w").is_ok();
    const Result<PublishOutcome> published = folder->publish("state.json", "{}");
    check(is_written && published.is_ok(), "publishes a folder: " + published.status().to_string());
    const Result<std::string> read = store_->read_small(at("run/step-5/unet/weights"), kMostBytes);
    check(read.is_ok() && *read == "w", "its file is there");
  }

  void check_sweep() {
    const auto now = std::chrono::system_clock::now();
    (void)store_->client().create_upload({.bucket = bucket_, .key = "out/stale"}, "mark");
    check(store_->sweep(at("out"), std::chrono::hours(1), now).value().num_uploads == 0, "a sweep leaves a young upload");
    const SweepReport report = store_->sweep(at("out"), std::chrono::hours(1), now + std::chrono::hours(2)).value();
    check(report.num_uploads == 1, fmt::format("a sweep aborts an old one: {}", report.num_uploads));
    check(store_->remove_tree(at("out")).is_ok() && store_->list(at("out")).status().code() == StatusCode::kNotFound, "removes a tree");
  }

  const std::string bucket_;
  S3Options options_;
  S3KeySource keys_;
  MetricsRegistry metrics_;
  std::unique_ptr<HttpClient> http_;
  std::unique_ptr<S3Store> store_;
};

}  // namespace
}  // namespace darkroom

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: s3_server_check ENDPOINT NEW_BUCKET\n");
    return 2;
  }
  darkroom::ServerCheck(argv[1], argv[2]).run();
  return darkroom::num_failures == 0 ? 0 : 1;
}
