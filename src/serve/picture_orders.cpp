#include "picture_orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/core/sha256.h"
#include "darkroom/image/watermark.h"
#include "darkroom/serve/access_keys.h"
#include "picture_fields.h"
#include "watched_painting.h"

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

Status no_such_model(const std::string& name) { return Status::not_found("this server has no such model:", shown_json(name)); }

/// What a reply needs of a request that is being painted.
struct PaintedRequest {
  ImageRequest request;
  HttpService::Answer answer;
  PictureOrders::MakeImageReply make;
  PaintedPictures pictures = {};
  std::shared_ptr<const void> held = {};
};

}  // namespace

HttpReply json_reply(const nlohmann::json& body) { return {.body = json_text(body) + "\n"}; }

HttpReply problem_reply(int status, std::string_view sentence) {
  const nlohmann::json body = {
      {"error",
       {{"message", sentence}, {"type", status < http_status::kServerFault ? "invalid_request_error" : "server_error"}, {"code", status}}},
      {"detail", sentence}};
  return {.status = status, .body = json_text(body) + "\n"};
}

HttpReply withheld_reply() {
  HttpReply reply = problem_reply(http_status::kBadRequest, "the safety checker has blocked the picture");
  nlohmann::json body = nlohmann::json::parse(reply.body);
  body["error"]["code"] = kContentFilter;
  reply.body = json_text(body) + "\n";
  return reply;
}

bool is_of_another_site(const HttpQuestion& question) {
  const std::string_view site = question.header("sec-fetch-site");
  return site == "cross-site" || site == "same-site";
}

HttpReply refusal_of_other_site() { return problem_reply(http_status::kForbidden, "requests of web pages of other origins are refused"); }

std::string painting_line(size_t num_pictures, const PaintingTimes& times, Clock::Instant ended) {
  const auto ms = [](Clock::Instant::duration time) { return std::chrono::duration_cast<std::chrono::milliseconds>(time).count(); };
  return fmt::format("serve: {} {}: pre {} ms, predict {} ms, post {} ms", num_pictures, num_pictures == 1 ? "picture" : "pictures",
                     ms(times.ordered - times.begun), ms(times.painted - times.ordered), ms(ended - times.painted));
}

std::string owner_of(const HttpQuestion& question) {
  const std::optional<std::string> key = key_in(question.header("authorization"));
  return key.has_value() ? sha256_hex(*key) : std::string();
}

PictureOrders::PictureOrders(const PaintingServiceOptions& options, StepBatcher& batcher, Clock& clock)
    : options_(options),
      batcher_(batcher),
      clock_(clock),
      only_model_(std::make_shared<const ServedModel>(ServedModel{.facts = options.model})),
      held_bytes_(std::make_shared<std::atomic<int64_t>>(0)),
      num_streams_(std::make_shared<std::atomic<int64_t>>(0)),
      finish_(options.has_watermark ? PictureFinish::Mark(add_watermark) : nullptr, options.safety_check, clock) {}

Status PictureOrders::submit(PaintOrder order, Clock::Instant begun, Painted done) {
  if (!shows_previews()) {
    order.show = nullptr;  // Nobody has checked them.
  }
  const auto when_painted = [this, deadline = order.deadline, given_up = order.given_up, begun, ordered = clock_.now(),
                             done = std::move(done)](Result<std::vector<Image>> painted) {
    const PaintingTimes times{.begun = begun, .ordered = ordered, .painted = clock_.now()};
    const auto hand_over = [times, done](Result<std::vector<Image>> images) {
      done(images.is_ok() ? Result<PaintedPictures>(PaintedPictures{.images = *std::move(images), .times = times}) : images.status());
    };
    finish_.is_needed() && painted.is_ok() ? finish_.finish(*std::move(painted), deadline, given_up, hand_over)
                                           : hand_over(std::move(painted));
  };
  return batcher_.submit(std::move(order), when_painted);
}

void PictureOrders::log_painted(const PaintedPictures& painted) const {
  log_info("{}", painting_line(painted.images.size(), painted.times, clock_.now()));
}

std::vector<std::string> PictureOrders::model_names() const {
  if (options_.models == nullptr) {
    return {options_.model.name};
  }
  std::vector<std::string> names;
  for (ModelEntry& model : options_.models->models()) {
    names.push_back(std::move(model.name));
  }
  return names;
}

bool PictureOrders::has_model(std::string_view name) const {
  return options_.models == nullptr ? name == options_.model.name : options_.models->has(name);
}

Result<ModelFacts> PictureOrders::model_facts(const std::string& name) const {
  if (options_.models != nullptr) {
    return options_.models->facts(name);
  }
  return name.empty() || name == options_.model.name ? Result<ModelFacts>(options_.model) : no_such_model(name);
}

HttpReply PictureOrders::refusal_of_facts(const Status& status) const {
  return status.code() == StatusCode::kFailedPrecondition ? problem_reply(http_status::kConflict, status.message()) : refusal(status);
}

HttpReply PictureOrders::refusal_of_model(const Status& status) const {
  switch (status.code()) {
    case StatusCode::kFailedPrecondition:
      return problem_reply(http_status::kNoMemory, status.message());
    case StatusCode::kAlreadyExists:
      return problem_reply(http_status::kConflict, status.message());
    default:
      return refusal(status);
  }
}

void PictureOrders::with_model(RouteCall call, const std::string& name, std::function<void(RouteCall call, const HeldModel& model)> go) {
  const auto deadline = deadline_of(call);
  if (!deadline.is_ok()) {
    call.answer(refusal(deadline.status()));
    return;
  }
  if (options_.models == nullptr) {
    !name.empty() && name != options_.model.name ? call.answer(refusal(no_such_model(name))) : go(std::move(call), only_model_);
    return;
  }
  call.deadline = *deadline;
  const std::stop_token gone = call.gone;
  const auto asked = std::make_shared<RouteCall>(std::move(call));  // Shared by copies of the function.
  options_.models->use(name, *deadline, gone, [this, asked, go = std::move(go)](const Result<HeldModel>& model) {
    if (!model.is_ok()) {
      asked->answer(refusal_of_model(model.status()));
      return;
    }
    const HttpService::Answer answer = asked->answer;
    try {
      go(std::move(*asked), *model);
    } catch (const std::exception& failure) {  // A request is a boundary.
      log_error("serve: a request could not be handled: {}", failure.what());
      answer(problem_reply(http_status::kServerFault, "the request could not be handled; the server's log says why"));
    }
  });
}

HttpReply PictureOrders::refusal(const Status& status) const {
  HttpReply reply = problem_reply(status_of(status.code()), status.message());
  if (reply.status == http_status::kTooManyRequests || reply.status == http_status::kNotNow) {
    reply.headers.emplace_back("Retry-After", fmt::format("{}", batcher_.retry_after().count()));
  }
  return reply;
}

HttpReply PictureOrders::given_up() const { return refusal(Status::cancelled("the server is shutting down, or the request was given up")); }

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

Status PictureOrders::reserve(int64_t num_bytes, std::string_view spared) {
  if (num_bytes > options_.max_reply_bytes) {
    return Status::invalid_argument("the pictures take more memory than this server has for them; ask for fewer at a time (bytes, bound):",
                                    num_bytes, options_.max_reply_bytes);
  }
  while (!take_bytes(num_bytes)) {
    if (!give_up_(spared)) {
      return Status::resource_exhausted("the server holds as many pictures as it has memory for; try again later");
    }
  }
  return Status::ok();
}

// What lets reserved bytes go with its last copy.
std::shared_ptr<const void> PictureOrders::reserved(int64_t num_bytes) const {
  return num_bytes == 0 ? nullptr
                        : std::shared_ptr<const void>(static_cast<const void*>(this),
                                                      [all = held_bytes_, num_bytes](const void*) { all->fetch_sub(num_bytes); });
}

Result<std::shared_ptr<const void>> PictureOrders::hold_bytes(int64_t num_bytes, std::string_view spared) {
  DARKROOM_RETURN_IF_ERROR(reserve(num_bytes, spared));
  return reserved(num_bytes);
}

Result<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>> PictureOrders::hold_two(int64_t first_bytes,
                                                                                                    int64_t second_bytes) {
  DARKROOM_RETURN_IF_ERROR(reserve(first_bytes + second_bytes, {}));
  return std::pair(reserved(first_bytes), reserved(second_bytes));
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

void PictureOrders::note_warnings(ImageRequest& request) const {
  const auto note = [&](const char* what, const std::string& unread) {
    std::string sentence = fmt::format(
        "the {} is longer than the model reads (shorten it, or ask by /invocations or /v1/jobs with prompt_syntax weighted, which reads up "
        "to {} chunks); left out: {}",
        what, StepEngine::kMostChunks, unread);
    if (!unread.empty() && std::ranges::find(request.warnings, sentence) == request.warnings.end()) {
      request.warnings.push_back(std::move(sentence));
    }
  };
  const PictureSpec* before = nullptr;
  for (const PictureSpec& picture : request.pictures) {
    if (before == nullptr || picture.prompt != before->prompt || picture.negative != before->negative) {
      const UnreadTexts unread = batcher_.unread(request.model, picture);
      note("prompt", unread.prompt);
      note("negative prompt", unread.negative);
    }
    before = &picture;
  }
}

void PictureOrders::note_png_settings(ImageRequest& request) const {
  request.writes_settings = options_.png_settings == PngSettings::kOn || (has_webui_settings() && request.form == ReplyForm::kA1111);
  if (request.writes_settings) {
    note_settings(request, request.model != nullptr ? request.model->facts : model());
  }
}

void PictureOrders::paint(const RouteCall& call, Result<ImageRequest> request, MakeImageReply make, PaintingWatch watch) {
  const auto deadline = deadline_of(call);
  if (!deadline.is_ok() || !request.is_ok()) {
    call.answer(refusal_of_request(deadline.is_ok() ? request.status() : deadline.status()));
    return;
  }
  note_warnings(*request);
  const bool has_preview = watch.show != nullptr && request->pictures.front().preview_every > 0;
  const int64_t num_bytes = request->bytes_held() + (has_preview ? kPreviewBytes : 0);
  note_png_settings(*request);
  PaintOrder order{.pictures = std::move(request->pictures),
                   .model = std::move(request->model),
                   .deadline = *deadline,
                   .given_up = call.gone,
                   .progress = std::move(watch.progress),
                   .show = std::move(watch.show),
                   .is_watched = std::move(watch.is_watched)};
  request->pictures.clear();
  const Status fits = would_take(order);
  auto held = fits.is_ok() ? hold_bytes(num_bytes) : Result<std::shared_ptr<const void>>(fits);
  if (!held.is_ok()) {
    call.answer(refusal(held.status()));
    return;
  }
  // Shared by copies of the functions below.
  const auto painted = std::make_shared<PaintedRequest>(
      PaintedRequest{.request = *std::move(request), .answer = call.answer, .make = std::move(make), .held = *std::move(held)});
  const Status taken = submit(std::move(order), call.begun, [this, painted](Result<PaintedPictures> result) {
    if (!result.is_ok()) {
      painted->held.reset();  // Whoever is told may ask again.
      painted->answer(refusal(result.status()));
      return;
    }
    painted->pictures = *std::move(result);
    painted->answer(ReplyMaker([this, painted] {
      HttpReply reply = painted->make(painted->request, painted->pictures.images);
      log_painted(painted->pictures);
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
