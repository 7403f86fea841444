#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/serve/image_requests.h"
#include "darkroom/serve/painting_service.h"
#include "darkroom/serve/step_batcher.h"
#include "picture_finish.h"
#include "route_table.h"

namespace darkroom {

HttpReply json_reply(const nlohmann::json& body);

/// A refusal in the envelope of OpenAI's errors, with webui's `detail` beside it; the other protocols leave it free.
HttpReply problem_reply(int status, std::string_view sentence);

/// The reply in place of a picture that the safety checker has blocked.
HttpReply withheld_reply();

/// Whether a page of another site asks: of a GET, which needs no script, because a picture in any web page asks it of whoever looks at the
/// page. Browsers say so.
bool is_of_another_site(const HttpQuestion& question);
HttpReply refusal_of_other_site();

/// Whose a request is: of its key, which itself is kept nowhere; empty: there is none.
std::string owner_of(const HttpQuestion& question);

/// PaintOrder's, of somebody who looks on while it is painted.
struct PaintingWatch {
  std::function<void(double share)> progress = {};
  std::function<void(size_t picture, Image preview)> show = {};
  std::function<bool()> is_watched = {};
};

/// When a request was there, its order taken, and its pictures painted.
struct PaintingTimes {
  Clock::Instant begun = {};
  Clock::Instant ordered = {};
  Clock::Instant painted = {};
};

/// Painted pictures that may go out, and when what of them was done.
struct PaintedPictures {
  std::vector<Image> images;
  PaintingTimes times;
};

/// A line of the log: how long a request took to be read, with the wait for its model, to be painted, with the queue, and to be checked,
/// marked and made a reply.
std::string painting_line(size_t num_pictures, const PaintingTimes& times, Clock::Instant ended);

/// What every protocol has in common that asks for pictures: it takes their orders within the service's bounds, and says no in one way.
/// Thread safety: any thread.
class PictureOrders {
 public:
  static constexpr int64_t kMaxStreams = 256;

  using MakeImageReply = std::function<HttpReply(const ImageRequest& request, const std::vector<Image>& images)>;

  /// All outlive this.
  PictureOrders(const PaintingServiceOptions& options, StepBatcher& batcher, Clock& clock);

  /// Of the first model, as it was at the start: what documents tell of the fields.
  const ModelFacts& model() const { return options_.model; }
  /// Null: there is one model for good.
  ModelShelf* models() const { return options_.models; }
  /// Folder below which /models loads; empty: there is no such route.
  const std::string& model_root() const { return options_.model_root; }
  /// In their order.
  std::vector<std::string> model_names() const;
  bool has_model(std::string_view name) const;
  /// What is known of a model (empty: the first one), without loading it. Errors: as ModelShelf::facts().
  Result<ModelFacts> model_facts(const std::string& name) const;
  /// Whether requests say which model they mean.
  bool has_choice() const { return options_.models != nullptr; }
  /// Goes on with a request once its model is there (empty: the first one), at once or later on another thread, or answers why not. What
  /// `go` throws is answered, too.
  void with_model(RouteCall call, const std::string& name, std::function<void(RouteCall call, const HeldModel& model)> go);
  const RequestLimits& limits() const { return options_.limits; }
  Clock& clock() const { return clock_; }
  /// Reads requests with pictures; null: they are refused.
  PictureIntake* intake() const { return options_.intake; }
  /// Whether PNGs of A1111's routes hold their settings.
  bool has_webui_settings() const { return options_.png_settings != PngSettings::kOff; }
  bool needs_keys() const { return !options_.keys.is_empty(); }
  /// Of requests that do not shorten it.
  std::chrono::milliseconds deadline() const { return options_.deadline; }
  bool is_draining() const { return batcher_.is_draining(); }

  /// The reply for a failure, with Retry-After where asking again makes sense.
  HttpReply refusal(const Status& status) const;
  /// Of what is read at a desk, once a stop is asked for.
  HttpReply given_up() const;
  /// The same for a failure of reading a request, of which kFailedPrecondition is 406: the form of reply that it asks for.
  HttpReply refusal_of_request(const Status& status) const;
  /// The same for a failure of ModelShelf: 507 where there is no memory, 409 where the model is there.
  HttpReply refusal_of_model(const Status& status) const;
  /// The same for a failure of model_facts(): 409 of a model that has not been loaded yet.
  HttpReply refusal_of_facts(const Status& status) const;
  /// When a request must be done. Errors: kInvalidArgument (its header X-Darkroom-Deadline).
  Result<Clock::Instant> deadline_of(const HttpQuestion& question) const;
  /// The same of a request whose deadline may have been worked out already.
  Result<Clock::Instant> deadline_of(const RouteCall& call) const {
    return call.deadline.has_value() ? Result<Clock::Instant>(*call.deadline) : deadline_of(call.question);
  }

  /// Takes room for so many bytes, let go with the last copy. `spared`: the id of a job that is not given up for it. Errors:
  /// kInvalidArgument (more than there ever is), kResourceExhausted.
  Result<std::shared_ptr<const void>> hold_bytes(int64_t num_bytes, std::string_view spared = {});
  /// The same for two things at once that are let go apart.
  Result<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>> hold_two(int64_t first_bytes, int64_t second_bytes);
  int64_t max_bytes() const { return options_.max_reply_bytes; }
  /// The same for a streamed reply, of which there is a bounded number, because each keeps a connection. Errors: as hold_bytes().
  Result<std::shared_ptr<const void>> hold_stream(int64_t num_bytes);
  /// `give_up` is asked where there is no room: it lets something go that is kept only as long as there is, but not the job whose id is
  /// given, or returns false. REQUIRES: no request has come yet.
  void give_up_for_room(std::function<bool(std::string_view spared)> give_up) { give_up_ = std::move(give_up); }

  /// Notes in a request, for its reply, text that its model does not read. REQUIRES: its pictures are there.
  void note_warnings(ImageRequest& request) const;
  /// Has the PNGs of a request hold their settings, where this server writes them. REQUIRES: its pictures are there.
  void note_png_settings(ImageRequest& request) const;
  /// As StepBatcher::would_take: to be asked before hold_bytes(), which gives up what others may still want.
  Status would_take(const PaintOrder& order) { return batcher_.would_take(order); }
  using Painted = std::function<void(Result<PaintedPictures>)>;
  /// As StepBatcher::submit; the pictures are checked and marked before `done` gets them. `begun`: when their request was there.
  Status submit(PaintOrder order, Clock::Instant begun, Painted done);
  /// Logs how long it took. To be called by whoever gets pictures, once it has made of them what it makes.
  void log_painted(const PaintedPictures& painted) const;
  /// From now on painted pictures are no longer checked and marked, and their requests get 503.
  void stop_finishing() { finish_.stop(); }
  /// Whether clients may see pictures in the making: not where a checker has to look at them first.
  bool shows_previews() const { return !finish_.has_check(); }
  /// The whole way of a protocol whose reply is its pictures: refuses what was read wrong, has the rest painted, and answers with what
  /// `make` makes of the pictures, by a thread that makes replies.
  void paint(const RouteCall& call, Result<ImageRequest> request, MakeImageReply make, PaintingWatch watch = {});

 private:
  bool take_bytes(int64_t num_bytes);
  Status reserve(int64_t num_bytes, std::string_view spared);
  std::shared_ptr<const void> reserved(int64_t num_bytes) const;

  const PaintingServiceOptions& options_;
  StepBatcher& batcher_;
  Clock& clock_;
  const HeldModel only_model_;  // Where there is no shelf.
  std::function<bool(std::string_view)> give_up_ = [](std::string_view) { return false; };
  // Shared with replies, which may end after the service.
  const std::shared_ptr<std::atomic<int64_t>> held_bytes_;
  const std::shared_ptr<std::atomic<int64_t>> num_streams_;
  PictureFinish finish_;  // Last: its threads hand pictures to the others.
};

}  // namespace darkroom
