#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <new>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <utility>

#include "darkroom/core/base64.h"
#include "darkroom/image/decode.h"
#include "darkroom/image/watermark.h"
#include "darkroom/serve/drain.h"
#include "serve/picture_finish.h"
#include "served_stub.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

/// A server over a stub with a checker that blocks the pictures of seed 7, of which every value is 7.
class safety : public ServedStub {
 protected:
  void SetUp() override {
    start_with({.safety_check = [this](const std::string& png, const std::stop_token&) -> Result<bool> {
      ++num_asked_;
      const auto image = decode_image(std::as_bytes(std::span(png)), kAnySize);
      EXPECT_TRUE(image.is_ok());
      return image->pixels.front() != 7;
    }});
  }
  void start_with(PaintingServiceOptions options) {
    TearDown();
    batcher_.emplace(engine_, StepBatcherOptions{.max_batch = 4, .queue_cost = 1e9}, metrics_, clock_);
    options.model = {.name = "stub", .native_size = 8, .size_multiple = 8, .samplers = {"ddim"}, .default_sampler = "ddim"};
    service_.emplace(std::move(options), *batcher_, metrics_, clock_);
    server_ = HttpServer::start(*service_, {.address = parse_metrics_address("0").value()}).value();
  }
  Json json_of(const std::string& request) const {
    const std::string reply = ask(request);
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 200")) << request;
    return Json::parse(body_of(reply));
  }
  static std::string of_seed(int seed) { return R"("seed":)" + std::to_string(seed) + R"(,"num_inference_steps":2)"; }

  std::atomic<int> num_asked_ = 0;
};

TEST_F(safety, pictures_that_are_blocked_are_not_sent_and_say_so) {
  const Json two =
      json_of(post("/invocations", R"({"prompt":"x","num_images_per_prompt":2,)" + of_seed(6) + "}", "Accept: application/json;png\r\n"));
  EXPECT_TRUE(two["generated_images"][0].is_string());
  EXPECT_TRUE(two["generated_images"][1].is_null());
  EXPECT_EQ(two["finish_reasons"], Json({nullptr, "content_filter"}));
  const Json arrays = json_of(post("/invocations", R"({"prompt":"x",)" + of_seed(7) + "}"));
  EXPECT_EQ(arrays["generated_images"], Json::array({nullptr}));
  const Json openai = json_of(post("/v1/images/generations", R"({"prompt":"x","steps":2,"n":2,"seed":6})"));
  EXPECT_TRUE(openai["data"][1]["b64_json"].is_null());
  EXPECT_EQ(openai["finish_reasons"], Json({nullptr, "content_filter"}));
  const Json webui = json_of(post("/sdapi/v1/txt2img", R"({"steps":2,"batch_size":2,"seed":6})"));
  EXPECT_EQ(webui["images"].size(), 1);
  EXPECT_EQ(Json::parse(webui["info"].get<std::string>())["finish_reasons"], Json({nullptr, "content_filter"}));
  EXPECT_EQ(num_asked_, 7);
}

TEST_F(safety, a_blocked_picture_by_itself_is_400_with_the_reason) {
  EXPECT_THAT(ask(post("/invocations", R"({"inputs":"x","parameters":{)" + of_seed(7) + "}}", kWantsPng)),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr(R"("code":"content_filter")"), Not(HasSubstr("PNG"))));
  EXPECT_THAT(ask(get("/imagine?prompt=x&steps=2&seed=7")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(get("/imagine?prompt=x&steps=2&seed=8")), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\x89PNG")));
}

TEST_F(safety, jobs_and_streams_hold_blocked_pictures_and_previews_back) {
  const Json job = Json::parse(body_of(ask(post("/v1/jobs", R"({"prompt":"x","steps":9,"images":2,"seed":6,"preview_every":1})"))));
  const std::string path = "/v1/jobs/" + job["id"].get<std::string>();
  const std::string events = dechunked(ask(get(path + "/events")));
  EXPECT_THAT(events, AllOf(HasSubstr("event: done"), HasSubstr("content_filter"), Not(HasSubstr("event: preview"))));
  const Json done = json_of(get(path));
  EXPECT_TRUE(done["images"][1].is_null());
  EXPECT_THAT(ask(get(path + "/images/0")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(get(path + "/images/1")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("content_filter")));
  EXPECT_THAT(dechunked(ask(post("/v1/images/generations", R"({"prompt":"x","steps":4,"seed":7,"stream":true,"partial_images":2})"))),
              AllOf(HasSubstr("event: error"), HasSubstr("content_filter"), Not(HasSubstr("partial_image")), Not(HasSubstr("completed"))));
  EXPECT_THAT(dechunked(ask(post("/invocations", R"({"prompt":"x",)" + of_seed(7) + "}", "Accept: text/event-stream\r\n"))),
              AllOf(HasSubstr(R"("generated_images":[null])"), HasSubstr(R"("finish_reasons":["content_filter"])")));
  EXPECT_FALSE(json_of(get("/v1/facts"))["features"]["previews"].get<bool>());
}

TEST_F(safety, without_an_answer_nothing_is_sent) {
  const auto ask_with = [&](const SafetyCheck& check) {
    start_with({.safety_check = check});
    return ask(post("/invocations", R"({"inputs":"x","parameters":{)" + of_seed(1) + "}}"));
  };
  const auto refused = AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("safety checker"), HasSubstr("Retry-After"), Not(HasSubstr("secret")));
  EXPECT_THAT(ask_with([](const std::string&, const std::stop_token&) { return Result<bool>(Status::unavailable("secret")); }), refused);
  EXPECT_THAT(ask_with([](const std::string&, const std::stop_token&) -> Result<bool> { throw std::runtime_error("secret"); }), refused);
}

TEST_F(safety, the_deadline_counts_while_others_are_checked) {
  start_with({.safety_check = [this](const std::string&, const std::stop_token&) {
    clock_.advance(std::chrono::seconds(61));
    return Result<bool>(true);
  }});
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":["x","y"],)" + of_seed(1) + "}", "Accept: application/json;png\r\n")),
              AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("deadline")));
}

/// A checker that heeds nothing until it is let go.
class held_safety : public safety {
 protected:
  void SetUp() override {
    start_with({.safety_check = [this](const std::string&, const std::stop_token&) {
      ++num_begun_;
      let_go_.wait();
      return Result<bool>(true);
    }});
  }
  void TearDown() override {
    if (service_.has_value() && !std::exchange(is_let_go_, true)) {
      may_go_.set_value();
    }
    safety::TearDown();
  }
  std::unique_ptr<ServeClient> asking_once(const std::string& headers = "") const {
    return asking(post("/invocations", R"({"inputs":"x","parameters":{)" + of_seed(1) + "}}", headers));
  }
  double number(const std::string& name) {
    const std::string text = "\n" + metrics_.to_prometheus();
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? 0.0 : std::stod(text.substr(at + name.size() + 2));
  }

  std::atomic<int> num_begun_ = 0;
  std::promise<void> may_go_;
  std::shared_future<void> let_go_ = may_go_.get_future().share();
  bool is_let_go_ = false;
};

TEST_F(held_safety, deadlines_are_told_while_the_checker_is_silent) {
  const auto late = AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("deadline"));
  const std::array checked = {asking_once("X-Darkroom-Deadline: 20\r\n"), asking_once("X-Darkroom-Deadline: 20\r\n")};
  ASSERT_TRUE(await([this] { return num_begun_ == 2; }));  // There are two threads.
  const auto waiting = asking_once("X-Darkroom-Deadline: 10\r\n");
  ASSERT_TRUE(await([this] { return number("darkroom_serve_pictures_total") == 3; }));
  ASSERT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  clock_.advance(std::chrono::seconds(11));
  EXPECT_THAT(waiting->receive_all(), late);
  for (const auto& client : checked) {
    EXPECT_FALSE(client->has_reply());
  }
  clock_.advance(std::chrono::seconds(11));
  for (const auto& client : checked) {
    EXPECT_THAT(client->receive_all(), late);
  }
}

TEST(picture_finish, what_throws_costs_its_pictures_and_is_answered) {
  FakeClock clock;
  PictureFinish finish(
      [](Image& image) {
        if (image.width == 9) {
          throw std::bad_alloc();
        }
      },
      nullptr, clock);
  const auto finished = [&](int width) {
    std::promise<Status> told;
    finish.finish({Image::filled(width, 8, 3)}, Clock::Instant::max(), {},
                  [&](const Result<std::vector<Image>>& images) { told.set_value(images.status()); });
    return told.get_future().get();
  };
  EXPECT_EQ(finished(9).code(), StatusCode::kInternal);
  EXPECT_TRUE(finished(8).is_ok());
}

TEST_F(safety, a_stop_answers_those_whose_pictures_are_checked) {
  std::promise<void> begun;
  start_with({.safety_check = [&](const std::string&, const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any changed;
    std::unique_lock lock(mutex);
    begun.set_value();
    changed.wait(lock, stop, [] { return false; });
    return Result<bool>(Status::unavailable("stopped"));
  }});
  const auto checked = asking(post("/invocations", R"({"inputs":"x","parameters":{)" + of_seed(1) + "}}"));
  begun.get_future().wait();
  drain({.server = *server_, .service = *service_, .batcher = *batcher_},
        {.patience = std::chrono::milliseconds(0), .last_words = std::chrono::minutes(1)});
  server_.reset();  // Who has no answer by now gets none.
  EXPECT_THAT(checked->receive_all(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After"), HasSubstr("shutting down")));
}

TEST_F(safety, every_reply_has_its_finish_reasons_without_a_checker_too) {
  start({});
  EXPECT_EQ(json_of(post("/v1/images/generations", R"({"prompt":"x","steps":2})"))["finish_reasons"], Json::array({nullptr}));
}

TEST_F(safety, pictures_are_marked_where_that_is_asked_for) {
  const std::string request = post("/v1/images/generations", R"({"prompt":"x","steps":2,"seed":99,"size":"128x128"})");
  const auto reading = [&] {
    const std::string png = decode_base64(json_of(request)["data"][0]["b64_json"].get<std::string>()).value();
    return read_watermark(decode_image(std::as_bytes(std::span(png)), kAnySize).value());
  };
  start_with({});
  EXPECT_FALSE(reading().is_marked);
  start_with({.has_watermark = true});
  EXPECT_TRUE(reading().is_marked);
}

}  // namespace
}  // namespace darkroom
