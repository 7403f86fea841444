#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>

#include "darkroom/serve/image_inputs.h"
#include "darkroom/serve/png_settings.h"
#include "input_paintings.h"
#include "job_requests.h"
#include "job_store.h"
#include "picture_fields.h"
#include "protocols.h"
#include "request_fields.h"

namespace darkroom {
namespace {

constexpr size_t kMostListed = 100;

nlohmann::json image_urls(const Job& job, const WatchedPainting::View& view) {
  nlohmann::json urls = nlohmann::json::array();
  for (size_t i = 0; view.images != nullptr && i < view.images->size(); ++i) {
    urls.push_back(is_withheld((*view.images)[i]) ? nlohmann::json() : nlohmann::json(fmt::format("/v1/jobs/{}/images/{}", job.id, i)));
  }
  return urls;
}

// Without the request and the warnings, whose texts may be long: lists are of many jobs.
nlohmann::json listed_json(const Job& job, const WatchedPainting::View& view) {
  nlohmann::json json = progress_json(view, job.num_steps);
  json["id"] = job.id;
  json["created"] = job.created;
  json["seeds"] = job.seeds;
  json["images"] = image_urls(job, view);
  json["finish_reasons"] = view.images == nullptr ? nlohmann::json::array() : finish_reasons(*view.images);
  json["error"] = view.state == PaintingState::kFailed ? nlohmann::json(view.failure.message()) : nlohmann::json();
  return json;
}

nlohmann::json job_json(const Job& job, const WatchedPainting::View& view) {
  nlohmann::json json = listed_json(job, view);
  json["request"] = job.request;
  if (!job.warnings.empty()) {
    json["warnings"] = job.warnings;
  }
  return json;
}

/// The jobs' routes over their store.
class JobDesk {
 public:
  JobDesk(PictureOrders& orders, JobStore& store) : orders_(orders), store_(store) {}

  /// Reads a request and takes it.
  void take(RouteCall call) {
    const auto name = [](const HttpQuestion& question) { return named_model(question.body); };
    const auto read = [this](const HttpQuestion& question, const ModelFacts& model) {
      return read_job(question.body, model, orders_.limits());
    };
    read_perhaps_with_pictures(std::move(call), orders_, name, read, [this](const RouteCall& asked, Result<ImageRequest> request) {
      asked.answer(submit(asked, std::move(request)));
    });
  }

  HttpReply submit(const RouteCall& call, Result<ImageRequest> request) {
    const auto deadline = orders_.deadline_of(call);
    if (!request.is_ok() || !deadline.is_ok()) {
      return orders_.refusal_of_request(request.is_ok() ? deadline.status() : request.status());
    }
    auto job = std::make_shared<Job>();  // Shared by the store and whoever asks for it.
    job->id = draw_job_id();
    job->owner = owner_of(call.question);
    job->created = std::chrono::system_clock::to_time_t(orders_.clock().wall());
    for (const PictureSpec& picture : request->pictures) {
      job->seeds.push_back(picture.seed);
    }
    job->num_steps = request->pictures.front().num_steps_taken();
    orders_.note_warnings(*request);
    job->warnings = request->warnings;
    orders_.note_png_settings(*request);
    const auto settings = request->written_settings();
    job->settings.assign(settings.begin(), settings.end());
    job->num_bytes = request->bytes_held();
    job->request = nlohmann::json::parse(request->parameters_json);
    auto painting = WatchedPainting::begin(orders_, *std::move(request),
                                           {.begun = call.begun, .deadline = *deadline, .given_up = job->given_up.get_token()});
    if (!painting.is_ok()) {
      return orders_.refusal(painting.status());
    }
    job->painting = *std::move(painting);
    store_.add(job);
    nlohmann::json reply = {{"id", job->id}, {"status", "queued"}, {"seeds", job->seeds}, {"images", nlohmann::json::array()}};
    if (!job->warnings.empty()) {
      reply["warnings"] = job->warnings;
    }
    return {.status = http_status::kAccepted, .body = json_text(reply) + "\n", .headers = {{"Location", "/v1/jobs/" + job->id}}};
  }

  HttpReply list(const RouteCall& call) {
    nlohmann::json jobs = nlohmann::json::array();
    for (const auto& job : store_.list(owner_of(call.question), kMostListed)) {
      jobs.push_back(listed_json(*job, job->painting->view()));
    }
    return {.body = json_text({{"jobs", jobs}}) + "\n"};
  }

  HttpReply show(const Job& job) { return {.body = json_text(job_json(job, job.painting->view())) + "\n"}; }

  HttpReply remove(Job& job) {
    if (!job.painting->cancel(orders_.clock().now())) {
      store_.forget(job.id);
    }
    job.given_up.request_stop();
    return {.status = http_status::kNoContent};
  }

  AnyReply events(const std::shared_ptr<Job>& job) {
    auto room = orders_.hold_stream(job->request["preview_every"] != 0 ? kPreviewEventBytes : 0);
    if (!room.is_ok()) {
      return orders_.refusal(room.status());
    }
    const auto write = [job](const WatchedPainting::News& news) {
      return write_event(news, job->num_steps, [&](const WatchedPainting::View& view) { return job_json(*job, view); });
    };
    return event_stream(job->painting, write, *std::move(room));
  }

  AnyReply image(const std::shared_ptr<Job>& job, const std::string& number) {
    const WatchedPainting::View view = job->painting->view();
    size_t index = 0;
    const auto [end, failure] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (failure != std::errc() || end != number.data() + number.size() || view.images == nullptr || index >= view.images->size()) {
      return problem_reply(http_status::kNotFound, "the job has no such picture, or not yet");
    }
    const Image& image = (*view.images)[index];
    if (is_withheld(image)) {
      return withheld_reply();
    }
    const auto num_bytes = static_cast<int64_t>(image.pixels.size());
    const bool fits_beside = job->num_bytes + num_bytes <= orders_.max_bytes();  // Else the job itself must go for its picture.
    auto room = orders_.hold_bytes(num_bytes, fits_beside ? std::string_view(job->id) : std::string_view());
    if (!room.is_ok()) {
      return orders_.refusal(room.status());
    }
    return ReplyMaker([job, images = view.images, index, room = *std::move(room)] {
      return HttpReply{.type = "image/png", .body = png_with_settings((*images)[index], job->settings, index), .held = room};
    });
  }

  /// A route of one job.
  std::function<void(RouteCall)> with_job(std::function<AnyReply(const std::shared_ptr<Job>&, const RouteCall&)> reply) {
    return [this, reply = std::move(reply)](const RouteCall& call) {
      const JobStore::Found found = store_.find(call.parameters.front(), owner_of(call.question));
      if (found.job != nullptr) {
        call.answer(reply(found.job, call));
      } else if (found.is_expired) {
        call.answer(problem_reply(http_status::kGone, "the job's pictures are no longer kept; ask for them anew"));
      } else {
        call.answer(problem_reply(http_status::kNotFound, "there is no such job"));
      }
    };
  }

 private:
  PictureOrders& orders_;
  JobStore& store_;
};

}  // namespace

void add_job_routes(RouteTable& table, PictureOrders& orders, JobStore& store) {
  orders.give_up_for_room([&store](std::string_view spared) { return store.expire_oldest(spared); });
  const auto desk = std::make_shared<JobDesk>(orders, store);  // Shared by the routes.
  table.add({.method = "POST",
             .path = "/v1/jobs",
             .summary = "Has pictures painted, to be fetched later",
             .answer = [desk](RouteCall call) { desk->take(std::move(call)); },
             .paints = true,
             .bodies = {{.schema = [&orders] { return job_schema(orders.model(), orders.limits()); }}},
             .max_body_bytes = kMaxPictureBodyBytes,
             .replies = {{.status = http_status::kAccepted, .what = "The job, as it is queued; Location has its path."}}});
  table.add({.method = "GET",
             .path = "/v1/jobs",
             .summary = "The jobs that are there, the newest first",
             .answer = answer_at_once([desk](const RouteCall& call) { return desk->list(call); }),
             .replies = {{.what = "The jobs without their requests, 100 at most."}}});
  table.add({.method = "GET",
             .path = "/v1/jobs/{id}",
             .summary = "How far a job is",
             .answer = desk->with_job([desk](const auto& job, const RouteCall&) { return desk->show(*job); }),
             .replies = {{.what = "The job."}}});
  table.add({.method = "DELETE",
             .path = "/v1/jobs/{id}",
             .summary = "Cancels a job between two steps; forgets one that has ended",
             .answer = desk->with_job([desk](const auto& job, const RouteCall&) { return desk->remove(*job); }),
             .replies = {{.status = http_status::kNoContent, .type = "", .what = "Done."}}});
  table.add({.method = "GET",
             .path = "/v1/jobs/{id}/events",
             .summary = "How far a job is, as it goes on, and previews",
             .answer = desk->with_job([desk](const auto& job, const RouteCall&) { return desk->events(job); }),
             .replies = {{.type = "text/event-stream", .what = "Events: progress, preview, and last done, failed or cancelled."}}});
  table.add({.method = "GET",
             .path = "/v1/jobs/{id}/images/{number}",
             .summary = "A picture of a job that is done",
             .answer = desk->with_job([desk](const auto& job, const RouteCall& call) { return desk->image(job, call.parameters[1]); }),
             .replies = {{.type = "image/png", .what = "The picture."}}});
}

}  // namespace darkroom
