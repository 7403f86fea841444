#include "serve/openapi.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "serve/picture_fields.h"
#include "serve/request_fields.h"
#include "served_stub.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

class openapi : public ServedStub {
 protected:
  Json document(const std::string& headers = "") const { return Json::parse(body_of(ask(get("/openapi.json", headers)))); }
  /// The schemas of bodies by "path", one of a choice after the other.
  static std::vector<std::pair<std::string, Json>> bodies(const Json& document) {
    std::vector<std::pair<std::string, Json>> found;
    for (const auto& [path, operations] : document["paths"].items()) {
      if (!operations.contains("post") || !operations["post"].contains("requestBody") ||
          !operations["post"]["requestBody"]["content"].contains("application/json")) {
        continue;
      }
      const Json& media = operations["post"]["requestBody"]["content"]["application/json"];
      if (path.starts_with("/sdapi/")) {  // Whose fields are webui's to describe.
        continue;
      }
      const Json& schema = media.at("schema");
      if (!schema.contains("oneOf")) {
        found.emplace_back(path, schema);
        continue;
      }
      for (const Json& one : schema["oneOf"]) {
        found.emplace_back(path, one);
      }
    }
    return found;
  }
};

TEST_F(openapi, has_every_route_with_its_parameters) {
  const Json paths = document()["paths"];
  for (const char* path : {"/ping", "/invocations", "/v1/images/generations", "/v1/jobs", "/v1/jobs/{id}", "/v1/jobs/{id}/events",
                           "/v1/jobs/{id}/images/{number}", "/v1/runs/{run}/metrics", "/v1/facts", "/v1/models", "/v2",
                           "/v2/models/{model}/ready", "/metrics", "/openapi.json"}) {
    EXPECT_TRUE(paths.contains(path)) << path;
  }
  std::set<std::string> ids;
  for (const auto& [path, operations] : paths.items()) {
    for (const auto& [method, operation] : operations.items()) {
      EXPECT_TRUE(ids.insert(operation["operationId"]).second) << path << method;
      EXPECT_FALSE(operation["summary"].get<std::string>().empty()) << path << method;
      EXPECT_GE(operation["responses"].size(), 2U) << path << method;
      const auto num_parameters = static_cast<size_t>(std::count(path.begin(), path.end(), '{'));
      const Json parameters = operation.value("parameters", Json::array());
      const auto num_in_path = std::count_if(parameters.begin(), parameters.end(), [](const Json& one) { return one["in"] == "path"; });
      EXPECT_EQ(static_cast<size_t>(num_in_path), num_parameters) << path << method;
      // What is in the document is there: no path of it is unknown to the server.
      std::string asked = path;
      for (const char* part : {"{id}", "{number}", "{model}", "{run}", "{step}", "{file}"}) {
        const size_t at = asked.find(part);
        asked = at == std::string::npos ? asked : asked.replace(at, std::string(part).size(), "stub");
      }
      EXPECT_THAT(ask(get(asked)), Not(HasSubstr("nothing here"))) << path;
    }
  }
  EXPECT_EQ(paths["/ping"]["get"]["security"], Json::array());
}

// A field is in the document because the reader asks for it: each is refused for its value, and any other for its name.
TEST_F(openapi, has_every_field_that_the_readers_take_and_no_other) {
  const auto all = bodies(document());
  EXPECT_GE(all.size(), 6U);
  for (const auto& [path, schema] : all) {
    EXPECT_EQ(schema["additionalProperties"], false) << path;
    ASSERT_TRUE(schema.contains("required")) << path;
    Json body = {{schema["required"][0].get<std::string>(), "x"}};
    body["no_such_field"] = 1;
    EXPECT_THAT(ask(post(path, body.dump())), HasSubstr("no such field: no_such_field")) << path;
    body.erase("no_such_field");
    for (const auto& [name, field] : schema["properties"].items()) {
      Json wrong = body;
      wrong[name] = {{"an", "object"}};
      EXPECT_THAT(ask(post(path, wrong.dump())), Not(HasSubstr("no such field: " + name + "\""))) << path;
      EXPECT_TRUE(name == "user" || !field.empty()) << path << " " << name;
    }
  }
}

TEST_F(openapi, has_the_bounds_and_names_of_fields) {
  Json schema;
  for (const auto& [path, one] : bodies(document())) {
    schema = path == "/v1/jobs" ? one : schema;
  }
  std::vector<std::string> names;
  for (const auto& [name, field] : schema["properties"].items()) {
    names.push_back(name);
  }
  EXPECT_THAT(names, ElementsAre("guidance_scale", "height", "images", "init_image", "model", "negative_prompt", "preview_every", "prompt",
                                 "prompt_syntax", "sampler", "seed", "steps", "strength", "width"));
  EXPECT_EQ(schema["properties"]["width"], Json::parse(R"({"type":"integer","minimum":1,"maximum":2048,"multipleOf":8})"));
  EXPECT_EQ(schema["properties"]["sampler"]["enum"], Json::array({"ddim"}));
  EXPECT_EQ(schema["required"], Json::array({"prompt"}));
}

TEST_F(openapi, needs_a_key_where_the_server_does) {
  EXPECT_FALSE(document().contains("security"));
  start(AccessKeys::parse(std::string(kKey), "keys").value());
  EXPECT_THAT(ask(get("/openapi.json")), StartsWith("HTTP/1.1 401"));
  const Json with_keys = document("Authorization: Bearer " + std::string(kKey) + "\r\n");
  EXPECT_EQ(with_keys["security"], Json::parse(R"([{"key":[]}])"));
  EXPECT_EQ(with_keys["components"]["securitySchemes"]["key"]["scheme"], "bearer");
}

TEST(request_fields, describe_what_a_reader_asks_for) {
  const Json schema = described_fields([](RequestFields& fields) {
    fields.need("a");
    fields.text("a", 10);
    fields.boolean("b");
    fields.object("c", [](RequestFields& inner) { inner.number("d", 0, 1); });
    fields.integer(fields.spelling("e_f", "eF"), 1, 2);
    fields.only("g", {"h", nullptr});
  });
  EXPECT_EQ(schema, Json::parse(R"({"type":"object","additionalProperties":false,"required":["a"],"properties":{
    "a":{"type":"string","maxLength":10},"b":{"type":"boolean"},
    "c":{"type":"object","additionalProperties":false,"properties":{"d":{"type":"number","minimum":0.0,"maximum":1.0}}},
    "e_f":{"type":"integer","minimum":1,"maximum":2},"eF":{"description":"Another spelling of e_f."},"g":{"enum":["h",null]}}})"));
}

TEST(route_table, finds_paths_with_parameters_and_tells_the_methods_of_others) {
  RouteTable table;
  const auto nothing = [](const RouteCall&) {};
  table.add({.method = "GET", .path = "/", .summary = "", .answer = nothing});
  table.add({.method = "GET", .path = "/a/{x}", .summary = "", .answer = nothing});
  table.add({.method = "POST", .path = "/a/{x}", .summary = "", .answer = nothing});
  table.add({.method = "GET", .path = "/a/{x}/b/{y}", .summary = "", .answer = nothing});
  EXPECT_EQ(table.find("GET", "/").route->path, "/");
  EXPECT_THAT(table.find("GET", "/a/1%202/b/%zz%4").parameters, ElementsAre("1 2", "%zz%4"));
  EXPECT_THAT(table.find("POST", "/a/..%2F").parameters, ElementsAre("../"));
  for (const char* path : {"", "/a", "/a/", "/a/1/", "//", "/a//b/1", "/a/1/b", "/a/1/b/2/3", "/b/1", "a/1"}) {
    EXPECT_EQ(table.find("GET", path).route, nullptr) << path;
  }
  EXPECT_EQ(table.find("DELETE", "/a/1").route, nullptr);
  EXPECT_EQ(table.methods_of("/a/1"), "GET, POST");
  EXPECT_EQ(table.methods_of("/c"), "");
  EXPECT_THROW(table.add({.method = "GET", .path = "/a/{x}", .summary = "", .answer = nothing}), CheckFailure);
}

class facts : public ServedStub {};

TEST_F(facts, tell_what_may_be_asked_for) {
  const Json told = Json::parse(body_of(ask(get("/v1/facts"))));
  EXPECT_EQ(told["model"], "stub");
  EXPECT_EQ(told["models"], Json::array({"stub"}));
  EXPECT_EQ(told["native_size"], 8);
  EXPECT_EQ(told["size_multiple"], 8);
  EXPECT_EQ(told["samplers"], Json::array({"ddim"}));
  EXPECT_EQ(told["limits"]["steps"], 500);
  EXPECT_EQ(told["defaults"]["steps"], 50);
  EXPECT_EQ(told["features"]["jobs"], true);
  EXPECT_EQ(told["features"]["weighted_prompts"], true);
  EXPECT_EQ(told["features"]["image_to_image"], false);  // There is no decoder.
}

TEST_F(facts, of_the_open_inference_protocol_name_the_model) {
  EXPECT_EQ(Json::parse(body_of(ask(get("/v2"))))["name"], "darkroom");
  EXPECT_EQ(Json::parse(body_of(ask(get("/v2/models/stub"))))["name"], "stub");
  EXPECT_THAT(ask(get("/v2/models/stub/ready")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(get("/v2/models/other")), AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("other")));
  EXPECT_THAT(ask(get("/v2/models/other/ready")), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask(post("/v2/models/stub/infer", "{}")), StartsWith("HTTP/1.1 404"));
  batcher_->drain();
  EXPECT_THAT(ask(get("/v2/models/stub/ready")), StartsWith("HTTP/1.1 503"));
}

}  // namespace
}  // namespace darkroom
