#include "serve/openapi.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "darkroom/core/base64.h"
#include "darkroom/image/png.h"
#include "serve/picture_fields.h"
#include "serve/request_fields.h"
#include "served_stub.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

class openapi : public ServedStub {
 protected:
  void SetUp() override {
    has_intake_ = true;
    start({});
  }
  Json document(const std::string& headers = "") const { return Json::parse(body_of(ask(get("/openapi.json", headers)))); }
  /// A body that its reader takes, as small as its schema lets it be.
  static Json least_body(const Json& schema) {
    Json body = Json::object();
    Json needed = schema.value("required", Json::array());
    if (schema.contains("anyOf")) {
      const Json one = schema["anyOf"].front()["required"];
      needed.insert(needed.end(), one.begin(), one.end());
    }
    const std::string picture = encode_base64(encode_png(Image::filled(8, 8, 3)));
    for (const Json& name : needed) {
      const Json field = schema["properties"][name.get<std::string>()];
      const std::string type = field.value("type", "");
      const Json text = name == "image" || field.contains("contentEncoding") ? picture : "x";
      body[name.get<std::string>()] = type == "object" ? least_body(field) : type == "array" ? Json::array({picture}) : text;
    }
    return body;
  }
  static std::vector<std::string> names_of(const Json& properties) {
    std::vector<std::string> names;
    for (const auto& [name, field] : properties.items()) {
      names.push_back(name);
    }
    return names;
  }
  static std::vector<std::string> query_names(const Json& operation) {
    std::vector<std::string> names;
    for (const Json& parameter : operation.value("parameters", Json::array())) {
      if (parameter["in"] == "query") {
        names.push_back(parameter["name"]);
      }
    }
    return names;
  }
  /// A form that has a field beside those that it must have.
  static std::string edit_form(const std::string& name) {
    std::string body;
    for (const std::string& part : std::set<std::string>{"image", "prompt", name}) {
      const std::string text = part.starts_with("image") ? encode_base64(encode_png(Image::filled(8, 8, 3))) : "x";
      body += "--b\r\nContent-Disposition: form-data; name=\"" + part + "\"\r\n\r\n" + text + "\r\n";
    }
    body += "--b--\r\n";
    return "POST /v1/images/edits HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: multipart/form-data; boundary=b\r\n"
           "Content-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  /// Where a value is not as its schema says, or has a field that it does not name.
  static std::vector<std::string> misfits(const Json& schema, const Json& value, const std::string& where) {
    const auto is_of = [&](const Json& type) { return type == value.type_name() || (value.is_number_integer() && type == "integer"); };
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    if (!std::ranges::any_of(types, is_of)) {
      return {where + " is " + value.dump() + ", not " + types.dump()};
    }
    std::vector<std::string> found;
    const auto look = [&](const Json& of, const Json& part, const std::string& name) {
      std::ranges::move(misfits(of, part, where + "." + name), std::back_inserter(found));
    };
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) {
        found.push_back(where + " lacks " + name.dump());
      }
    }
    for (const Json& item : value.is_array() && schema.contains("items") ? value : Json::array()) {
      look(schema["items"], item, "items");
    }
    const Json named = schema.value("properties", Json::object());
    const Json fields = value.is_object() ? value : Json::object();
    for (const auto& [name, field] : fields.items()) {
      if (named.contains(name) || schema.contains("additionalProperties")) {
        look(named.contains(name) ? named[name] : schema["additionalProperties"], field, name);
      } else if (!named.empty()) {
        found.push_back(where + " has " + name + ", which the document does not");
      }
    }
    return found;
  }
  /// The schemas of bodies by "path", one of a choice after the other.
  static std::vector<std::pair<std::string, Json>> bodies(const Json& document) {
    std::vector<std::pair<std::string, Json>> found;
    for (const auto& [path, operations] : document["paths"].items()) {
      if (!operations.contains("post") || !operations["post"].contains("requestBody") ||
          !operations["post"]["requestBody"]["content"].contains("application/json")) {
        continue;
      }
      const Json& media = operations["post"]["requestBody"]["content"]["application/json"];
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

// Forms and queries have the same readers: what is in the document is taken by its name, and nothing else is.
TEST_F(openapi, has_every_field_of_the_forms_and_queries_that_the_readers_take_and_no_other) {
  const Json paths = document()["paths"];
  const Json form = paths["/v1/images/edits"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"];
  EXPECT_THAT(names_of(form["properties"]),
              ElementsAre("background", "guidance_scale", "image", "image[]", "input_fidelity", "mask", "model", "moderation", "n",
                          "negative_prompt", "output_compression", "output_format", "partial_images", "prompt", "quality",
                          "response_format", "sampler", "seed", "size", "steps", "stream", "strength", "style", "user"));
  for (const std::string& name : names_of(form["properties"])) {
    EXPECT_THAT(ask(edit_form(name)), Not(HasSubstr("no such field"))) << name;
  }
  EXPECT_THAT(ask(edit_form("no_such_field")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("no such field: no_such_field")));
  EXPECT_THAT(query_names(paths["/imagine"]["get"]),
              ElementsAre("guidance_scale", "img_size", "model", "negative_prompt", "prompt", "sampler", "seed", "steps"));
  const std::vector<std::string> strict = {"/imagine", "/v1/runs/{run}/metrics", "/v1/datasets/{dataset}/rows"};
  for (const auto& [path, operations] : paths.items()) {
    const std::vector<std::string> names = operations.contains("get") ? query_names(operations["get"]) : std::vector<std::string>();
    for (const std::string& name : names) {
      EXPECT_THAT(ask(get(path + "?" + name + "=x")), Not(HasSubstr("no such field"))) << path << name;
    }
    EXPECT_TRUE(!names.empty() || std::ranges::find(strict, path) == strict.end()) << path;
  }
  EXPECT_THAT(ask(get("/imagine?prompt=x&no_such_field=x")), HasSubstr("no such field: no_such_field"));
}

TEST_F(openapi, has_every_type_of_body) {
  const Json paths = document()["paths"];
  for (const char* path : {"/invocations", "/"}) {
    const Json content = paths[path]["post"]["requestBody"]["content"];
    EXPECT_EQ(content.at("application/x-text").at("schema"), Json::parse(R"({"type":"string","minLength":1,"maxLength":10000})")) << path;
    EXPECT_TRUE(content.contains("application/json")) << path;
  }
  for (const Json& form : paths["/invocations"]["post"]["requestBody"]["content"]["application/json"]["schema"]["oneOf"]) {
    const Json& fields = form["properties"].contains("parameters") ? form["properties"]["parameters"]["properties"] : form["properties"];
    for (const char* name : {"strength", "prompt_syntax"}) {
      EXPECT_TRUE(fields.contains(name)) << name;
    }
    EXPECT_TRUE(fields.contains("image") || form["properties"]["inputs"].value("contentEncoding", "") == "base64");
  }
  EXPECT_EQ(paths["/"]["post"]["requestBody"]["content"]["application/json"]["schema"]["oneOf"].size(), 3U);
  const Json edits = paths["/v1/images/edits"]["post"]["requestBody"]["content"];
  EXPECT_TRUE(edits.contains("multipart/form-data"));
  EXPECT_THAT(names_of(edits.at("application/json").at("schema").at("properties")),
              AllOf(testing::Contains("image"), testing::Contains("images"), testing::Contains("strength"), testing::Contains("prompt")));
}

// A field is in the document because the reader asks for it: each is refused for its value, and any other for its name.
TEST_F(openapi, has_every_field_that_the_readers_take_and_no_other) {
  const auto all = bodies(document());
  EXPECT_GE(all.size(), 10U);
  for (const auto& [path, schema] : all) {
    EXPECT_EQ(schema["additionalProperties"], false) << path;
    EXPECT_TRUE(schema.contains("required") || path.starts_with("/sdapi/")) << path;
    Json body = least_body(schema);
    body["no_such_field"] = 1;
    EXPECT_THAT(ask(post(path, body.dump())), ContainsRegex("no such (field|option): no_such_field")) << path;
    body.erase("no_such_field");
    for (const auto& [name, field] : schema["properties"].items()) {
      Json wrong = body;
      wrong[name] = {{"an", "object"}};
      EXPECT_THAT(ask(post(path, wrong.dump())), Not(ContainsRegex("no such (field|option): " + name + "\""))) << path;
      EXPECT_TRUE(name == "user" || !field.empty()) << path << " " << name;
    }
  }
}

TEST_F(openapi, has_no_value_of_webuis_fields_that_is_refused) {
  size_t num_values = 0;
  for (const auto& [path, schema] : bodies(document())) {
    if (path != "/sdapi/v1/txt2img" && path != "/sdapi/v1/img2img" && path != "/sdapi/v1/options") {
      continue;
    }
    for (const auto& [name, field] : schema["properties"].items()) {
      for (const Json& value : field.value("enum", field.value("examples", Json::array()))) {
        Json body = least_body(schema);
        body["steps"] = 1;
        body[name] = value;
        body.update(path.ends_with("img2img") ? Json{{"denoising_strength", 1}} : Json::object());
        if (path.ends_with("options")) {
          body.erase("steps");
        }
        if (value != "uniform" && value != "karras") {  // Which only some samplers have.
          EXPECT_THAT(ask(post(path, body.dump())), StartsWith("HTTP/1.1 200")) << path << " " << body;
        }
        ++num_values;
      }
    }
  }
  EXPECT_GE(num_values, 40U);
}

TEST_F(openapi, has_every_field_of_webuis_replies) {
  const Json paths = document()["paths"];
  size_t num_replies = 0;
  for (const auto& [path, operations] : paths.items()) {
    for (const auto& [method, operation] : operations.items()) {
      if (!path.starts_with("/sdapi/")) {
        continue;
      }
      Json body =
          operation.contains("requestBody") ? least_body(operation["requestBody"]["content"]["application/json"]["schema"]) : Json();
      const std::string reply = ask(method == "get" ? get(path) : post(path, body.is_null() ? "" : body.dump()));
      ASSERT_THAT(reply, StartsWith("HTTP/1.1 200")) << path;
      const Json value = Json::parse(body_of(reply));
      const Json& schema = operation["responses"]["200"]["content"]["application/json"]["schema"];
      EXPECT_THAT(misfits(schema, value, path), ElementsAre());
      if (path.ends_with("2img")) {
        const Json info = Json::parse(value["info"].get<std::string>());
        EXPECT_THAT(misfits(schema["properties"]["info"]["contentSchema"], info, path + " info"), ElementsAre());
        EXPECT_EQ(value["images"].size(), 1U);
      }
      ++num_replies;
    }
  }
  EXPECT_GE(num_replies, 19U);
}

TEST_F(openapi, has_the_fields_of_webuis_progress_while_it_paints) {
  const Json schema = document()["paths"]["/sdapi/v1/progress"]["get"]["responses"]["200"]["content"]["application/json"]["schema"];
  engine_.hold_at(0);
  const auto painted = asking(post("/sdapi/v1/txt2img", R"({"steps":20})"));
  const auto progress = [&] { return Json::parse(body_of(ask(get("/sdapi/v1/progress")))); };
  ASSERT_TRUE(engine_.await_calls(1));
  progress();  // Somebody looks on from now.
  engine_.hold_at(11);
  ASSERT_TRUE(engine_.await_calls(12));
  EXPECT_THAT(misfits(schema, progress(), "progress"), ElementsAre());
  EXPECT_EQ(progress()["state"]["job"], "painting");
  engine_.release();
  EXPECT_THAT(painted->receive_all(), StartsWith("HTTP/1.1 200"));
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

TEST(request_fields, of_texts_are_what_the_reader_wants) {
  const Json object = Json::parse(R"({"a":"12","b":"12","c":"true","d":"1.5","e":"100","f":"two","g":"true"})");
  RequestFields fields = RequestFields::of_texts(object);
  EXPECT_EQ(fields.text("a", 10), "12");
  EXPECT_EQ(fields.integer("b", 0, 20), 12);
  EXPECT_EQ(fields.boolean("c"), true);
  EXPECT_EQ(fields.number("d", 0, 2), 1.5);
  fields.only("e", {100});
  fields.only("g", {"true"});
  EXPECT_TRUE(fields.failure().is_ok()) << fields.failure().message();
  fields.integer("f", 0, 20);
  EXPECT_THAT(fields.failure().message(), HasSubstr("f must be a whole number from 0 to 20, got: \"two\""));
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
