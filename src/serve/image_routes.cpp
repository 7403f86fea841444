#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/base64.h"
#include "darkroom/serve/image_inputs.h"
#include "darkroom/serve/png_settings.h"
#include "input_paintings.h"
#include "job_requests.h"
#include "picture_fields.h"
#include "protocols.h"
#include "watched_painting.h"

namespace darkroom {
namespace {

int64_t seconds_since_1970(Clock& clock) { return std::chrono::system_clock::to_time_t(clock.wall()); }

nlohmann::json base64_pngs(const std::vector<Image>& images, std::span<const std::string> settings) {
  nlohmann::json texts = nlohmann::json::array();
  for (size_t i = 0; i < images.size(); ++i) {
    texts.push_back(is_withheld(images[i]) ? nlohmann::json() : nlohmann::json(encode_base64(png_with_settings(images[i], settings, i))));
  }
  return texts;
}

/// What the end of a stream needs of its request.
struct StreamedRequest {
  std::string prompt_json;
  std::vector<uint64_t> seeds;
  std::vector<std::string> warnings;
  std::vector<std::string> settings;  // ImageRequest's written_settings().
  int num_steps;
  int width;
  int height;
  int num_partial_images;
  std::string operation;  // As OpenAI's events begin.
  Clock* clock;

  StreamedRequest(const ImageRequest& request, Clock& used_clock)
      : prompt_json(request.prompt_json),
        warnings(request.warnings),
        settings(request.written_settings().begin(), request.written_settings().end()),
        num_steps(request.pictures.front().num_steps_taken()),
        width(request.pictures.front().width),
        height(request.pictures.front().height),
        num_partial_images(request.num_partial_images),
        operation(request.pictures.front().init_image == nullptr ? "image_generation" : "image_edit"),
        clock(&used_clock) {
    for (const PictureSpec& picture : request.pictures) {
      seeds.push_back(picture.seed);
    }
  }
  void add_warnings(nlohmann::json& data) const {
    if (!warnings.empty()) {
      data["warnings"] = warnings;
    }
  }
};

/// The events of /invocations: those of jobs, but the pictures come with the last, because nobody could fetch them.
PaintingEvents::Write invocation_events(StreamedRequest asked) {
  return [asked = std::move(asked)](const WatchedPainting::News& news) {
    return write_event(news, asked.num_steps, [&](const WatchedPainting::View& view) {
      nlohmann::json end = progress_json(view, asked.num_steps);
      end["prompt"] = nlohmann::json::parse(asked.prompt_json);
      end["seed"] = asked.seeds.front();
      end["seeds"] = asked.seeds;
      end["generated_images"] = view.images == nullptr ? nlohmann::json::array() : base64_pngs(*view.images, asked.settings);
      end["finish_reasons"] = view.images == nullptr ? nlohmann::json::array() : finish_reasons(*view.images);
      end["error"] = view.state == PaintingState::kFailed ? nlohmann::json(view.failure.message()) : nlohmann::json();
      asked.add_warnings(end);
      return end;
    });
  };
}

/// OpenAI's events of a stream of images. Each picture is completed by an event of its own.
class OpenAiEvents {
 public:
  explicit OpenAiEvents(StreamedRequest asked) : asked_(std::move(asked)), num_partial_(asked_.seeds.size()) {}

  std::string write(const WatchedPainting::News& news) {
    switch (news.kind) {
      case WatchedPainting::News::Kind::kProgress:
        return {};
      case WatchedPainting::News::Kind::kPreview:
        return partial_image(news);
      case WatchedPainting::News::Kind::kEnd:
        break;
    }
    return news.view.images != nullptr ? completed(*news.view.images) : failed(news.view);
  }

 private:
  nlohmann::json event(const std::string& type, const std::string& base64_png, size_t picture) const {
    return {{"type", type},
            {"b64_json", base64_png},
            {"created_at", seconds_since_1970(*asked_.clock)},
            {"size", fmt::format("{}x{}", asked_.width, asked_.height)},
            {"quality", "auto"},
            {"background", "opaque"},
            {"output_format", "png"},
            {"image_index", picture},
            {"seed", asked_.seeds[picture]}};
  }

  std::string partial_image(const WatchedPainting::News& news) {
    const std::string type = asked_.operation + ".partial_image";
    if (num_partial_[news.picture] == asked_.num_partial_images) {
      return {};
    }
    nlohmann::json data = event(type, news.preview->base64_png(), news.picture);
    data["partial_image_index"] = num_partial_[news.picture]++;
    return event_text(type, json_text(data));
  }

  std::string completed(const std::vector<Image>& images) const {
    const std::string type = asked_.operation + ".completed";
    std::string text;
    for (size_t i = 0; i < images.size(); ++i) {
      if (is_withheld(images[i])) {
        const nlohmann::json error = {
            {"message", "the safety checker has blocked the picture"}, {"type", "invalid_request_error"}, {"code", kContentFilter}};
        text += event_text("error", json_text({{"type", "error"}, {"image_index", i}, {"error", error}}));
        continue;
      }
      nlohmann::json data = event(type, encode_base64(png_with_settings(images[i], asked_.settings, i)), i);
      data["usage"] = {{"input_tokens", 0},
                       {"output_tokens", 0},
                       {"total_tokens", 0},
                       {"input_tokens_details", {{"text_tokens", 0}, {"image_tokens", 0}}}};  // Nobody pays by them here.
      asked_.add_warnings(data);
      text += event_text(type, json_text(data));
    }
    return text;
  }

  static std::string failed(const WatchedPainting::View& view) {
    const std::string message = view.state == PaintingState::kFailed ? std::string(view.failure.message()) : "the request was given up";
    const nlohmann::json error = {{"message", message}, {"type", "server_error"}, {"code", painting_state_name(view.state)}};
    return event_text("error", json_text({{"type", "error"}, {"error", error}}));
  }

  const StreamedRequest asked_;
  std::vector<int> num_partial_;  // Sent of each picture.
};

PaintingEvents::Write events_of(const ImageRequest& request, Clock& clock) {
  StreamedRequest asked(request, clock);
  if (request.form == ReplyForm::kEvents) {
    return invocation_events(std::move(asked));
  }
  // Shared by copies of the function.
  const auto events = std::make_shared<OpenAiEvents>(std::move(asked));
  return [events](const WatchedPainting::News& news) { return events->write(news); };
}

Result<StreamedReply> streamed(const RouteCall& call, PictureOrders& orders, ImageRequest request) {
  DARKROOM_ASSIGN_OR_RETURN(const Clock::Instant deadline, orders.deadline_of(call));
  DARKROOM_ASSIGN_OR_RETURN(auto room, orders.hold_stream(request.pictures.front().preview_every > 0 ? kPreviewEventBytes : 0));
  orders.note_warnings(request);
  orders.note_png_settings(request);
  PaintingEvents::Write write = events_of(request, orders.clock());
  HttpHeaders headers = reply_headers(request);
  DARKROOM_ASSIGN_OR_RETURN(auto painting, WatchedPainting::begin(orders, std::move(request),
                                                                  {.begun = call.begun, .deadline = deadline, .given_up = call.gone}));
  StreamedReply reply = event_stream(std::move(painting), std::move(write), std::move(room));
  reply.headers.insert(reply.headers.end(), headers.begin(), headers.end());
  return reply;
}

}  // namespace

void answer_images(const RouteCall& call, PictureOrders& orders, Result<ImageRequest> request) {
  const bool is_stream = request.is_ok() && (request->form == ReplyForm::kEvents || request->form == ReplyForm::kOpenAiEvents);
  if (!is_stream) {
    orders.paint(call, std::move(request), [&clock = orders.clock()](const ImageRequest& asked, const std::vector<Image>& images) {
      return image_reply(asked, images, seconds_since_1970(clock));
    });
    return;
  }
  auto reply = streamed(call, orders, *std::move(request));
  call.answer(reply.is_ok() ? AnyReply(*std::move(reply)) : AnyReply(orders.refusal(reply.status())));
}

namespace {

// The other type of a body of /invocations: JumpStart's, of nothing but a prompt.
constexpr const char* kPlainPrompt = "application/x-text";

bool is_plain_text(const HttpQuestion& question) {
  return ascii_lower(std::string(question.header("content-type"))).starts_with(kPlainPrompt);
}

// Who asks the root as Hugging Face's containers are asked, and does not say for what, is sent the picture, as there.
std::string_view accepted_by(const HttpQuestion& question) {
  const std::string_view accept = question.header("accept");
  return question.path == "/" && (accept.empty() || accept == "*/*") ? "image/png, */*" : accept;
}

/// Answers with the pictures of a request once its model is there; `read` reads it.
void answer_with_model(RouteCall call, PictureOrders& orders, const std::string& model,
                       std::function<Result<ImageRequest>(const HttpQuestion& question, const ModelFacts& facts)> read) {
  orders.with_model(std::move(call), model, [&orders, read = std::move(read)](const RouteCall& asked, const HeldModel& used) {
    auto request = read(asked.question, used->facts);
    if (request.is_ok()) {
      request->model = used;
    }
    answer_images(asked, orders, std::move(request));
  });
}

}  // namespace

std::vector<RouteBody> invocation_bodies(const PictureOrders& orders) {
  return {{.schema = [&orders] { return invocation_schema(orders.model(), orders.limits()); }},
          {.type = kPlainPrompt, .schema = [&orders] { return text_invocation_schema(orders.limits()); }}};
}

void answer_invocation(RouteCall call, PictureOrders& orders, const NameModel& name) {
  const bool is_plain = is_plain_text(call.question);
  const auto read = [&orders, is_plain](const HttpQuestion& question, const ModelFacts& facts) {
    const std::string_view accept = accepted_by(question);
    return is_plain ? read_text_invocation(question.body, accept, facts, orders.limits())
                    : read_invocation(question.body, accept, facts, orders.limits());
  };
  read_perhaps_with_pictures(std::move(call), orders, name, read, [&orders](const RouteCall& asked, Result<ImageRequest> request) {
    answer_images(asked, orders, std::move(request));
  });
}

void add_image_routes(RouteTable& table, PictureOrders& orders) {
  const std::vector<RouteReply> invocation_replies = {
      {.what = "The pictures as base64 or nested arrays, by Accept."},
      {.type = "image/png", .what = "The picture, by Accept."},
      {.type = "text/event-stream", .what = "Events: progress, preview, and last done with the pictures, or failed; by Accept."}};
  for (const char* const path : {"/invocations", "/"}) {
    table.add({.method = "POST",
               .path = path,
               .summary = "Pictures for JumpStart's or Hugging Face's fields",
               .answer =
                   [&orders](RouteCall call) {
                     answer_invocation(std::move(call), orders, [](const HttpQuestion& question) {
                       return is_plain_text(question) ? std::string() : named_model(question.body);
                     });
                   },
               .paints = true,
               .bodies = invocation_bodies(orders),
               .max_body_bytes = kMaxPictureBodyBytes,
               .replies = invocation_replies});
  }
  table.add({.method = "POST",
             .path = "/v1/images/generations",
             .summary = "Pictures for OpenAI's fields",
             .answer =
                 [&orders](RouteCall call) {
                   const std::string model = orders.has_choice() ? named_model(call.question.body) : std::string();
                   answer_with_model(std::move(call), orders, model, [&orders](const HttpQuestion& question, const ModelFacts& facts) {
                     return read_openai_generation(question.body, facts, orders.limits());
                   });
                 },
             .paints = true,
             .bodies = {{.schema = [&orders] { return openai_generation_schema(orders.model(), orders.limits()); }}},
             .replies = {{.what = "The pictures as base64."},
                         {.type = "text/event-stream",
                          .what = "Of stream: image_generation.partial_image, and last image_generation.completed of each picture."}}});
}

}  // namespace darkroom
