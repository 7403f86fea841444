#include <chrono>

#include "protocols.h"

namespace darkroom {
namespace {

PictureOrders::MakeImageReply image_replies(Clock& clock) {
  return [&clock](const ImageRequest& request, const std::vector<Image>& images) {
    return image_reply(request, images, std::chrono::system_clock::to_time_t(clock.wall()));
  };
}

void invoke(const RouteCall& call, PictureOrders& orders) {
  auto request = read_invocation(call.question.body, call.question.header("accept"), orders.model(), orders.limits());
  orders.paint(call, std::move(request), image_replies(orders.clock()));
}

void generate(const RouteCall& call, PictureOrders& orders) {
  auto request = read_openai_generation(call.question.body, orders.model(), orders.limits());
  orders.paint(call, std::move(request), image_replies(orders.clock()));
}

}  // namespace

void add_image_routes(RouteTable& table, PictureOrders& orders) {
  const std::vector<RouteReply> invocation_replies = {{.what = "The pictures as base64 or nested arrays, by Accept."},
                                                      {.type = "image/png", .what = "The picture, by Accept."}};
  for (const char* const path : {"/invocations", "/"}) {
    table.add({.method = "POST",
               .path = path,
               .summary = "Pictures for JumpStart's or Hugging Face's fields",
               .answer = [&orders](const RouteCall& call) { invoke(call, orders); },
               .body_type = "application/json",
               .replies = invocation_replies});
  }
  table.add({.method = "POST",
             .path = "/v1/images/generations",
             .summary = "Pictures for OpenAI's fields",
             .answer = [&orders](const RouteCall& call) { generate(call, orders); },
             .body_type = "application/json",
             .replies = {{.what = "The pictures as base64."}}});
}

}  // namespace darkroom
