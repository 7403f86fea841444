#include <chrono>
#include <nlohmann/json.hpp>

#include "darkroom/core/version.h"
#include "picture_fields.h"
#include "protocols.h"

namespace darkroom {
namespace {

HttpReply json_reply(const nlohmann::json& body) { return {.body = json_text(body) + "\n"}; }

nlohmann::json openai_models(const ModelFacts& facts) {
  const nlohmann::json model = {{"id", facts.name}, {"object", "model"}, {"created", 0}, {"owned_by", "darkroom"}};
  return {{"object", "list"}, {"data", {model}}};
}

nlohmann::json facts_json(const PictureOrders& orders) {
  const ModelFacts& model = orders.model();
  const RequestLimits& limits = orders.limits();
  const PictureSpec usual = default_picture(model);
  return {{"model", model.name},
          {"models", {model.name}},
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
          {"features", {{"jobs", true}, {"previews", true}, {"streaming", true}, {"keys", orders.needs_keys()}}}};
}

/// A route of one model by its name, of the Open Inference Protocol.
std::function<void(RouteCall)> of_model(const PictureOrders& orders, std::function<HttpReply()> reply) {
  return answer_at_once([&orders, reply = std::move(reply)](const RouteCall& call) {
    const std::string& asked = call.parameters.front();
    return asked == orders.model().name ? reply() : orders.refusal(Status::not_found("there is no such model:", shown_json(asked)));
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
                                [&orders] {
                                  return json_reply({{"name", orders.model().name},
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
                                [&orders] {
                                  return orders.is_draining() ? orders.refusal(Status::unavailable("the server is shutting down"))
                                                              : HttpReply{.type = "text/plain; charset=utf-8"};
                                }),
             .replies = {{.type = "text/plain", .what = "Yes: an empty body."}}});
}

}  // namespace

void add_model_routes(RouteTable& table, const PictureOrders& orders) {
  table.add({.method = "GET",
             .path = "/v1/models",
             .summary = "The models' names (OpenAI)",
             .answer = answer_at_once([&orders](const RouteCall&) { return json_reply(openai_models(orders.model())); }),
             .replies = {{.what = "A list of models."}}});
  table.add({.method = "GET",
             .path = "/v1/facts",
             .summary = "What may be asked for: model, sizes, samplers, bounds, defaults",
             .answer = answer_at_once([&orders](const RouteCall&) { return json_reply(facts_json(orders)); }),
             .replies = {{.what = "The facts."}}});
  add_inference_protocol_routes(table, orders);
}

}  // namespace darkroom
