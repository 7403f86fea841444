#include "openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "darkroom/core/ascii_case.h"
#include "darkroom/core/version.h"
#include "request_fields.h"

namespace darkroom {
namespace {

using Json = nlohmann::json;

/// "GET", "/v1/jobs/{id}" -> "get_v1_jobs_id".
std::string operation_id(const Route& route) {
  std::string id = ascii_lower(route.method);
  bool is_gap = true;
  for (const char c : route.path) {
    const bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    id += is_word && is_gap ? "_" : "";
    id += is_word ? std::string(1, c) : "";
    is_gap = !is_word;
  }
  return id;
}

void add_path_parameters(const Route& route, Json& parameters) {
  size_t begin = 0;
  while ((begin = route.path.find('{', begin)) != std::string::npos) {
    const size_t end = route.path.find('}', begin);
    const std::string name = route.path.substr(begin + 1, end - begin - 1);
    parameters.push_back({{"name", name}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
    begin = end;
  }
}

void add_query_parameters(const Route& route, Json& parameters) {
  if (route.query_schema == nullptr) {
    return;
  }
  const Json schema = route.query_schema();
  const Json required = schema.value("required", Json::array());
  for (const auto& [name, field] : schema.at("properties").items()) {
    const bool is_required = std::find(required.begin(), required.end(), Json(name)) != required.end();
    parameters.push_back({{"name", name}, {"in", "query"}, {"required", is_required}, {"schema", field}});
  }
}

Json responses_of(const Route& route) {
  Json responses = Json::object();
  for (const RouteReply& reply : route.replies) {
    Json& response = responses[fmt::format("{}", reply.status)];
    const bool is_first = response.is_null();
    response["description"] = is_first ? reply.what : response["description"].get<std::string>() + " " + reply.what;
    if (!reply.type.empty()) {
      response["content"][reply.type] = reply.schema == nullptr ? Json::object() : Json{{"schema", reply.schema()}};
    }
  }
  responses["default"] = {{"$ref", "#/components/responses/Problem"}};
  return responses;
}

Json operation_of(const Route& route) {
  Json operation = {{"operationId", operation_id(route)}, {"summary", route.summary}, {"responses", responses_of(route)}};
  Json parameters = Json::array();
  add_path_parameters(route, parameters);
  add_query_parameters(route, parameters);
  if (!parameters.empty()) {
    operation["parameters"] = parameters;
  }
  for (const RouteBody& body : route.bodies) {
    operation["requestBody"]["required"] = true;
    operation["requestBody"]["content"][body.type]["schema"] = body.schema();
  }
  if (route.is_open) {
    operation["security"] = Json::array();
  }
  return operation;
}

Json problem_response() {
  const Json text = {{"type", "string"}};
  const Json error = {{"type", "object"}, {"properties", {{"message", text}, {"type", text}, {"code", {{"type", {"integer", "string"}}}}}}};
  const Json schema = {{"type", "object"}, {"properties", {{"error", error}, {"detail", text}}}};
  return {{"description", "What was wrong, as docs/serve.md lists it."}, {"content", {{"application/json", {{"schema", schema}}}}}};
}

}  // namespace

Json openapi_document(const RouteTable& table, bool needs_keys) {
  Json document = {{"openapi", "3.1.0"},
                   {"info", {{"title", "darkroom serve"}, {"version", kVersion}}},
                   {"paths", Json::object()},
                   {"components", {{"responses", {{"Problem", problem_response()}}}}}};
  for (const Route& route : table.routes()) {
    document["paths"][route.path][ascii_lower(route.method)] = operation_of(route);
  }
  if (needs_keys) {
    document["components"]["securitySchemes"]["key"] = {{"type", "http"}, {"scheme", "bearer"}};
    document["security"] = Json::array({{{"key", Json::array()}}});
  }
  return document;
}

void add_document_route(RouteTable& table, bool needs_keys) {
  table.add({.method = "GET",
             .path = "/openapi.json",
             .summary = "This document",
             .answer = answer_at_once([&table, needs_keys](const RouteCall&) {
               return HttpReply{.body = json_text(openapi_document(table, needs_keys)) + "\n"};
             }),
             .replies = {{.what = "An OpenAPI 3.1 document."}}});
}

}  // namespace darkroom
