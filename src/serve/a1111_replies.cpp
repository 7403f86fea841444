#include "a1111_replies.h"

#include <string>

#include "a1111_jobs.h"
#include "darkroom/core/check.h"
#include "darkroom/serve/a1111_requests.h"
#include "request_fields.h"

namespace darkroom {
namespace {

nlohmann::json any_of(const char* type, const char* other) { return {{"type", {type, other}}}; }

nlohmann::json texts_by_name() { return {{"type", "object"}, {"additionalProperties", {{"type", "string"}}}}; }

// Of the JSON text `info`. A picture that starts from another has a strength; a text that was cut a
// warning, a picture that was blocked a reason.
nlohmann::json info_schema(const nlohmann::json& info) {
  nlohmann::json schema = schema_like(info);
  schema["properties"]["denoising_strength"] = any_of("number", "null");
  schema["properties"]["finish_reasons"]["items"] = any_of("string", "null");
  schema["properties"]["warnings"] = {{"type", "array"}, {"items", {{"type", "string"}}}};
  return schema;
}

}  // namespace

nlohmann::json a1111_pictures_schema(const ModelFacts& model, const RequestLimits& limits) {
  const auto request = read_txt2img("{}", model, limits);
  DARKROOM_CHECK(request.is_ok(), "a request that names nothing:", request.status().message());
  const std::vector<Image> one = {Image::filled(1, 1, 3)};
  nlohmann::json reply = nlohmann::json::parse(image_reply(*request, one, 0).body);
  nlohmann::json schema = schema_like(reply);
  schema["properties"]["images"]["items"]["contentEncoding"] = "base64";
  schema["properties"]["images"]["items"]["contentMediaType"] = "image/png";
  schema["properties"]["parameters"] = {{"type", "object"}, {"description", "The request's fields, without its pictures."}};
  schema["properties"]["info"].update(
      {{"contentMediaType", "application/json"}, {"contentSchema", info_schema(nlohmann::json::parse(reply["info"].get<std::string>()))}});
  return schema;
}

nlohmann::json a1111_progress_schema() {
  nlohmann::json schema = schema_like(A1111Jobs().progress("", {}, /*wants_preview=*/false));
  schema["properties"]["current_image"] = any_of("string", "null");
  return schema;
}

nlohmann::json png_info_reply_schema() {
  nlohmann::json schema = schema_like({{"info", ""}, {"items", nullptr}, {"parameters", nullptr}});
  schema["properties"]["items"] = texts_by_name();
  schema["properties"]["parameters"] = texts_by_name();
  return schema;
}

}  // namespace darkroom
