#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "a1111_jobs.h"
#include "a1111_replies.h"
#include "darkroom/core/machine.h"
#include "darkroom/serve/a1111_requests.h"
#include "darkroom/serve/edit_requests.h"
#include "darkroom/serve/image_inputs.h"
#include "darkroom/serve/png_settings.h"
#include "input_paintings.h"
#include "picture_fields.h"
#include "protocols.h"

namespace darkroom {
namespace {

constexpr const char* kPrefix = "/sdapi/v1/";

HttpReply webui_json(const nlohmann::json& value) { return {.body = json_text(value) + "\n"}; }

/// The model that each client's requests of these routes get, as POST options sets it. Thread safety: any thread.
class A1111Choice {
 public:
  explicit A1111Choice(const PictureOrders& orders) : orders_(orders) {}

  /// Empty: the first model.
  std::string of(const HttpQuestion& question) const {
    const std::lock_guard lock(mutex_);
    const auto found = chosen_.find(client_of(question));
    return found == chosen_.end() ? std::string() : found->second;
  }
  void set(const HttpQuestion& question, std::string model) {
    const std::lock_guard lock(mutex_);
    chosen_[client_of(question)] = std::move(model);
  }
  /// What is known of it; of one that was not loaded yet its name, beside what is known of the first.
  ModelFacts facts(const HttpQuestion& question) const {
    const std::string name = of(question);
    const auto facts = orders_.model_facts(name);
    ModelFacts model = facts.is_ok() ? *facts : orders_.model();
    model.name = name.empty() ? model.name : name;
    return model;
  }

 private:
  // Without keys everybody is one client, as in webui.
  std::string client_of(const HttpQuestion& question) const { return orders_.needs_keys() ? owner_of(question) : std::string(); }

  const PictureOrders& orders_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> chosen_;  // By client; as many as there are keys.
};

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
  orders.paint(call, std::move(request), make,
               {.progress = [job](double share) { job->advance(share); },
                .show = [job](size_t, Image preview) { job->show(std::move(preview)); },
                .is_watched = [job] { return job->is_watched(); }});
}

Status set_options(const HttpQuestion& question, const PictureOrders& orders, A1111Choice& choice) {
  DARKROOM_ASSIGN_OR_RETURN(nlohmann::json asked, read_json_object(question.body));
  const auto named = asked.find("sd_model_checkpoint");
  const bool is_known = named != asked.end() && named->is_string() && orders.has_model(named->get_ref<const std::string&>());
  std::string model = is_known ? named->get<std::string>() : std::string();
  ModelFacts facts = choice.facts(question);
  facts.name = is_known ? model : facts.name;
  DARKROOM_RETURN_IF_ERROR(check_a1111_options(asked, facts, orders.has_webui_settings()));
  if (is_known) {
    choice.set(question, std::move(model));
  }
  return Status::ok();
}

bool read_progress_query(RequestFields& fields) {
  const bool skips_image = fields.boolean("skip_current_image").value_or(false);
  fields.describe("skip_current_image", {{"description", "Whether current_image is left out."}});
  return skips_image;
}

// As in webui: what looks at numbers alone says so, and costs no previews.
bool wants_preview(const HttpQuestion& question) {
  const auto object = read_query(question.query);
  if (!object.is_ok()) {
    return true;
  }
  RequestFields fields = RequestFields::of_texts(*object);
  return !read_progress_query(fields);
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

using Tell = std::function<nlohmann::json(const HttpQuestion& question)>;

void add_getter(RouteTable& table, const char* name, const char* summary, const Tell& tell) {
  table.add({.method = "GET",
             .path = std::string(kPrefix) + name,
             .summary = summary,
             .answer = answer_at_once([tell](const RouteCall& call) { return webui_json(tell(call.question)); }),
             .replies = {{.what = "As stable-diffusion-webui's.", .schema = [tell] { return schema_like(tell({})); }}}});
}

void add_getters(RouteTable& table, const PictureOrders& orders, const std::shared_ptr<A1111Choice>& choice) {
  const nlohmann::json none = nlohmann::json::array();
  const nlohmann::json no_scripts = {{"txt2img", none}, {"img2img", none}};
  add_getter(table, "samplers", "The samplers that the model takes, by webui's names",
             [choice](const HttpQuestion& question) { return a1111_samplers(choice->facts(question)); });
  add_getter(table, "schedulers", "The schedules that go with them", [](const HttpQuestion&) { return a1111_schedulers(); });
  add_getter(table, "sd-models", "The models (webui)", [&orders](const HttpQuestion&) { return a1111_models(orders.model_names()); });
  add_getter(table, "options", "The options that mean something here (webui)", [&orders, choice](const HttpQuestion& question) {
    return a1111_options(choice->facts(question), orders.has_webui_settings());
  });
  add_getter(table, "cmd-flags", "Flags of webui's that this server has",
             [choice](const HttpQuestion& question) { return flags(choice->facts(question)); });
  add_getter(table, "memory", "Memory of the machine (webui)", [](const HttpQuestion&) { return memory(); });
  add_getter(table, "scripts", "No scripts (webui)", [no_scripts](const HttpQuestion&) { return no_scripts; });
  for (const char* name : {"prompt-styles", "upscalers", "loras", "hypernetworks", "sd-vae"}) {
    add_getter(table, name, "None (webui)", [none](const HttpQuestion&) { return none; });
  }
}

void add_txt2img(RouteTable& table, PictureOrders& orders, const std::shared_ptr<A1111Jobs>& jobs,
                 const std::shared_ptr<A1111Choice>& choice) {
  const auto paint = [&orders, jobs](RouteCall call, const HeldModel& model) {
    auto request = read_txt2img(call.question.body, model->facts, orders.limits());
    if (request.is_ok()) {
      request->model = model;
    }
    paint_webui_request(std::move(call), std::move(request), orders, jobs);
  };
  table.add({.method = "POST",
             .path = "/sdapi/v1/txt2img",
             .summary = "Pictures for webui's fields",
             .answer =
                 [&orders, choice, paint](RouteCall call) {
                   const std::string named = orders.has_choice() ? a1111_model(call.question.body) : std::string();
                   const std::string chosen = named.empty() ? choice->of(call.question) : named;
                   orders.with_model(std::move(call), chosen, paint);
                 },
             .paints = true,
             .bodies = {{.schema = [&orders] { return txt2img_schema(orders.model(), orders.limits()); }}},
             .replies = {{.what = "The pictures as base64, with the fields and an info text.",
                          .schema = [&orders] { return a1111_pictures_schema(orders.model(), orders.limits()); }}}});
}

void add_img2img(RouteTable& table, PictureOrders& orders, const std::shared_ptr<A1111Jobs>& jobs,
                 const std::shared_ptr<A1111Choice>& choice) {
  const auto name = [choice](const HttpQuestion& question) {
    std::string named = a1111_model(question.body);
    return named.empty() ? choice->of(question) : named;
  };
  const auto read = [&orders](const HttpQuestion& question, const ModelFacts& model) {
    return read_img2img(question.body, model, orders.limits());
  };
  const auto take = [&orders, jobs](RouteCall asked, Result<ImageRequest> request) {
    paint_webui_request(std::move(asked), std::move(request), orders, jobs);
  };
  table.add({.method = "POST",
             .path = "/sdapi/v1/img2img",
             .summary = "Pictures that start from a picture, for webui's fields",
             .answer = [&orders, name, read, take](RouteCall call) { read_with_pictures(std::move(call), orders, name, read, take); },
             .paints = true,
             .bodies = {{.schema = [&orders] { return img2img_schema(orders.model(), orders.limits()); }}},
             .max_body_bytes = kMaxPictureBodyBytes,
             .replies = {{.what = "The pictures as base64, with the fields and an info text.",
                          .schema = [&orders] { return a1111_pictures_schema(orders.model(), orders.limits()); }}}});
}

void add_png_info(RouteTable& table, const PictureOrders& orders) {
  table.add({.method = "POST",
             .path = "/sdapi/v1/png-info",
             .summary = "The settings in a PNG",
             .answer =
                 [&orders](RouteCall call) {  // By a thread that makes replies: the file may be long.
                   call.answer(ReplyMaker([&orders, body = std::move(call.question.body), held = std::move(call.question.held)] {
                     return png_info_reply(body, orders);
                   }));
                 },
             .bodies = {{.schema = png_info_schema}},
             .max_body_bytes = kMaxPictureBodyBytes,
             .replies = {{.what = "The text, its chunks, and what it says field by field.", .schema = png_info_reply_schema}}});
}

}  // namespace

void add_a1111_routes(RouteTable& table, PictureOrders& orders) {
  const auto jobs = std::make_shared<A1111Jobs>();  // Shared with requests, which may end after the table.
  const auto choice = std::make_shared<A1111Choice>(orders);
  add_txt2img(table, orders, jobs, choice);
  add_img2img(table, orders, jobs, choice);
  add_getters(table, orders, choice);
  add_png_info(table, orders);
  table.add({.method = "GET",
             .path = "/sdapi/v1/progress",
             .summary = "How far the client's request is that has been open for longest (webui)",
             .answer = answer_at_once([&orders, jobs](const RouteCall& call) {
               return webui_json(jobs->progress(owner_of(call.question), orders.clock().now(), wants_preview(call.question)));
             }),
             .query_schema = [] { return described_fields([](RequestFields& fields) { read_progress_query(fields); }); },
             .replies = {{.what = "As stable-diffusion-webui's.", .schema = a1111_progress_schema}}});
  for (const char* name : {"interrupt", "skip"}) {
    table.add({.method = "POST",
               .path = std::string(kPrefix) + name,
               .summary = "Ends the client's request of webui's routes that has been open for longest",
               .answer = answer_at_once([jobs](const RouteCall& call) {
                 jobs->interrupt(owner_of(call.question));
                 return webui_json(nlohmann::json::object());
               }),
               .replies = {{.what = "An empty object.", .schema = [] { return schema_like(nlohmann::json::object()); }}}});
  }
  table.add({.method = "POST",
             .path = "/sdapi/v1/options",
             .summary = "Takes options at the values that they have, and which model is meant from now on",
             .answer = answer_at_once([&orders, choice](const RouteCall& call) {
               const Status set = set_options(call.question, orders, *choice);
               return set.is_ok() ? webui_json(nullptr) : orders.refusal(set);
             }),
             .bodies = {{.schema = [&orders] { return a1111_options_schema(orders.model(), orders.has_webui_settings()); }}},
             .replies = {{.what = "null.", .schema = [] { return schema_like(nullptr); }}}});
}

}  // namespace darkroom
