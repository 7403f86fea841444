#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "darkroom/serve/edit_requests.h"
#include "darkroom/serve/image_inputs.h"
#include "picture_fields.h"
#include "protocols.h"

namespace darkroom {
namespace {

constexpr size_t kPageSize = 100;
constexpr size_t kMaxName = 1000;
constexpr size_t kMaxUrl = 4000;
constexpr std::string_view kFileScheme = "file://";

nlohmann::json shown(const ModelEntry& model) { return {{"modelName", model.name}, {"modelUrl", model.address}}; }

// The token is where a page begins.
std::optional<int64_t> read_page_token(RequestFields& fields) { return fields.integer("next_page_token", 0, INT64_MAX); }

/// Where a page begins. Errors: kInvalidArgument naming the field.
Result<size_t> page_begin(std::string_view query) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json object, read_query(query));
  RequestFields fields = RequestFields::of_texts(object);
  const auto begin = static_cast<size_t>(read_page_token(fields).value_or(0));
  fields.refuse_others();
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  return begin;
}

HttpReply list_models(const RouteCall& call, const PictureOrders& orders) {
  const auto begin = page_begin(call.question.query);
  if (!begin.is_ok()) {
    return orders.refusal(begin.status());
  }
  const std::vector<ModelEntry> models = orders.models()->models();
  nlohmann::json reply = {{"models", nlohmann::json::array()}};
  for (size_t i = *begin; i < models.size() && i < *begin + kPageSize; ++i) {
    reply["models"].push_back(shown(models[i]));
  }
  if (*begin < models.size() && models.size() - *begin > kPageSize) {
    reply["nextPageToken"] = fmt::format("{}", *begin + kPageSize);
  }
  return json_reply(reply);
}

/// The folder that a URL means. Errors: kInvalidArgument: it lies elsewhere than below the root, links included, or is not there.
Result<std::string> model_folder(const std::string& url, const std::string& root) {
  namespace fs = std::filesystem;
  const std::string path = url.starts_with(kFileScheme) ? url.substr(kFileScheme.size()) : url;
  std::error_code failure;
  const fs::path place = fs::canonical(path, failure);
  const fs::path below = failure ? fs::path() : fs::canonical(root, failure);
  const auto [root_end, unused] = std::mismatch(below.begin(), below.end(), place.begin(), place.end());
  if (failure || root_end != below.end() || place == below) {
    return Status::invalid_argument(fmt::format("url must be a folder that is there below {}, got:", root), shown_json(url));
  }
  return place.string();
}

ModelEntry read_entry_fields(RequestFields& fields) {
  fields.need("model_name");
  fields.need("url");
  return {.name = fields.text("model_name", kMaxName).value_or(""), .address = fields.text("url", kMaxUrl).value_or("")};
}

Result<ModelEntry> read_entry(std::string_view body, const std::string& root) {
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json object, read_json_object(body));
  RequestFields fields(object, "");
  ModelEntry model = read_entry_fields(fields);
  fields.refuse_others();
  DARKROOM_RETURN_IF_ERROR(fields.failure());
  if (model.name.empty()) {
    return Status::invalid_argument("model_name must not be empty");
  }
  DARKROOM_ASSIGN_OR_RETURN(model.address, model_folder(model.address, root));
  return model;
}

void load_model(const RouteCall& call, PictureOrders& orders) {
  auto model = read_entry(call.question.body, orders.model_root());
  const auto deadline = orders.deadline_of(call.question);
  if (!model.is_ok() || !deadline.is_ok()) {
    call.answer(orders.refusal(model.is_ok() ? deadline.status() : model.status()));
    return;
  }
  const nlohmann::json reply = shown(*model);
  orders.models()->load(*std::move(model), *deadline, [&orders, reply, answer = call.answer](const Status& loaded) {
    answer(loaded.is_ok() ? json_reply(reply) : orders.refusal_of_model(loaded));
  });
}

void unload_model(const RouteCall& call, PictureOrders& orders) {
  const auto deadline = orders.deadline_of(call.question);
  if (!deadline.is_ok()) {
    call.answer(orders.refusal(deadline.status()));
    return;
  }
  orders.models()->unload(call.parameters.front(), *deadline, [&orders, answer = call.answer](const Status& unloaded) {
    answer(unloaded.is_ok() ? json_reply(nlohmann::json::object()) : orders.refusal_of_model(unloaded));
  });
}

HttpReply show_model(const RouteCall& call, const PictureOrders& orders) {
  for (const ModelEntry& model : orders.models()->models()) {
    if (model.name == call.parameters.front()) {
      return json_reply(shown(model));
    }
  }
  return orders.refusal(Status::not_found("there is no such model:", shown_json(call.parameters.front())));
}

void add_loading_routes(RouteTable& table, PictureOrders& orders) {
  table.add({.method = "POST",
             .path = "/models",
             .summary = "Loads a model (SageMaker, several models)",
             .answer = [&orders](const RouteCall& call) { load_model(call, orders); },
             .bodies = {{.schema = [] { return described_fields([](RequestFields& fields) { read_entry_fields(fields); }); }}},
             .replies = {{.what = "Loaded; 409: it was there already; 507: there is no memory for it."}}});
  table.add({.method = "DELETE",
             .path = "/models/{model}",
             .summary = "Unloads a model, once nothing is painted with it (SageMaker, several models)",
             .answer = [&orders](const RouteCall& call) { unload_model(call, orders); },
             .replies = {{.what = "Unloaded."}}});
}

}  // namespace

void add_multi_model_routes(RouteTable& table, PictureOrders& orders) {
  if (orders.model_root().empty() || orders.models() == nullptr) {
    return;
  }
  add_loading_routes(table, orders);
  table.add({.method = "GET",
             .path = "/models",
             .summary = "The models (SageMaker, several models)",
             .answer = answer_at_once([&orders](const RouteCall& call) { return list_models(call, orders); }),
             .query_schema = [] { return described_fields([](RequestFields& fields) { read_page_token(fields); }); },
             .replies = {{.what = "Names and folders, 100 at most, with nextPageToken where there are more."}}});
  table.add({.method = "GET",
             .path = "/models/{model}",
             .summary = "A model (SageMaker, several models)",
             .answer = answer_at_once([&orders](const RouteCall& call) { return show_model(call, orders); }),
             .replies = {{.what = "Its name and folder."}}});
  table.add({.method = "POST",
             .path = "/models/{model}/invoke",
             .summary = "Pictures of a model, as /invocations (SageMaker, several models)",
             .answer =
                 [&orders](RouteCall call) {
                   const std::string model = call.parameters.front();
                   answer_invocation(std::move(call), orders, [model](const HttpQuestion&) { return model; });
                 },
             .paints = true,
             .bodies = invocation_bodies(orders),
             .max_body_bytes = kMaxPictureBodyBytes,
             .replies = {{.what = "As of /invocations."}}});
}

}  // namespace darkroom
