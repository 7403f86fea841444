#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "a1111_jobs.h"
#include "darkroom/core/machine.h"
#include "darkroom/serve/a1111_requests.h"
#include "darkroom/serve/png_settings.h"
#include "input_paintings.h"
#include "picture_fields.h"
#include "protocols.h"

namespace darkroom {
namespace {

constexpr size_t kMaxPictureBodyBytes = 16'000'000;
constexpr const char* kPrefix = "/sdapi/v1/";

HttpReply webui_json(const nlohmann::json& value) { return {.body = json_text(value) + "\n"}; }

// Paints with an eye on the job: an interrupted one is told apart from a client that is gone.
void paint_webui_request(RouteCall call, Result<ImageRequest> request, PictureOrders& orders, const std::shared_ptr<A1111Jobs>& jobs) {
  if (!request.is_ok()) {
    call.answer(orders.refusal_of_request(request.status()));
    return;
  }
  const int num_steps = request->pictures.front().num_steps_taken();
  const auto job = A1111Jobs::open(jobs, owner_of(call.question), num_steps, orders.clock().now(), std::move(call.gone));
  call.gone = job->given_up();
  call.answer = [job, answer = std::move(call.answer)](AnyReply reply) {
    job->close();
    const auto* ready = std::get_if<HttpReply>(&reply);
    const bool has_failed = ready != nullptr && ready->status >= http_status::kServerFault;
    answer(has_failed && job->is_interrupted() ? problem_reply(http_status::kConflict, "the request was interrupted by another one")
                                               : std::move(reply));
  };
  const auto make = [](const ImageRequest& asked, const std::vector<Image>& images) { return image_reply(asked, images, 0); };
  orders.paint(call, std::move(request), make, [job](double share) { job->advance(share); });
}

void set_options(const RouteCall& call, const PictureOrders& orders) {
  const auto asked = read_json_object(call.question.body);
  const Status checked = asked.is_ok() ? check_a1111_options(*asked, orders.model(), orders.has_webui_settings()) : asked.status();
  call.answer(checked.is_ok() ? webui_json(nullptr) : orders.refusal(checked));
}

HttpReply png_info_reply(const std::string& body, const PictureOrders& orders) {
  const auto info = [&]() -> Result<nlohmann::json> {
    DARKROOM_ASSIGN_OR_RETURN(InputPicture picture, read_png_info(body));
    DARKROOM_ASSIGN_OR_RETURN(const std::string png, picture_file(std::move(picture)));
    return png_info(std::as_bytes(std::span(png)));
  }();
  return info.is_ok() ? webui_json(*info) : orders.refusal(info.status());
}

// Memory of the machine. What a GPU has is not asked for.
nlohmann::json memory() { return {{"ram", {{"total", usable_memory_bytes()}}}, {"cuda", {{"error", "not told by this server"}}}}; }

nlohmann::json flags(const ModelFacts& model) { return {{"api", true}, {"nowebui", true}, {"ckpt", model.name}}; }

void add_getter(RouteTable& table, const char* name, const char* summary, std::function<nlohmann::json()> value) {
  table.add({.method = "GET",
             .path = std::string(kPrefix) + name,
             .summary = summary,
             .answer = answer_at_once([value = std::move(value)](const RouteCall&) { return webui_json(value()); }),
             .replies = {{.what = "As stable-diffusion-webui's."}}});
}

void add_getters(RouteTable& table, const PictureOrders& orders) {
  const nlohmann::json none = nlohmann::json::array();
  const auto model = [&orders] { return orders.model(); };
  add_getter(table, "samplers", "The samplers that the model takes, by webui's names", [model] { return a1111_samplers(model()); });
  add_getter(table, "schedulers", "The schedules that go with them", [] { return a1111_schedulers(); });
  add_getter(table, "sd-models", "The model (webui)", [model] { return a1111_models(model()); });
  add_getter(table, "options", "The options that mean something here (webui)",
             [&orders] { return a1111_options(orders.model(), orders.has_webui_settings()); });
  add_getter(table, "cmd-flags", "Flags of webui's that this server has", [model] { return flags(model()); });
  add_getter(table, "memory", "Memory of the machine (webui)", [] { return memory(); });
  add_getter(table, "scripts", "No scripts (webui)", [none] { return nlohmann::json{{"txt2img", none}, {"img2img", none}}; });
  for (const char* name : {"prompt-styles", "upscalers", "loras", "hypernetworks", "sd-vae"}) {
    add_getter(table, name, "None (webui)", [none] { return none; });
  }
}

void add_painters(RouteTable& table, PictureOrders& orders, const std::shared_ptr<A1111Jobs>& jobs) {
  table.add({.method = "POST",
             .path = "/sdapi/v1/txt2img",
             .summary = "Pictures for webui's fields",
             .answer =
                 [&orders, jobs](RouteCall call) {
                   auto request = read_txt2img(call.question.body, orders.model(), orders.limits());
                   paint_webui_request(std::move(call), std::move(request), orders, jobs);
                 },
             .body_type = "application/json",
             .replies = {{.what = "The pictures as base64, with the fields and an info text."}}});
  table.add({.method = "POST",
             .path = "/sdapi/v1/img2img",
             .summary = "Pictures that start from a picture, for webui's fields",
             .answer =
                 [&orders, jobs](RouteCall call) {
                   const auto read = [&orders](const HttpQuestion& question) {
                     return read_img2img(question.body, orders.model(), orders.limits());
                   };
                   read_with_pictures(std::move(call), orders, orders.intake(), read,
                                      [&orders, jobs](RouteCall asked, Result<ImageRequest> request) {
                                        paint_webui_request(std::move(asked), std::move(request), orders, jobs);
                                      });
                 },
             .body_type = "application/json",
             .max_body_bytes = kMaxPictureBodyBytes,
             .replies = {{.what = "The pictures as base64, with the fields and an info text."}}});
}

void add_png_info(RouteTable& table, const PictureOrders& orders) {
  table.add({.method = "POST",
             .path = "/sdapi/v1/png-info",
             .summary = "The settings in a PNG",
             .answer =
                 [&orders](RouteCall call) {  // By a thread that makes replies: the file may be long.
                   call.answer(ReplyMaker([&orders, body = std::move(call.question.body)] { return png_info_reply(body, orders); }));
                 },
             .body_type = "application/json",
             .max_body_bytes = kMaxPictureBodyBytes,
             .replies = {{.what = "The text, its chunks, and what it says field by field."}}});
}

}  // namespace

void add_a1111_routes(RouteTable& table, PictureOrders& orders) {
  const auto jobs = std::make_shared<A1111Jobs>();  // Shared with requests, which may end after the table.
  add_painters(table, orders, jobs);
  add_getters(table, orders);
  add_png_info(table, orders);
  table.add({.method = "GET",
             .path = "/sdapi/v1/progress",
             .summary = "How far the client's request is that has been open for longest (webui)",
             .answer = answer_at_once([&orders, jobs](const RouteCall& call) {
               return webui_json(jobs->progress(owner_of(call.question), orders.clock().now()));
             }),
             .replies = {{.what = "As stable-diffusion-webui's."}}});
  for (const char* name : {"interrupt", "skip"}) {
    table.add({.method = "POST",
               .path = std::string(kPrefix) + name,
               .summary = "Ends the client's request of webui's routes that has been open for longest",
               .answer = answer_at_once([jobs](const RouteCall& call) {
                 jobs->interrupt(owner_of(call.question));
                 return webui_json(nlohmann::json::object());
               }),
               .replies = {{.what = "An empty object."}}});
  }
  table.add({.method = "POST",
             .path = "/sdapi/v1/options",
             .summary = "Takes options at the values that they have",
             .answer = [&orders](const RouteCall& call) { set_options(call, orders); },
             .body_type = "application/json",
             .replies = {{.what = "null."}}});
}

}  // namespace darkroom
