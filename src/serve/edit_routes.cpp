#include <utility>

#include "darkroom/serve/edit_requests.h"
#include "darkroom/serve/image_inputs.h"
#include "input_paintings.h"
#include "picture_fields.h"
#include "protocols.h"

namespace darkroom {
namespace {

void imagine(RouteCall call, PictureOrders& orders) {
  if (is_of_another_site(call.question)) {
    call.answer(refusal_of_other_site());
    return;
  }
  const std::string name = query_model(call.question.query);
  orders.with_model(std::move(call), name, [&orders](const RouteCall& asked, const HeldModel& model) {
    auto request = read_imagine(asked.question.query, model->facts, orders.limits());
    if (request.is_ok()) {
      request->model = model;
    }
    answer_images(asked, orders, std::move(request));
  });
}

void edit(RouteCall call, PictureOrders& orders) {
  const auto name = [](const HttpQuestion& question) { return edit_model(question.header("content-type"), question.body); };
  const auto read = [&orders](const HttpQuestion& question, const ModelFacts& model) {
    return read_openai_edit(question.header("content-type"), question.body, model, orders.limits());
  };
  read_with_pictures(std::move(call), orders, name, read,
                     [&orders](const RouteCall& asked, Result<ImageRequest> request) { answer_images(asked, orders, std::move(request)); });
}

}  // namespace

void add_edit_routes(RouteTable& table, PictureOrders& orders) {
  table.add(
      {.method = "POST",
       .path = "/v1/images/edits",
       .summary = "Pictures that start from a picture, for OpenAI's fields, as a form or as JSON",
       .answer = [&orders](RouteCall call) { edit(std::move(call), orders); },
       .paints = true,
       .bodies = {{.type = "multipart/form-data", .schema = [&orders] { return openai_edit_form_schema(orders.model(), orders.limits()); }},
                  {.schema = [&orders] { return openai_edit_json_schema(orders.model(), orders.limits()); }}},
       .max_body_bytes = kMaxPictureBodyBytes,
       .replies = {
           {.what = "The pictures as base64."},
           {.type = "text/event-stream", .what = "Of stream: image_edit.partial_image, and last image_edit.completed of each picture."}}});
  table.add({.method = "GET",
             .path = "/imagine",
             .summary = "A picture for a prompt in the query (Anyscale)",
             .answer = [&orders](RouteCall call) { imagine(std::move(call), orders); },
             .paints = true,
             .query_schema = [&orders] { return imagine_schema(orders.model(), orders.limits()); },
             .replies = {{.type = "image/png", .what = "The picture."}}});
}

}  // namespace darkroom
