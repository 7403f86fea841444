#include <chrono>
#include <nlohmann/json.hpp>

#include "darkroom/core/version.h"
#include "darkroom/serve/edit_requests.h"
#include "picture_fields.h"
#include "protocols.h"

namespace darkroom {
namespace {

nlohmann::json openai_models(const std::vector<std::string>& names) {
  nlohmann::json models = nlohmann::json::array();
  for (const std::string& name : names) {
    models.push_back({{"id", name}, {"object", "model"}, {"created", 0}, {"owned_by", "darkroom"}});
  }
  return {{"object", "list"}, {"data", models}};
}

nlohmann::json facts_json(const PictureOrders& orders, const ModelFacts& model) {
  const RequestLimits& limits = orders.limits();
  const PictureSpec usual = default_picture(model, limits);
  return {{"model", model.name},
          {"models", orders.model_names()},
          {"native_size", model.native_size},
          {"size_multiple", model.size_multiple},
          {"samplers", model.samplers},
          {"version", kVersion},
          {"defaults",
           {{"width", usual.width},
            {"height", usual.height},
            {"steps", usual.num_steps},
            {"guidance_scale", usual.guidance},
            {"sampler", model.default_sampler},
            {"images", 1},
            {"preview_every", 0}}},
          {"limits",
           {{"images", limits.max_images},
            {"steps", limits.max_steps},
            {"side", limits.max_side},
            {"guidance_scale", limits.max_guidance},
            {"text_bytes", limits.max_text_bytes},
            {"preview_side", StepEngine::kMaxPreviewSide},
            {"deadline_seconds", std::chrono::duration<double>(orders.deadline()).count()}}},
          {"features",
           {{"jobs", true},
            {"previews", orders.shows_previews()},
            {"streaming", true},
            {"keys", orders.needs_keys()},
            {"weighted_prompts", true},
            {"image_to_image", orders.intake() != nullptr}}}};
}

/// A route of one model by its name, of the Open Inference Protocol.
std::function<void(RouteCall)> of_model(const PictureOrders& orders, std::function<HttpReply(const std::string& name)> reply) {
  return answer_at_once([&orders, reply = std::move(reply)](const RouteCall& call) {
    const std::string& asked = call.parameters.front();
    return orders.has_model(asked) ? reply(asked) : orders.refusal(Status::not_found("there is no such model:", shown_json(asked)));
  });
}

void add_inference_protocol_routes(RouteTable& table, const PictureOrders& orders) {
  table.add({.method = "GET",
             .path = "/v2",
             .summary = "The server (Open Inference Protocol)",
             .answer = answer_at_once([](const RouteCall&) {
               return json_reply({{"name", "darkroom"}, {"version", kVersion}, {"extensions", nlohmann::json::array()}});
             }),
             .replies = {{.what = "Name, version, extensions."}}});
  // Tensors are what infer takes, and that is not built.
  table.add({.method = "GET",
             .path = "/v2/models/{model}",
             .summary = "The model (Open Inference Protocol)",
             .answer = of_model(orders,
                                [](const std::string& name) {
                                  return json_reply({{"name", name},
                                                     {"versions", nlohmann::json::array()},
                                                     {"platform", "darkroom"},
                                                     {"inputs", nlohmann::json::array()},
                                                     {"outputs", nlohmann::json::array()}});
                                }),
             .replies = {{.what = "Name, platform, and no tensors: there is no infer."}}});
  table.add({.method = "GET",
             .path = "/v2/models/{model}/ready",
             .summary = "Whether the model takes requests (Open Inference Protocol)",
             .answer = of_model(orders,
                                [&orders](const std::string&) {
                                  return orders.is_draining() ? orders.refusal(Status::unavailable("the server is shutting down"))
                                                              : HttpReply{.type = "text/plain; charset=utf-8"};
                                }),
             .replies = {{.type = "text/plain", .what = "Yes: an empty body."}}});
}

}  // namespace

void add_model_routes(RouteTable& table, PictureOrders& orders) {
  table.add({.method = "GET",
             .path = "/v1/models",
             .summary = "The models' names (OpenAI)",
             .answer = answer_at_once([&orders](const RouteCall&) { return json_reply(openai_models(orders.model_names())); }),
             .replies = {{.what = "A list of models."}}});
  table.add({.method = "GET",
             .path = "/v1/facts",
             .summary = "What may be asked for: models, and of one its sizes, samplers, bounds, defaults",
             .answer = answer_at_once([&orders](const RouteCall& call) {
               // Nothing is loaded for it: whoever loads a model asks for pictures, by a request that is counted as such.
               const auto facts = orders.model_facts(query_model(call.question.query));
               return facts.is_ok() ? json_reply(facts_json(orders, *facts)) : orders.refusal_of_facts(facts.status());
             }),
             .query_schema = [] { return described_fields([](RequestFields& fields) { read_model_name(fields); }); },
             .replies = {{.what = "The facts; 409: the model has not been loaded yet."}}});
  add_inference_protocol_routes(table, orders);
}

}  // namespace darkroom
