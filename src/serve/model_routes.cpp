#include <nlohmann/json.hpp>

#include "protocols.h"
#include "request_fields.h"

namespace darkroom {
namespace {

HttpReply openai_models(const ModelFacts& facts) {
  const nlohmann::json model = {{"id", facts.name}, {"object", "model"}, {"created", 0}, {"owned_by", "darkroom"}};
  return {.body = json_text({{"object", "list"}, {"data", {model}}}) + "\n"};
}

}  // namespace

void add_model_routes(RouteTable& table, const PictureOrders& orders) {
  table.add({.method = "GET",
             .path = "/v1/models",
             .summary = "The models' names (OpenAI)",
             .answer = answer_at_once([&orders](const RouteCall&) { return openai_models(orders.model()); }),
             .replies = {{.what = "A list of models."}}});
}

}  // namespace darkroom
