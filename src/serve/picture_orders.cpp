#include "picture_orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include "darkroom/core/sha256.h"
#include "darkroom/serve/access_keys.h"
#include "picture_fields.h"

namespace darkroom {
namespace {

int status_of(StatusCode code) {
  switch (code) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kFailedPrecondition:
      return http_status::kBadRequest;
    case StatusCode::kNotFound:
      return http_status::kNotFound;
    case StatusCode::kResourceExhausted:
      return http_status::kTooManyRequests;
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:
      return http_status::kNotNow;
    default:
      return http_status::kServerFault;
  }
}

/// What a reply needs of a request that is being painted.
struct PaintedRequest {
  ImageRequest request;
  HttpService::Answer answer;
  PictureOrders::MakeImageReply make;
  std::vector<Image> images = {};
  std::shared_ptr<const void> held = {};
};

}  // namespace

HttpReply problem_reply(int status, std::string_view sentence) {
  const nlohmann::json body = {
      {"error",
       {{"message", sentence}, {"type", status < http_status::kServerFault ? "invalid_request_error" : "server_error"}, {"code", status}}},
      {"detail", sentence}};
  return {.status = status, .body = json_text(body) + "\n"};
}

std::string owner_of(const HttpQuestion& question) {
  const std::optional<std::string> key = key_in(question.header("authorization"));
  return key.has_value() ? sha256_hex(*key) : std::string();
}

PictureOrders::PictureOrders(const PaintingServiceOptions& options, StepBatcher& batcher, Clock& clock)
    : options_(options),
      batcher_(batcher),
      clock_(clock),
      held_bytes_(std::make_shared<std::atomic<int64_t>>(0)),
      num_streams_(std::make_shared<std::atomic<int64_t>>(0)) {}

HttpReply PictureOrders::refusal(const Status& status) const {
  HttpReply reply = problem_reply(status_of(status.code()), status.message());
  if (reply.status == http_status::kTooManyRequests || reply.status == http_status::kNotNow) {
    reply.headers.emplace_back("Retry-After", fmt::format("{}", batcher_.retry_after().count()));
  }
  return reply;
}

HttpReply PictureOrders::refusal_of_request(const Status& status) const {
  return status.code() == StatusCode::kFailedPrecondition ? problem_reply(http_status::kNotAcceptable, status.message()) : refusal(status);
}

Result<Clock::Instant> PictureOrders::deadline_of(const HttpQuestion& question) const {
  const std::string_view asked = question.header("x-darkroom-deadline");
  double seconds = std::chrono::duration<double>(options_.deadline).count();
  if (!asked.empty()) {
    double given = 0.0;
    const auto [end, failure] = std::from_chars(asked.data(), asked.data() + asked.size(), given);
    if (failure != std::errc() || end != asked.data() + asked.size() || !(given > 0.0 && given <= 86'400.0)) {
      return Status::invalid_argument("the header X-Darkroom-Deadline must be a number of seconds above 0, at most 86,400, got:",
                                      asked.substr(0, 80));
    }
    seconds = std::min(seconds, given);
  }
  return clock_.now() + std::chrono::duration_cast<Clock::Instant::duration>(std::chrono::duration<double>(seconds));
}

// Another thread may ask at any time: what is held is never more than there is, not even for a moment.
bool PictureOrders::take_bytes(int64_t num_bytes) {
  int64_t held = held_bytes_->load();
  while (held + num_bytes <= options_.max_reply_bytes) {
    if (held_bytes_->compare_exchange_weak(held, held + num_bytes)) {
      return true;
    }
  }
  return false;
}

Result<std::shared_ptr<const void>> PictureOrders::hold_bytes(int64_t num_bytes, std::string_view spared) {
  if (num_bytes == 0) {
    return std::shared_ptr<const void>();
  }
  if (num_bytes > options_.max_reply_bytes) {
    return Status::invalid_argument("the pictures take more memory than this server has for them; ask for fewer at a time (bytes, bound):",
                                    num_bytes, options_.max_reply_bytes);
  }
  while (!take_bytes(num_bytes)) {
    if (!give_up_(spared)) {
      return Status::resource_exhausted("the server holds as many pictures as it has memory for; try again later");
    }
  }
  return std::shared_ptr<const void>(static_cast<const void*>(this),
                                     [all = held_bytes_, num_bytes](const void*) { all->fetch_sub(num_bytes); });
}

Result<std::shared_ptr<const void>> PictureOrders::hold_stream(int64_t num_bytes) {
  DARKROOM_ASSIGN_OR_RETURN(std::shared_ptr<const void> bytes, hold_bytes(num_bytes));
  if (num_streams_->fetch_add(1) >= kMaxStreams) {
    num_streams_->fetch_sub(1);
    return Status::resource_exhausted("the server streams to as many clients as it takes on; try again later");
  }
  return std::shared_ptr<const void>(static_cast<const void*>(this),
                                     [bytes = std::move(bytes), all = num_streams_](const void*) { all->fetch_sub(1); });
}

void PictureOrders::paint(const RouteCall& call, Result<ImageRequest> request, MakeImageReply make,
                          std::function<void(double share)> progress) {
  const auto deadline = call.deadline.has_value() ? Result<Clock::Instant>(*call.deadline) : deadline_of(call.question);
  if (!deadline.is_ok() || !request.is_ok()) {
    call.answer(refusal_of_request(deadline.is_ok() ? request.status() : deadline.status()));
    return;
  }
  const int64_t num_bytes = request->bytes_held();
  request->writes_settings = options_.png_settings == PngSettings::kOn || (has_webui_settings() && request->form == ReplyForm::kA1111);
  if (request->writes_settings) {
    note_settings(*request, model());
  }
  PaintOrder order{.pictures = std::move(request->pictures), .deadline = *deadline, .given_up = call.gone, .progress = std::move(progress)};
  request->pictures.clear();
  const Status fits = would_take(order);
  auto held = fits.is_ok() ? hold_bytes(num_bytes) : Result<std::shared_ptr<const void>>(fits);
  if (!held.is_ok()) {
    call.answer(refusal(held.status()));
    return;
  }
  // Shared by copies of the functions below.
  const auto painted =
      std::make_shared<PaintedRequest>(PaintedRequest{*std::move(request), call.answer, std::move(make), {}, *std::move(held)});
  const Status taken = submit(std::move(order), [this, painted](Result<std::vector<Image>> result) {
    if (!result.is_ok()) {
      painted->held.reset();  // Whoever is told may ask again.
      painted->answer(refusal(result.status()));
      return;
    }
    painted->images = *std::move(result);
    painted->answer(ReplyMaker([painted] {
      HttpReply reply = painted->make(painted->request, painted->images);
      reply.held = std::move(painted->held);  // Whoever has the reply may ask again: nothing else may hold the room by then.
      return reply;
    }));
  });
  if (!taken.is_ok()) {
    painted->held.reset();
    call.answer(refusal(taken));
  }
}

}  // namespace darkroom
