#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "darkroom/serve/drain.h"
#include "served_stub.h"
#include "stub_opener.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

/// A server of two models whose pictures are of 8 and of 16 pixels a side.
class model_routes : public ServedStub {
 protected:
  void SetUp() override { start_models(10); }
  void TearDown() override {
    opener_.release();
    server_.reset();
    shelf_.reset();
    ServedStub::TearDown();
  }
  void start_models(int64_t memory_bytes, const std::string& root = "") {
    TearDown();
    shelf_.emplace(ModelShelfOptions{.memory_bytes = memory_bytes}, opener_, metrics_, clock_);
    ASSERT_TRUE(shelf_->add({.name = "small", .address = "8"}).is_ok());
    ASSERT_TRUE(shelf_->add({.name = "large", .address = "16"}).is_ok());
    batcher_.emplace(StepBatcherOptions{.max_batch = 4, .queue_cost = 1e9}, metrics_, clock_);
    service_.emplace(
        PaintingServiceOptions{
            .model = {.name = "small", .native_size = 8, .size_multiple = 8, .samplers = {"ddim"}, .default_sampler = "ddim"},
            .models = &*shelf_,
            .model_root = root,
            .limits = {}},
        *batcher_, metrics_, clock_);
    server_ = HttpServer::start(*service_, {.address = parse_metrics_address("0").value()}).value();
  }
  /// Width of the PNG in a reply.
  static int width_of(const std::string& reply) {
    const size_t head = reply.find("IHDR");
    return head == std::string::npos ? 0 : static_cast<uint8_t>(reply[head + 7]);
  }
  int painted_by(const std::string& model) const {
    const std::string named = model.empty() ? "" : R"("model":")" + model + R"(",)";
    return width_of(ask(post("/invocations", "{" + named + R"("inputs":"x","parameters":{"num_inference_steps":2}})", kWantsPng)));
  }

  double open_cost() {
    const std::string text = metrics_.to_prometheus();
    const size_t at = text.find("\ndarkroom_serve_open_cost ");
    return at == std::string::npos ? 0 : std::stod(text.substr(at + 26));
  }

  StubOpener opener_{clock_};
  std::optional<ModelShelf> shelf_;
};

TEST_F(model_routes, every_protocol_says_which_model_paints) {
  EXPECT_EQ(painted_by(""), 8);
  EXPECT_EQ(painted_by("large"), 16);
  EXPECT_EQ(width_of(ask(get("/imagine?prompt=x&steps=2&model=large"))), 16);
  EXPECT_THAT(ask(post("/v1/images/generations", R"({"prompt":"x","steps":2,"model":"large","size":"16x16"})")),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(post("/sdapi/v1/txt2img", R"({"steps":2,"override_settings":{"sd_model_checkpoint":"large"}})")),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr(R"(\"sd_model_name\":\"large\")"), HasSubstr(R"(\"width\":16)")));
  EXPECT_EQ(Json::parse(body_of(ask(get("/v1/facts?model=large"))))["native_size"], 16);
  EXPECT_THAT(ask(get("/v2/models/large")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"x","model":"large","steps":2})")), StartsWith("HTTP/1.1 202"));
  EXPECT_THAT(ask(get("/v1/models")), AllOf(HasSubstr(R"("id":"small")"), HasSubstr(R"("id":"large")")));
}

TEST_F(model_routes, asking_for_facts_loads_no_model) {
  for (const char* path : {"/v1/facts", "/v1/facts?model=small", "/v1/facts?model=large"}) {
    EXPECT_THAT(ask(get(path)), AllOf(StartsWith("HTTP/1.1 409"), HasSubstr("has not been loaded yet"))) << path;
  }
  EXPECT_EQ(opener_.await_opened(0).size(), 0);
  EXPECT_EQ(painted_by("large"), 16);
  EXPECT_EQ(Json::parse(body_of(ask(get("/v1/facts?model=large"))))["native_size"], 16);
  start_models(1);
  EXPECT_EQ(painted_by("small"), 8);
  EXPECT_EQ(painted_by("large"), 16);  // For which small went.
  EXPECT_EQ(Json::parse(body_of(ask(get("/v1/facts"))))["model"], "small");
  EXPECT_THAT(opener_.await_opened(3), testing::ElementsAre("large", "small", "large"));
}

TEST_F(model_routes, a_name_that_is_no_model_is_404_everywhere) {
  for (const std::string& request :
       {post("/invocations", R"({"inputs":"x","model":"none"})"), post("/v1/images/generations", R"({"prompt":"x","model":"none"})"),
        post("/v1/jobs", R"({"prompt":"x","model":"none"})"), get("/imagine?prompt=x&model=none"), get("/v1/facts?model=none"),
        post("/sdapi/v1/txt2img", R"({"override_settings":{"sd_model_checkpoint":"none"}})"), get("/v2/models/none")}) {
    EXPECT_THAT(ask(request), AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("none"))) << request;
  }
}

TEST_F(model_routes, options_of_a1111_choose_the_model_of_what_follows) {
  EXPECT_THAT(ask(get("/sdapi/v1/sd-models")), AllOf(HasSubstr(R"("model_name":"small")"), HasSubstr(R"("model_name":"large")")));
  EXPECT_THAT(ask(get("/sdapi/v1/options")), HasSubstr(R"("sd_model_checkpoint":"small")"));
  EXPECT_THAT(ask(post("/sdapi/v1/options", R"({"sd_model_checkpoint":"none"})")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("none")));
  EXPECT_THAT(ask(post("/sdapi/v1/options", R"({"sd_model_checkpoint":"large","sd_vae":"other"})")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(get("/sdapi/v1/options")), HasSubstr(R"("sd_model_checkpoint":"small")"));
  EXPECT_THAT(ask(post("/sdapi/v1/options", R"({"sd_model_checkpoint":"large"})")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(get("/sdapi/v1/options")), HasSubstr(R"("sd_model_checkpoint":"large")"));
  EXPECT_THAT(ask(post("/sdapi/v1/txt2img", R"({"steps":2})")), HasSubstr(R"(\"width\":16)"));
  EXPECT_EQ(painted_by(""), 8);
}

TEST_F(model_routes, requests_wait_while_their_model_is_loaded_and_others_are_painted) {
  EXPECT_EQ(painted_by(""), 8);
  opener_.hold();
  const auto waiting = asking(post("/invocations", R"({"model":"large","inputs":"x","parameters":{"num_inference_steps":2}})", kWantsPng));
  opener_.await_opened(2);
  EXPECT_EQ(painted_by("small"), 8);
  EXPECT_FALSE(waiting->has_reply());
  opener_.release();
  EXPECT_EQ(width_of(waiting->receive_all()), 16);
}

TEST_F(model_routes, a_wait_for_a_model_ends_at_the_request_s_deadline) {
  opener_.hold();
  const auto waiting = asking(post("/invocations", R"({"inputs":"x"})", "X-Darkroom-Deadline: 5\r\n"));
  opener_.await_opened(1);
  clock_.advance(std::chrono::seconds(6));
  EXPECT_THAT(waiting->receive_all(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After")));
}

TEST_F(model_routes, a_stop_answers_those_who_wait_for_a_model) {
  opener_.hold_until_released();
  const auto waiting = asking(post("/invocations", R"({"inputs":"x"})"));
  opener_.await_opened(1);
  drain({.server = *server_, .service = *service_, .batcher = *batcher_, .models = &*shelf_}, {.patience = std::chrono::minutes(1)});
  EXPECT_FALSE(shelf_->await_idle(std::chrono::milliseconds(0)));
  EXPECT_THAT(ask(post("/invocations", R"({"inputs":"x","model":"large"})")), StartsWith("HTTP/1.1 503"));
  server_.reset();  // Who has no answer by now gets none.
  EXPECT_THAT(waiting->receive_all(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After"), HasSubstr("shutting down")));
}

TEST_F(model_routes, a_model_is_not_evicted_while_it_paints) {
  start_models(1);
  EXPECT_EQ(painted_by(""), 8);
  StubEngine* const small = opener_.engine("small");
  const size_t num_calls = small->calls().size();
  small->hold_at(num_calls);
  const auto first = asking(post("/invocations", R"({"inputs":"x","parameters":{"num_inference_steps":9}})", kWantsPng));
  ASSERT_TRUE(small->await_calls(num_calls + 1));
  const auto second = asking(post("/invocations", R"({"model":"large","inputs":"x","parameters":{"num_inference_steps":2}})", kWantsPng));
  EXPECT_EQ(Json::parse(body_of(ask(get("/v1/models"))))["data"].size(), 2);
  EXPECT_THAT(opener_.await_opened(1), testing::ElementsAre("small"));
  small->release();
  EXPECT_EQ(width_of(first->receive_all()), 8);
  EXPECT_EQ(width_of(second->receive_all()), 16);
  EXPECT_EQ(painted_by("small"), 8);
  EXPECT_THAT(opener_.await_opened(3), testing::ElementsAre("small", "large", "small"));
}

TEST_F(model_routes, a_model_that_never_fits_is_507) {
  opener_.set_bytes("large", 11);
  EXPECT_THAT(ask(post("/invocations", R"({"inputs":"x","model":"large"})")), AllOf(StartsWith("HTTP/1.1 507"), HasSubstr("large")));
}

TEST_F(model_routes, models_take_turns_by_cost_whichever_came_first) {
  EXPECT_EQ(painted_by(""), 8);
  EXPECT_EQ(painted_by("large"), 16);
  StubEngine* const small = opener_.engine("small");
  StubEngine* const large = opener_.engine("large");
  const std::string steps = R"("parameters":{"num_inference_steps":)";
  const size_t num_small = small->calls().size();
  small->hold_at(num_small);
  const auto slow = asking(post("/invocations", R"({"inputs":"slow",)" + steps + "90}}", kWantsPng));
  ASSERT_TRUE(small->await_calls(num_small + 1));
  const auto quick = asking(post("/invocations", R"({"model":"large","inputs":"quick",)" + steps + "3}}", kWantsPng));
  ASSERT_TRUE(await([&] { return open_cost() >= cost_of_steps(90) + cost_of_steps(3); }));
  const size_t num_large = large->calls().size();
  large->hold_at(num_large + 2);
  small->release();
  ASSERT_TRUE(large->await_calls(num_large + 3));  // The batcher's thread stands in the last call for the quick one.
  EXPECT_LT(small->calls().size(), num_small + 10);
  large->release();
  EXPECT_EQ(width_of(quick->receive_all()), 16);
  EXPECT_EQ(width_of(slow->receive_all()), 8);
}

/// The same with SageMaker's routes, which load below a folder.
class multi_model_routes : public model_routes {
 protected:
  void SetUp() override {
    root_ = std::filesystem::canonical(temporary_.path());
    for (const char* name : {"one", "two", "three"}) {
      std::filesystem::create_directories(root_ / "models" / name);
    }
    std::filesystem::create_directories(root_ / "outside");
    start_models(4, root_ / "models");
  }
  std::string load(const std::string& name, const std::string& url) const {
    return ask(post("/models", Json{{"model_name", name}, {"url", url}}.dump()));
  }
  std::string folder(const std::string& name) const { return root_ / "models" / name; }

  TemporaryFolder temporary_;
  std::filesystem::path root_;
};

TEST_F(multi_model_routes, load_list_show_invoke_and_unload) {
  EXPECT_THAT(load("own", folder("one")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(load("own", folder("two")), StartsWith("HTTP/1.1 409"));
  EXPECT_THAT(ask(get("/models")), AllOf(HasSubstr(R"("modelName":"own")"), HasSubstr(R"("modelName":"small")")));
  EXPECT_EQ(Json::parse(body_of(ask(get("/models/own"))))["modelUrl"], folder("one"));
  EXPECT_THAT(ask(get("/models/none")), StartsWith("HTTP/1.1 404"));
  const std::string body = R"({"inputs":"x","parameters":{"num_inference_steps":2}})";
  EXPECT_THAT(ask(post("/models/own/invoke", body, kWantsPng)), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\x89PNG")));
  EXPECT_THAT(ask(post("/models/none/invoke", body)), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask("DELETE /models/own HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask("DELETE /models/own HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask(get("/models/own")), StartsWith("HTTP/1.1 404"));
}

TEST_F(multi_model_routes, a1111_s_routes_tell_of_the_models_that_are_there) {
  for (const char* model : {"small", "large"}) {
    EXPECT_THAT(ask(fmt::format("DELETE /models/{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", model)),
                StartsWith("HTTP/1.1 200"));
  }
  EXPECT_THAT(load("own", folder("one")), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(Json::parse(body_of(ask(get("/sdapi/v1/options"))))["sd_model_checkpoint"], "own");
  EXPECT_EQ(Json::parse(body_of(ask(get("/sdapi/v1/cmd-flags"))))["ckpt"], "own");
}

TEST_F(multi_model_routes, no_memory_is_507_until_the_platform_unloads_another) {
  opener_.set_bytes("a", 3);
  opener_.set_bytes("b", 3);
  EXPECT_THAT(load("a", folder("one")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(load("b", folder("two")), StartsWith("HTTP/1.1 507"));
  EXPECT_THAT(ask(get("/models/b")), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask("DELETE /models/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(load("b", folder("two")), StartsWith("HTTP/1.1 200"));
}

TEST_F(multi_model_routes, nothing_outside_of_the_folder_is_opened) {
  std::filesystem::create_directory_symlink(root_ / "outside", root_ / "models" / "link");
  for (const std::string& url : {(root_ / "outside").string(), folder("../outside"), folder("link"), folder("none"), folder(""),
                                 std::string("s3://bucket/model"), std::string("/etc")}) {
    EXPECT_THAT(load("x", url), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("url"))) << url;
  }
  EXPECT_THAT(load("", folder("one")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("model_name")));
  EXPECT_THAT(load("x", "file://" + folder("one")), StartsWith("HTTP/1.1 200"));
}

TEST_F(multi_model_routes, lists_come_in_pages) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(shelf_->add({.name = "m" + std::to_string(i), .address = "8"}).is_ok());
  }
  const Json first = Json::parse(body_of(ask(get("/models"))));
  EXPECT_EQ(first["models"].size(), 100);
  const Json second = Json::parse(body_of(ask(get("/models?next_page_token=" + first["nextPageToken"].get<std::string>()))));
  EXPECT_EQ(second["models"].size(), 2);
  EXPECT_FALSE(second.contains("nextPageToken"));
  EXPECT_THAT(ask(get("/models?next_page_token=x")), StartsWith("HTTP/1.1 400"));
}

TEST_F(model_routes, sagemaker_s_routes_are_not_there_unless_they_are_asked_for) {
  EXPECT_THAT(ask(get("/models")), StartsWith("HTTP/1.1 404"));
}

}  // namespace
}  // namespace darkroom
