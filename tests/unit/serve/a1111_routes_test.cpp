#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "darkroom/core/base64.h"
#include "darkroom/image/png.h"
#include "darkroom/serve/drain.h"
#include "darkroom/serve/painting_service.h"
#include "darkroom/serve/png_settings.h"
#include "darkroom/web/metrics_server.h"
#include "serve_client.h"
#include "stub_engine.h"

// A1111's routes, OpenAI's edits, jobs that start from a picture and /imagine over a stub that paints at once.
namespace darkroom {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kWebuiKey = "a-key-of-at-least-16";

std::string input_png(uint8_t value = 42, int side = 8) { return encode_png(Image::filled(side, side, 3, value)); }

std::string body_of(const std::string& reply) { return reply.substr(std::min(reply.size(), reply.find("\r\n\r\n") + 4)); }

nlohmann::json json_of(const std::string& reply) {
  EXPECT_THAT(reply, StartsWith("HTTP/1.1 200"));
  return nlohmann::json::parse(body_of(reply), nullptr, /*allow_exceptions=*/false);
}

std::string picture_of(const nlohmann::json& reply, const char* list = "images") {
  return decode_base64(reply.at(list).at(0).get<std::string>()).value();
}

PaintingServiceOptions with_settings(PngSettings settings) {
  PaintingServiceOptions options;
  options.png_settings = settings;
  return options;
}

class webui_routes : public testing::Test {
 protected:
  void SetUp() override { start({}); }
  void TearDown() override {
    engine_.release();
    server_.reset();
    intake_.reset();
    batcher_.reset();
  }
  void start(PaintingServiceOptions options, bool has_intake = true, PictureIntakeOptions intake = {}) {
    TearDown();
    batcher_.emplace(engine_, StepBatcherOptions{.max_batch = 4}, metrics_, clock_);
    intake_.emplace(intake, open_decoder_, clock_);
    options.model = {.name = "stub", .native_size = 8, .size_multiple = 8, .samplers = {"ddim", "euler_a"}, .default_sampler = "ddim"};
    options.intake = has_intake ? &*intake_ : nullptr;
    service_.emplace(std::move(options), *batcher_, metrics_, clock_);
    server_ = HttpServer::start(*service_, {.address = parse_metrics_address("0").value(), .max_body_bytes = kMaxPictureBodyBytes}).value();
  }
  /// A connection that has sent a request. A test that fails meanwhile closes it instead of waiting for the reply.
  std::unique_ptr<ServeClient> asking(const std::string& request) const {
    auto client = std::make_unique<ServeClient>(server_->address());
    client->send_text(request);
    return client;
  }
  std::string ask(const std::string& request) const { return asking(request)->receive_all(); }
  std::string img2img(const std::string& picture, const std::string& more = "") const {
    return ask(post("/sdapi/v1/img2img", R"({"steps":4,"prompt":"x","init_images":[")" + picture + "\"]" + more + "}"));
  }

  FakeClock clock_;
  MetricsRegistry metrics_;
  StubEngine engine_{clock_};
  std::optional<StepBatcher> batcher_;
  PictureIntake::OpenDecoder open_decoder_ = [](const std::stop_token&) {
    return Result<std::unique_ptr<PictureDecoder>>(decoder_in_process());
  };
  std::optional<PictureIntake> intake_;
  std::optional<PaintingService> service_;
  std::unique_ptr<HttpServer> server_;
};

std::string edit_form(const std::string& picture, const std::string& fields = "") {
  const std::string body = "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n\r\n" + picture +
                           "\r\n--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\nx\r\n" + fields + "--b--\r\n";
  return "POST /v1/images/edits HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: multipart/form-data; boundary=b\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

TEST_F(webui_routes, text_to_image_replies_as_webui_does) {
  const nlohmann::json reply =
      json_of(ask(post("/sdapi/v1/txt2img", R"json({"prompt":"a (cat:1.2)","steps":2,"seed":7,"batch_size":2})json")));
  ASSERT_EQ(reply["images"].size(), 2U);
  EXPECT_EQ(reply["parameters"]["seed"], 7);
  const nlohmann::json info = nlohmann::json::parse(reply["info"].get<std::string>());
  EXPECT_EQ(info["all_seeds"], (nlohmann::json{7, 8}));
  const nlohmann::json settings = json_of(ask(post("/sdapi/v1/png-info", nlohmann::json{{"image", reply["images"][0]}}.dump())));
  EXPECT_EQ(settings["info"], info["infotexts"][0]);
  EXPECT_EQ(settings["parameters"]["Prompt"], "a (cat:1.2)");
  EXPECT_EQ(settings["parameters"]["Sampler"], "DDIM");
}

TEST_F(webui_routes, image_to_image_starts_from_the_picture) {
  const std::string text = encode_base64(input_png());
  for (const std::string& picture : {text, "data:image/png;base64," + text}) {
    const nlohmann::json reply = json_of(img2img(picture, R"(,"denoising_strength":0.5)"));
    EXPECT_EQ(encode_png(Image::filled(8, 8, 3, 42)).substr(0, 8), picture_of(reply).substr(0, 8));
    EXPECT_THAT(picture_of(reply), HasSubstr("Denoising strength: 0.5"));
  }
  EXPECT_EQ(engine_.calls().size(), 4U);  // Half of the steps of each.
  start(with_settings(PngSettings::kOff));
  EXPECT_EQ(picture_of(json_of(img2img(text))), input_png());  // What the stub starts from is what it shows.
}

TEST_F(webui_routes, invocations_start_from_a_picture) {
  const std::string picture = encode_base64(input_png());
  const auto body = [&](size_t num_spaces) {
    return R"({"prompt":"x","num_inference_steps":4,"strength":0.5,"image":")" + picture + "\"" + std::string(num_spaces, ' ') + "}";
  };
  for (const size_t num_spaces : {size_t{0}, size_t{3'000'000}}) {  // Read at once, and by the intake.
    const nlohmann::json reply = json_of(ask(post("/invocations", body(num_spaces), "Accept: application/json;png\r\n")));
    EXPECT_EQ(picture_of(reply, "generated_images"), input_png());
  }
  EXPECT_EQ(engine_.calls().size(), 4U);  // Half of the steps of each.
  const std::string streamed = ask(post("/", body(0), "Accept: text/event-stream\r\n"));
  EXPECT_THAT(streamed, AllOf(HasSubstr("event: done"), HasSubstr("\"steps\":2")));
  const std::string parameters = R"({"inputs":"x","parameters":{"num_inference_steps":4,"image":")" + picture + "\"}}";
  EXPECT_EQ(picture_of(json_of(ask(post("/invocations", parameters))), "generated_images"), input_png());
  const std::string picture_form = R"({"inputs":")" + picture + R"(","parameters":{"prompt":"x","num_inference_steps":4}})";
  EXPECT_EQ(body_of(ask(post("/", picture_form))), input_png());
  EXPECT_EQ(json_of(ask(post("/invocations", picture_form)))["prompt"], "x");
  EXPECT_THAT(ask(post("/", R"({"inputs":"%%%%","parameters":{"prompt":"x"}})")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("inputs must be")));
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"x","image":"%%%%"})")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("image must be")));
  const auto of_bytes = [](size_t num_bytes) {
    return "POST /invocations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nExpect: "
           "100-continue\r\n"
           "Content-Length: " +
           std::to_string(num_bytes) + "\r\n\r\n";
  };
  EXPECT_THAT(asking(of_bytes(kMaxPictureBodyBytes))->receive_until("\r\n\r\n"), HasSubstr("100 Continue"));
  EXPECT_THAT(ask(of_bytes(kMaxPictureBodyBytes + 1)), StartsWith("HTTP/1.1 413"));
}

/// Decodes once it may; ends as a sandbox does where a stop is asked for before.
class HeldDecoder final : public PictureDecoder {
 public:
  struct Hold {
    std::mutex mutex;
    std::condition_variable_any changed;
    int num_begun = 0;  // Guarded by mutex, as is what follows.
    bool is_let_go = false;
    void let_go() {
      const std::lock_guard lock(mutex);
      is_let_go = true;
      changed.notify_all();
    }
    void await_begun() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return num_begun > 0; });
    }
  };
  HeldDecoder(Hold& hold, std::stop_token stop) : hold_(hold), stop_(std::move(stop)) {}

  Result<RowResult<ImageHeader>> check(std::span<const std::byte> bytes, const ImageLimits& limits) override {
    return decoder_->check(bytes, limits);
  }
  Result<RowResult<DecodedSize>> transform(std::span<const std::byte> bytes, const TransformOptions& options, const ImageLimits& limits,
                                           const CropDraw& draw, std::span<uint8_t> pixels) override {
    return decoder_->transform(bytes, options, limits, draw, pixels);
  }
  Result<RowResult<DecodedSize>> resize_to(std::span<const std::byte> bytes, const DecodedSize& size, const ImageLimits& limits,
                                           std::span<uint8_t> pixels) override {
    {
      std::unique_lock lock(hold_.mutex);
      ++hold_.num_begun;
      hold_.changed.notify_all();
      if (!hold_.changed.wait(lock, stop_, [this] { return hold_.is_let_go; })) {
        return Status::cancelled("stopped while a picture was decoded");
      }
    }
    return decoder_->resize_to(bytes, size, limits, pixels);
  }

 private:
  Hold& hold_;
  const std::stop_token stop_;
  const std::unique_ptr<PictureDecoder> decoder_ = decoder_in_process();
};

class held_pictures : public webui_routes {
 protected:
  void SetUp() override {
    open_decoder_ = [this](const std::stop_token& stop) {
      return Result<std::unique_ptr<PictureDecoder>>(std::make_unique<HeldDecoder>(hold_, stop));
    };
    start({}, true, {.num_threads = 1});
    hold_.is_let_go = false;                                 // start() tears down what was there before.
    for (std::unique_ptr<ServeClient>& client : clients_) {  // The picture of one is decoded, that of the other waits.
      client = asking(post("/invocations", R"({"prompt":"x","image":")" + encode_base64(input_png()) + R"("})"));
      hold_.await_begun();
    }
    while (intake_->num_waiting() == 0) {
      ask(get("/ping"));
    }
  }
  void TearDown() override {
    hold_.let_go();
    webui_routes::TearDown();
  }

  HeldDecoder::Hold hold_;
  std::array<std::unique_ptr<ServeClient>, 2> clients_;
};

TEST_F(held_pictures, that_wait_are_not_decoded_once_the_server_takes_no_more_orders) {
  batcher_->drain();
  hold_.let_go();
  for (const auto& client : clients_) {
    EXPECT_THAT(client->receive_all(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("shutting down"), HasSubstr("Retry-After")));
  }
  EXPECT_EQ(hold_.num_begun, 1);
}

TEST_F(held_pictures, are_answered_for_at_the_end_of_a_drain) {
  drain({.server = *server_, .service = *service_, .batcher = *batcher_, .intake = &*intake_},
        {.patience = std::chrono::milliseconds(0), .last_words = std::chrono::minutes(1)});
  server_.reset();  // Who has no answer by now gets none.
  for (const auto& client : clients_) {
    EXPECT_THAT(client->receive_all(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("shutting down"), HasSubstr("Retry-After")));
  }
}

TEST_F(webui_routes, a_picture_that_cannot_be_read_costs_its_request_only) {
  std::string bomb = input_png();
  bomb.replace(16, 8, std::string("\0\0\xFF\xFF\0\0\xFF\xFF", 8));  // 65,535 x 65,535
  for (const std::string& picture : {encode_base64("no picture"), encode_base64(bomb), std::string("AAA="), std::string("%%%%"),
                                     std::string("http://127.0.0.1/a.png"), std::string()}) {
    EXPECT_THAT(img2img(picture), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("\"detail\":\"init_images[0]"))) << picture;
  }
  EXPECT_THAT(img2img(encode_base64(input_png())), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(batcher_->num_pictures(), 1);
}

TEST_F(webui_routes, requests_with_pictures_need_a_decoder) {
  start({}, /*has_intake=*/false);
  EXPECT_THAT(img2img(encode_base64(input_png())), AllOf(StartsWith("HTTP/1.1 501"), HasSubstr("decoder")));
  EXPECT_THAT(ask(edit_form(input_png())), StartsWith("HTTP/1.1 501"));
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"x","image":"AAAA"})")), StartsWith("HTTP/1.1 501"));
  EXPECT_THAT(ask(post("/sdapi/v1/txt2img", R"({"steps":1})")), StartsWith("HTTP/1.1 200"));
}

TEST_F(webui_routes, pictures_wait_in_bounded_room) {
  start({}, true, {.num_threads = 1, .max_waiting = 1, .max_waiting_bytes = 100});
  EXPECT_THAT(img2img(encode_base64(input_png())), AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("Retry-After")));
}

// The request itself is read once, and its body let go: only the picture takes room where it waits.
TEST_F(webui_routes, a_short_job_waits_with_nothing_but_its_picture) {
  start({}, true, {.num_threads = 1, .max_waiting = 1, .max_waiting_bytes = 1000});
  const auto job = [](const std::string& picture, size_t num_spaces) {
    return post("/v1/jobs", R"({"prompt":"x","steps":4,"init_image":")" + picture + "\"" + std::string(num_spaces, ' ') + "}");
  };
  EXPECT_THAT(ask(job(encode_base64(input_png()), 100'000)), StartsWith("HTTP/1.1 202"));
  EXPECT_THAT(ask(job(std::string(1001, 'A'), 0)), AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("Retry-After")));
  EXPECT_THAT(ask(job("%%%%", 0)), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("init_image")));
  EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"x","init_image":"AAAA"})", "X-Darkroom-Deadline: soon\r\n")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("soon")));
}

TEST_F(webui_routes, waiting_to_be_read_counts_against_the_deadline) {
  start({}, true, {.num_threads = 1});
  std::promise<void> held;
  ASSERT_TRUE(intake_->post(1, {}, [&](PictureIntake::Desk&) { held.get_future().wait(); }).is_ok());
  while (intake_->num_waiting() > 0) {
    std::this_thread::yield();
  }
  const std::string body = R"({"init_images":[")" + encode_base64(input_png()) + R"("],"steps":2})";
  const auto late = asking(post("/sdapi/v1/img2img", body, "X-Darkroom-Deadline: 1\r\n"));
  while (intake_->num_waiting() == 0) {
    std::this_thread::yield();
  }
  clock_.advance(std::chrono::seconds(2));
  held.set_value();
  EXPECT_THAT(late->receive_all(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("deadline")));
  EXPECT_TRUE(engine_.calls().empty());
  EXPECT_THAT(ask(post("/sdapi/v1/img2img", body, "X-Darkroom-Deadline: soon\r\n")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("soon")));
}

TEST_F(held_pictures, deadlines_are_told_while_the_decoders_are_busy) {
  clock_.advance(std::chrono::minutes(2));
  for (const auto& client : clients_) {
    EXPECT_THAT(client->receive_all(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("deadline"), HasSubstr("Retry-After")));
  }
  EXPECT_EQ(intake_->num_waiting(), 0U);
}

TEST_F(held_pictures, a_long_body_is_read_beside_the_connections) {
  const size_t num_before = intake_->num_waiting();
  const auto waiting = asking(post("/invocations", R"({"prompt":"x"})" + std::string(300'000, ' ')));
  while (intake_->num_waiting() == num_before && !waiting->has_reply()) {
    ask(get("/ping"));
  }
  EXPECT_FALSE(waiting->has_reply());
  hold_.let_go();
  EXPECT_THAT(waiting->receive_all(), StartsWith("HTTP/1.1 200"));
}

TEST_F(webui_routes, the_longest_texts_are_taken_however_they_are_written) {
  std::string text;
  for (int i = 0; i < 10'000; ++i) {
    text += "\\u0041";
  }
  const std::string texts = "\"" + text + R"(","negative_prompt":")" + text + "\"";
  std::string list = "\"" + text + "\"";
  for (int i = 1; i < 10; ++i) {
    list += ",\"" + text + "\"";
  }
  for (const bool has_intake : {true, false}) {
    start({}, has_intake);
    EXPECT_THAT(ask(post("/sdapi/v1/txt2img", R"({"steps":1,"prompt":)" + texts + "}")), StartsWith("HTTP/1.1 200"));
    EXPECT_THAT(ask(post("/v1/images/generations", R"({"steps":1,"prompt":)" + texts + "}")), StartsWith("HTTP/1.1 200"));
    const std::string lists = R"({"num_inference_steps":1,"prompt":[)" + list + R"(],"negative_prompt":[)" + list + "]}";
    EXPECT_THAT(ask(post("/invocations", lists, "Accept: application/json;png\r\n")), StartsWith("HTTP/1.1 200")) << has_intake;
  }
}

TEST_F(webui_routes, bodies_with_pictures_may_be_longer_than_others) {
  const std::string long_text(3'000'000, 'A');
  EXPECT_THAT(ask(post("/sdapi/v1/txt2img", R"({"prompt":")" + long_text + "\"}")), StartsWith("HTTP/1.1 413"));
  EXPECT_THAT(img2img(long_text), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask("POST /sdapi/v1/img2img HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  "Content-Length: 16000001\r\n\r\n"),
              StartsWith("HTTP/1.1 413"));
}

TEST_F(webui_routes, a_bad_request_is_told_in_webuis_words_too) {
  EXPECT_THAT(ask(post("/sdapi/v1/txt2img", R"({"enable_hr":true})")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("\"detail\":\"enable_hr")));
  EXPECT_THAT(ask(post("/sdapi/v1/txt2img", R"({"prompt":"refused"})")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("\"detail\":\"the stub")));
  EXPECT_THAT(ask(post("/sdapi/v1/txt2img", R"({"prompt":"step throws"})")), AllOf(StartsWith("HTTP/1.1 500"), Not(HasSubstr("planted"))));
  EXPECT_THAT(ask(post("/sdapi/v1/png-info", R"({"image":"AAAA"})")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("image must be a PNG")));
  EXPECT_THAT(ask(post("/sdapi/v1/png-info", R"({})")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("image must be a picture")));
  EXPECT_THAT(ask(post("/sdapi/v1/png-info", R"({"image":"https://example.com/a.png"})")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(get("/sdapi/v1/txt2img")), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(ask("POST /sdapi/v1/img2img HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 415"));
}

TEST_F(webui_routes, tells_what_there_is) {
  EXPECT_EQ(json_of(ask(get("/sdapi/v1/samplers")))[0]["name"], "Euler a");
  EXPECT_EQ(json_of(ask(get("/sdapi/v1/schedulers")))[0]["name"], "automatic");
  EXPECT_EQ(json_of(ask(get("/sdapi/v1/sd-models")))[0]["title"], "stub");
  EXPECT_EQ(json_of(ask(get("/sdapi/v1/options")))["sd_model_checkpoint"], "stub");
  EXPECT_EQ(json_of(ask(get("/sdapi/v1/cmd-flags")))["api"], true);
  EXPECT_GT(json_of(ask(get("/sdapi/v1/memory")))["ram"]["total"], 0);
  EXPECT_EQ(json_of(ask(get("/sdapi/v1/scripts")))["txt2img"], nlohmann::json::array());
  EXPECT_EQ(json_of(ask(get("/sdapi/v1/loras"))), nlohmann::json::array());
}

TEST_F(webui_routes, options_are_taken_at_their_values_only) {
  EXPECT_EQ(body_of(ask(post("/sdapi/v1/options", R"({"sd_model_checkpoint":"stub","enable_pnginfo":true})"))), "null\n");
  EXPECT_THAT(ask(post("/sdapi/v1/options", R"({"sd_model_checkpoint":"other"})")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("sd_model_checkpoint")));
  EXPECT_THAT(ask(post("/sdapi/v1/options", R"({"x":1})")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("such option: x")));
  EXPECT_THAT(ask(post("/sdapi/v1/options", "[]")), StartsWith("HTTP/1.1 400"));
}

TEST_F(webui_routes, progress_is_that_of_the_oldest_request_which_can_be_interrupted) {
  nlohmann::json progress = json_of(ask(get("/sdapi/v1/progress")));
  EXPECT_EQ(progress["progress"], 0.0);
  EXPECT_EQ(progress["state"]["job_count"], 0);
  EXPECT_EQ(json_of(ask(post("/sdapi/v1/interrupt", ""))), nlohmann::json::object());  // There is nothing.
  engine_.hold_at(4);
  const auto asked = asking(post("/sdapi/v1/txt2img", R"({"steps":10,"prompt":"x"})"));
  ASSERT_TRUE(engine_.await_calls(5));
  progress = json_of(ask(get("/sdapi/v1/progress")));
  EXPECT_DOUBLE_EQ(progress["progress"].get<double>(), 0.4);
  EXPECT_EQ(progress["state"]["sampling_step"], 4);
  EXPECT_GT(progress["eta_relative"], 0.0);
  EXPECT_EQ(progress["state"]["job_count"], 1);
  EXPECT_EQ(progress["state"]["sampling_steps"], 10);
  EXPECT_EQ(progress["current_image"], nullptr);
  EXPECT_EQ(json_of(ask(post("/sdapi/v1/interrupt", ""))), nlohmann::json::object());
  EXPECT_EQ(json_of(ask(get("/sdapi/v1/progress")))["state"]["interrupted"], true);
  engine_.release();
  EXPECT_THAT(asked->receive_all(), AllOf(StartsWith("HTTP/1.1 409"), HasSubstr("interrupted")));
  EXPECT_EQ(engine_.calls().size(), 5U);
  EXPECT_EQ(json_of(ask(get("/sdapi/v1/progress")))["state"]["job_count"], 0);
}

TEST_F(webui_routes, progress_shows_the_picture_as_it_comes_once_somebody_looks) {
  engine_.hold_at(10);
  const auto asked = asking(post("/sdapi/v1/txt2img", R"({"steps":35,"prompt":"x"})"));
  ASSERT_TRUE(engine_.await_calls(11));
  const auto shown = [this](const char* query = "") {
    return json_of(ask(get(std::string("/sdapi/v1/progress") + query)))["current_image"];
  };
  EXPECT_EQ(shown("?skip_current_image=true"), nullptr);
  engine_.hold_at(20);
  ASSERT_TRUE(engine_.await_calls(21));
  EXPECT_EQ(shown(), nullptr);  // Nobody has looked before: neither after 10 steps nor after 20 there was a preview.
  engine_.hold_at(30);
  ASSERT_TRUE(engine_.await_calls(31));
  EXPECT_EQ(shown(), encode_base64(encode_png(Image::filled(1, 1, 3, 5))));  // With five calls to go.
  EXPECT_EQ(shown("?skip_current_image=true"), nullptr);
  engine_.release();
  EXPECT_THAT(asked->receive_all(), StartsWith("HTTP/1.1 200"));
}

TEST_F(webui_routes, progress_and_interrupt_are_of_the_requests_of_their_key) {
  PaintingServiceOptions options;
  options.keys = AccessKeys::parse(std::string(kWebuiKey) + "\nanother-key-of-at-least-16", "keys").value();
  start(std::move(options));
  const std::string mine = "Authorization: Bearer " + std::string(kWebuiKey) + "\r\n";
  const std::string basic = "Authorization: Basic " + encode_base64("me:" + std::string(kWebuiKey)) + "\r\n";
  const std::string others = "Authorization: Bearer another-key-of-at-least-16\r\n";
  engine_.hold_at(4);
  const auto asked = asking(post("/sdapi/v1/txt2img", R"({"steps":10,"prompt":"x"})", mine));
  ASSERT_TRUE(engine_.await_calls(5));
  EXPECT_EQ(json_of(ask(post("/sdapi/v1/interrupt", "", others))), nlohmann::json::object());
  const nlohmann::json seen = json_of(ask(get("/sdapi/v1/progress", others)));
  EXPECT_EQ(seen["progress"], 0.0);
  EXPECT_EQ(seen["state"]["job_count"], 0);
  EXPECT_EQ(json_of(ask(get("/sdapi/v1/progress", mine)))["state"]["interrupted"], false);
  EXPECT_EQ(json_of(ask(post("/sdapi/v1/interrupt", "", basic))), nlohmann::json::object());
  engine_.release();
  EXPECT_THAT(asked->receive_all(), StartsWith("HTTP/1.1 409"));
}

TEST_F(webui_routes, skip_is_interrupt_and_other_protocols_are_not_interrupted) {
  engine_.hold_at(0);
  const auto other = asking(post("/invocations", R"({"inputs":"y","parameters":{"num_inference_steps":2}})"));
  ASSERT_TRUE(engine_.await_calls(1));
  EXPECT_EQ(json_of(ask(post("/sdapi/v1/skip", ""))), nlohmann::json::object());
  engine_.release();
  EXPECT_THAT(other->receive_all(), StartsWith("HTTP/1.1 200"));
}

TEST_F(webui_routes, settings_go_into_the_pngs_that_are_meant) {
  const std::string native = R"({"inputs":"secret","parameters":{"num_inference_steps":1}})";
  const std::string webui = R"({"prompt":"secret","steps":1})";
  const std::string openai = R"({"prompt":"secret","stream":true,"steps":1})";
  const auto last_picture = [](const std::string& events, const std::string& field) {
    const nlohmann::json end =
        nlohmann::json::parse(events.substr(events.rfind("data: ") + 6, events.rfind('}') + 1 - events.rfind("data: ") - 6));
    return decode_base64((field == "b64_json" ? end.at(field) : end.at(field).at(0)).get<std::string>()).value();
  };
  const auto picture_of_a_job = [this] {
    const std::string id = nlohmann::json::parse(body_of(ask(post("/v1/jobs", R"({"prompt":"secret","steps":1})")))).at("id");
    EXPECT_TRUE(batcher_->await_idle(std::chrono::seconds(60)));
    return body_of(ask(get("/v1/jobs/" + id + "/images/0")));
  };
  for (const auto& [settings, of_native, of_webui] :
       {std::tuple(PngSettings::kWebui, false, true), std::tuple(PngSettings::kOn, true, true),
        std::tuple(PngSettings::kOff, false, false)}) {
    start(with_settings(settings));
    EXPECT_EQ(body_of(ask(post("/invocations", native, kWantsPng))).find("secret") != std::string::npos, of_native);
    EXPECT_EQ(picture_of(json_of(ask(post("/sdapi/v1/txt2img", webui)))).find("secret") != std::string::npos, of_webui);
    EXPECT_EQ(json_of(ask(get("/sdapi/v1/options")))["enable_pnginfo"], settings != PngSettings::kOff);
    for (const std::string& streamed :
         {last_picture(ask(post("/invocations", native, "Accept: text/event-stream\r\n")), "generated_images"),
          last_picture(ask(post("/v1/images/generations", openai)), "b64_json"), picture_of_a_job()}) {
      EXPECT_THAT(streamed, StartsWith("\x89PNG"));
      EXPECT_EQ(streamed.find("secret") != std::string::npos, of_native);
    }
  }
}

TEST_F(webui_routes, a_key_may_be_the_password_of_http_basic) {
  PaintingServiceOptions options;
  options.keys = AccessKeys::parse(kWebuiKey, "keys").value();
  start(std::move(options));
  const auto models = [&](const std::string& authorization) { return ask(get("/sdapi/v1/sd-models", authorization)); };
  EXPECT_THAT(models(""), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(models("Authorization: Basic " + encode_base64("anybody:" + std::string(kWebuiKey)) + "\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(models("Authorization: basic " + encode_base64(":" + std::string(kWebuiKey)) + "\r\n"), StartsWith("HTTP/1.1 200"));
  for (const std::string& pair :
       {std::string(kWebuiKey), std::string(kWebuiKey) + ":x", "a:" + std::string(kWebuiKey) + "x", std::string(":")}) {
    EXPECT_THAT(models("Authorization: Basic " + encode_base64(pair) + "\r\n"), StartsWith("HTTP/1.1 401")) << pair;
  }
  EXPECT_THAT(models("Authorization: Basic " + std::string(kWebuiKey) + "\r\n"), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(img2img(encode_base64(input_png())), StartsWith("HTTP/1.1 401"));
}

TEST_F(webui_routes, edits_start_from_the_picture_of_a_form_or_of_json) {
  const auto edited = [&](const std::string& request) {
    const nlohmann::json reply = json_of(ask(request));
    return decode_base64(reply.at("data").at(0).at("b64_json").get<std::string>()).value();
  };
  EXPECT_EQ(edited(edit_form(input_png())), input_png());
  EXPECT_EQ(edited(post("/v1/images/edits", R"({"prompt":"x","image":")" + encode_base64(input_png()) + "\"}")), input_png());
  EXPECT_EQ(edited(edit_form(input_png(9, 32))), input_png(9));  // Resized to the model's size.
}

TEST_F(webui_routes, edits_stream_as_generations_do) {
  const std::string fields = R"({"prompt":"x","steps":8,"strength":0.5,"stream":true,"partial_images":1,"image":")";
  engine_.hold_at(2);  // After the call that is shown.
  const ServeClient client(server_->address());
  client.send_text(post("/v1/images/edits", fields + encode_base64(input_png()) + "\"}"));
  std::string reply = client.receive_until(R"("type":"image_edit.partial_image"})");
  engine_.release();
  reply += client.receive_all();
  const std::string events = dechunked(reply);
  EXPECT_THAT(events, AllOf(HasSubstr("event: image_edit.partial_image"), HasSubstr(R"("partial_image_index":0)"),
                            HasSubstr("event: image_edit.completed"), HasSubstr(encode_base64(input_png())), Not(HasSubstr("generation"))));
  EXPECT_EQ(events.find("partial_image\n"), events.rfind("partial_image\n"));  // Of the four steps that are taken one.
  EXPECT_EQ(engine_.calls().size(), 4U);
  EXPECT_THAT(ask(edit_form(input_png(), "--b\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n")),
              AllOf(HasSubstr("Content-Type: text/event-stream"), HasSubstr("image_edit.completed")));
  EXPECT_THAT(ask(edit_form(input_png(), "--b\r\nContent-Disposition: form-data; name=\"partial_images\"\r\n\r\n1\r\n")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("partial_images come in streams")));
}

TEST_F(webui_routes, edits_name_what_is_wrong) {
  EXPECT_THAT(ask(edit_form("no picture")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("image is no JPEG")));
  EXPECT_THAT(ask(edit_form(input_png(), "--b\r\nContent-Disposition: form-data; name=\"mask\"; filename=x\r\n\r\n\r\n")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("mask")));
  EXPECT_THAT(ask(edit_form(input_png(), "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ndall-e-2\r\n")),
              StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask("POST /v1/images/edits HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: "
                  "0\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 415"), HasSubstr("multipart/form-data or application/json")));
  EXPECT_THAT(ask("POST /v1/images/edits HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: multipart/form-data\r\n"
                  "Content-Length: 0\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("boundary")));
}

TEST_F(webui_routes, jobs_start_from_a_picture) {
  const std::string text = encode_base64(input_png());
  const std::string long_text = encode_base64(input_png() + std::string(1'600'000, '\0'));  // A body above what is read at once.
  for (const std::string& picture : {text, "data:image/png;base64," + text, long_text}) {
    const std::string taken =
        ask(post("/v1/jobs", R"({"prompt":"x","steps":4,"strength":0.5,"init_image":")" + picture + R"(","preview_every":1})"));
    ASSERT_THAT(taken, StartsWith("HTTP/1.1 202"));
    const std::string path = "/v1/jobs/" + nlohmann::json::parse(body_of(taken))["id"].get<std::string>();
    EXPECT_THAT(ask(get(path + "/events")), AllOf(HasSubstr("event: done"), HasSubstr(R"("step":2,"steps":2})")));
    EXPECT_EQ(body_of(ask(get(path + "/images/0"))), input_png());  // What the stub starts from is what it shows.
    const nlohmann::json asked = json_of(ask(get(path)))["request"];
    EXPECT_EQ(asked["strength"], 0.5);
    EXPECT_FALSE(asked.contains("init_image"));  // It may be long.
  }
  EXPECT_EQ(engine_.calls().size(), 6U);  // Half of the steps of each.
  EXPECT_TRUE(json_of(ask(get("/v1/facts")))["features"]["image_to_image"].get<bool>());
  for (const std::string& picture : {encode_base64("no picture"), std::string("%%%%"), std::string()}) {
    EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"x","init_image":")" + picture + "\"}")),
                AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("\"message\":\"init_image")))
        << picture;
  }
}

TEST_F(webui_routes, imagine_paints_what_its_query_says) {
  EXPECT_THAT(ask(get("/imagine?prompt=a%20cat&img_size=16&steps=1")),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Content-Type: image/png"), HasSubstr("\x89PNG")));
  EXPECT_EQ(engine_.calls().front().prompts.front(), "a cat");
  EXPECT_THAT(ask(get("/imagine")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("prompt")));
  EXPECT_THAT(ask(get("/imagine?prompt=%zz")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(get("/imagine?prompt=x&img_size=9")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("img_size")));
  for (const char* site : {"cross-site", "same-site"}) {
    EXPECT_THAT(ask(get("/imagine?prompt=x", "Sec-Fetch-Site: " + std::string(site) + "\r\n")), StartsWith("HTTP/1.1 403")) << site;
  }
  EXPECT_THAT(ask(get("/imagine?prompt=x&steps=1", "Sec-Fetch-Site: same-origin\r\n")), StartsWith("HTTP/1.1 200"));
}

}  // namespace
}  // namespace darkroom
