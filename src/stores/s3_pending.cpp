#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>
#include <utility>

#include "darkroom/core/check.h"
#include "darkroom/core/log.h"
#include "darkroom/core/nested_text.h"
#include "darkroom/files/paths.h"
#include "s3_object_store.h"

namespace darkroom {
namespace {

constexpr size_t kMaxPartsInFlight = 2;

/// What a commit record says of an upload.
std::string print_upload(const std::string& id, std::span<const S3Part> parts) {
  nlohmann::json etags = nlohmann::json::array();
  for (const S3Part& part : parts) {
    etags.push_back(part.etag);
  }
  return nlohmann::json{{"upload", id}, {"etags", std::move(etags)}}.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

struct NamedUpload {
  std::string id;
  std::vector<S3Part> parts;
};

std::optional<NamedUpload> parse_upload(const std::string& body) {
  const nlohmann::json fields = parse_json(body);
  if (!fields.is_object() || !fields.contains("upload") || !fields["upload"].is_string() || !fields.contains("etags") ||
      !fields["etags"].is_array() || fields["etags"].empty() || fields["etags"].size() > kMaxS3Parts) {
    return std::nullopt;
  }
  NamedUpload upload{.id = fields["upload"].get<std::string>(), .parts = {}};
  for (const nlohmann::json& etag : fields["etags"]) {
    if (!etag.is_string()) {
      return std::nullopt;
    }
    upload.parts.push_back({.number = static_cast<int>(upload.parts.size()) + 1, .etag = etag.get<std::string>()});
  }
  return upload;
}

class PendingS3Object final : public PendingObject {
 public:
  PendingS3Object(S3Store& store, std::string path) : store_(store), path_(std::move(path)), name_(S3Store::name_of(path_)) {}

  ~PendingS3Object() override {
    stop_.request_stop();
    in_flight_.clear();  // A part that arrives after its upload was aborted may stay, and cost, for ever.
    if (!upload_.empty() && !is_visible_ && !is_undecided_) {
      if (const Status aborted = client().abort(name_, upload_, S3Patience::kLeast); !aborted.is_ok()) {
        log_warning("an upload stays until a sweep aborts it: {}", aborted.message());
      }
    }
  }

  std::string describe() const override { return name_.uri(); }
  int64_t num_bytes() const override { return num_bytes_; }

  Status write(std::span<const std::span<const std::byte>> pieces) override {
    DARKROOM_CHECK(!is_spent_, "the object was already published (object):", describe());
    for (const std::span<const std::byte> piece : pieces) {
      failure_ = failure_.is_ok() ? append(piece) : failure_;
    }
    return failure_;
  }

  Result<PublishOutcome> publish() override {
    DARKROOM_CHECK(!is_spent_, "the object was already published (object):", describe());
    is_spent_ = true;
    DARKROOM_RETURN_IF_ERROR(failure_);
    DARKROOM_ASSIGN_OR_RETURN(const FirstWins how, store_.first_wins(parent_folder(path_)));
    switch (how) {
      case FirstWins::kAtomic:
        return publish_if(S3Condition::kAbsent);
      case FirstWins::kCommitRecord:
        return publish_recorded();
      case FirstWins::kLookBefore:
        break;
    }
    DARKROOM_RETURN_IF_ERROR(finish_parts_of_large());
    const Status there = client().head(name_).status();
    if (there.code() != StatusCode::kNotFound) {
      return there.is_ok() ? Result<PublishOutcome>(PublishOutcome::kAlreadyThere) : there;
    }
    return publish_if(S3Condition::kNone);
  }

 private:
  struct Part {
    std::string bytes;
    Result<std::string> etag = Status::cancelled("not uploaded");
    std::jthread thread = {};  // Last: it uses the rest.
  };

  S3Client& client() { return store_.client(); }

  Status append(std::span<const std::byte> piece) {
    const auto part_bytes = static_cast<size_t>(client().options().part_bytes);
    while (!piece.empty()) {
      if (filling_.size() == part_bytes) {  // Not before more comes: what fits into one part needs no upload.
        DARKROOM_RETURN_IF_ERROR(send_part());
      }
      const size_t num_taken = std::min(piece.size(), part_bytes - filling_.size());
      filling_.append(reinterpret_cast<const char*>(piece.data()), num_taken);
      num_bytes_ += static_cast<int64_t>(num_taken);
      piece = piece.subspan(num_taken);
    }
    return Status::ok();
  }

  Status send_part() {
    if (client().is_stopped()) {
      return Status::cancelled("no more of an object is stored after a stop (object):", describe());
    }
    if (upload_.empty()) {
      DARKROOM_ASSIGN_OR_RETURN(upload_, client().create_upload(name_, mark_));
    }
    while (in_flight_.size() >= kMaxPartsInFlight) {
      DARKROOM_RETURN_IF_ERROR(take_oldest_part());
    }
    const int number = static_cast<int>(parts_.size() + in_flight_.size()) + 1;
    if (number > kMaxS3Parts) {
      return Status::failed_precondition(
          "the object has more parts than a store takes; make its parts or the object smaller (object, parts):", describe(), kMaxS3Parts);
    }
    Part& part = in_flight_.emplace_back();
    part.bytes = std::exchange(filling_, {});
    const auto upload = [this, &part, number] {
      const std::span<const std::byte> piece = std::as_bytes(std::span(part.bytes));
      part.etag = client().upload_part(name_, upload_, number, std::span(&piece, 1), stop_.get_token());
    };
    try {
      part.thread = std::jthread(upload);
    } catch (const std::system_error&) {  // No more threads: this one does it.
      upload();
    }
    return Status::ok();
  }

  Status take_oldest_part() {
    Part& part = in_flight_.front();
    if (part.thread.joinable()) {
      part.thread.join();
    }
    const Result<std::string> etag = std::move(part.etag);
    in_flight_.pop_front();
    DARKROOM_RETURN_IF_ERROR(etag.status());
    parts_.push_back({.number = static_cast<int>(parts_.size()) + 1, .etag = *etag});
    return Status::ok();
  }

  /// Sends what is left, also when it is nothing, and waits for all parts.
  Status finish_parts() {
    if (!filling_.empty() || upload_.empty()) {
      DARKROOM_RETURN_IF_ERROR(send_part());
    }
    while (!in_flight_.empty()) {
      DARKROOM_RETURN_IF_ERROR(take_oldest_part());
    }
    return Status::ok();
  }
  Status finish_parts_of_large() { return upload_.empty() ? Status::ok() : finish_parts(); }

  Result<PublishOutcome> publish_if(S3Condition condition) {
    DARKROOM_RETURN_IF_ERROR(finish_parts_of_large());
    S3Outcome outcome = S3Outcome::kGone;
    if (upload_.empty()) {
      const std::span<const std::byte> piece = std::as_bytes(std::span(filling_));
      DARKROOM_ASSIGN_OR_RETURN(outcome, client().put(name_, std::span(&piece, 1), mark_, condition));
    } else {
      const Result<S3Outcome> completed = client().complete(name_, upload_, parts_, mark_, condition);
      DARKROOM_RETURN_IF_ERROR(note(completed.status()));
      outcome = *completed;
    }
    is_visible_ = outcome == S3Outcome::kStored;
    if (outcome == S3Outcome::kStored || outcome == S3Outcome::kTaken) {
      return is_visible_ ? PublishOutcome::kPublished : PublishOutcome::kAlreadyThere;
    }
    if (outcome == S3Outcome::kUnsupported) {
      return Status::failed_precondition("the store takes no condition any more (object):", describe());
    }
    return Status::unavailable("a sweep took the bytes before they were visible; run the same command again (object):", describe());
  }

  /// Small objects, too: a PUT of another writer between somebody's look and completion would be replaced.
  Result<PublishOutcome> publish_recorded() {
    DARKROOM_RETURN_IF_ERROR(finish_parts());
    const auto complete = [this](const Location& object, const CommitRecord& record) {
      return complete_s3_contender(store_, object, record);
    };
    const CommitRecord mine{.contender = mark_, .body = print_upload(upload_, parts_)};
    const Result<PublishOutcome> outcome = publish_by_record({.store = &store_, .path = path_}, mine, complete);
    DARKROOM_RETURN_IF_ERROR(note(outcome.status()));
    is_visible_ = *outcome == PublishOutcome::kPublished;
    return outcome;
  }

  /// Without an answer to the completion it may still come about, and an abort beside it is no good.
  Status note(const Status& completed) {
    is_undecided_ = completed.code() == StatusCode::kUnavailable || completed.code() == StatusCode::kCancelled;
    return completed;
  }

  S3Store& store_;
  const std::string path_;
  const S3Name name_;
  const std::string mark_ = make_writer_mark();
  Status failure_;
  std::string filling_;
  int64_t num_bytes_ = 0;
  std::string upload_;  // Its id; empty: none was begun.
  std::vector<S3Part> parts_;
  bool is_spent_ = false;
  bool is_visible_ = false;
  bool is_undecided_ = false;  // Nobody answered whether it is visible: the upload is the sweep's.
  std::stop_source stop_;
  std::deque<Part> in_flight_;  // In order of their numbers, which follow those of parts_.
};

}  // namespace

std::unique_ptr<PendingObject> begin_s3_object(S3Store& store, std::string path) {
  return std::make_unique<PendingS3Object>(store, std::move(path));
}

Result<Completion> complete_s3_contender(S3Store& store, const Location& object, const CommitRecord& record) {
  const std::optional<NamedUpload> upload = parse_upload(record.body);
  if (!upload) {
    return complete_s3_folder(store, object, record);
  }
  const S3Name name = S3Store::name_of(object.path);
  const Result<S3Head> there = store.client().head(name);
  if (there.is_ok()) {
    return there->writer == record.contender ? Completion::kDone : Completion::kAnotherThere;
  }
  DARKROOM_RETURN_IF_ERROR(there.status().code() == StatusCode::kNotFound ? Status::ok() : there.status());
  DARKROOM_ASSIGN_OR_RETURN(const S3Outcome outcome,
                            store.client().complete(name, upload->id, upload->parts, record.contender, S3Condition::kNone));
  switch (outcome) {
    case S3Outcome::kStored:
      return Completion::kDone;
    case S3Outcome::kTaken:
      return Completion::kAnotherThere;
    default:
      return Completion::kGone;
  }
}

}  // namespace darkroom
