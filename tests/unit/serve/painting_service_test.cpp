#include "darkroom/serve/painting_service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "serve/picture_orders.h"
#include "served_stub.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::UnorderedElementsAre;

std::string ascii_upper(std::string text) {
  for (char& c : text) {
    c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return text;
}

class painting_service : public ServedStub {};

TEST_F(painting_service, paints_by_each_protocol) {
  const std::string inputs = R"({"inputs":"x","parameters":{"seed":3,"num_inference_steps":2}})";
  for (const std::string& request : {post("/invocations", inputs, kWantsPng), post("/", inputs), post("/", inputs, "Accept: */*\r\n")}) {
    EXPECT_THAT(ask(request),
                AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("image/png"), HasSubstr("X-Darkroom-Seed: 3"), HasSubstr("\x89PNG")))
        << request;
  }
  for (const char* accept : {"", "Accept: */*\r\n"}) {
    EXPECT_THAT(ask(post("/invocations", inputs, accept)),
                AllOf(StartsWith("HTTP/1.1 200"), HasSubstr(R"({"generated_images":["iVBOR)"), HasSubstr(R"("prompt":"x","seed":3,)")));
  }
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"x","seed":3,"num_inference_steps":2})")),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr(R"({"generated_images":[[[[3,3,3],)")));
  EXPECT_THAT(ask(post("/v1/images/generations", R"({"prompt":"x","n":2,"steps":2})")),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr(R"("data":[{"b64_json":"iVBOR)")));
}

TEST_F(painting_service, takes_a_prompt_alone_as_jumpstart_does) {
  const auto text_of = [](const std::string& path, const std::string& body, const std::string& headers = "") {
    return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: Application/X-Text\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
  };
  EXPECT_THAT(ask(text_of("/invocations", R"({"model":"x"})")),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr(R"({"generated_image":[[[)"), HasSubstr(R"("prompt":"{\"model\":\"x\"}")")));
  EXPECT_THAT(ask(text_of("/invocations", "x", "Accept: application/json;jpeg\r\n")),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr(R"({"generated_image":"/9j/)")));
  EXPECT_THAT(ask(text_of("/invocations", "x", kWantsPng)), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\x89PNG")));
  for (const std::string& body : {std::string(), std::string("\xFF"), std::string(10'001, 'x')}) {
    EXPECT_THAT(ask(text_of("/invocations", body)), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("application/x-text"))) << body.size();
  }
  EXPECT_THAT(ask(text_of("/v1/images/generations", "x")), StartsWith("HTTP/1.1 415"));
}

TEST_F(painting_service, says_how_long_a_picture_took) {
  const auto at = [](int64_t ms) { return Clock::Instant(milliseconds(ms)); };
  EXPECT_EQ(painting_line(1, {.begun = at(5), .ordered = at(8), .painted = at(108)}, at(110)),
            "serve: 1 picture: pre 3 ms, predict 100 ms, post 2 ms");
  EXPECT_THAT(painting_line(2, {}, at(0)), StartsWith("serve: 2 pictures: "));
  testing::internal::CaptureStderr();
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"secret","num_inference_steps":7})")), StartsWith("HTTP/1.1 200"));
  server_.reset();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("serve: 1 picture: pre 0 ms, predict 70 ms, post 0 ms"), Not(HasSubstr("secret"))));
}

TEST_F(painting_service, says_how_long_a_picture_took_that_is_streamed_or_a_job) {
  testing::internal::CaptureStderr();
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"secret","num_inference_steps":7})", "Accept: text/event-stream\r\n")),
              HasSubstr("event: done"));
  EXPECT_THAT(ask(post("/v1/images/generations", R"({"prompt":"secret","steps":8,"stream":true})")), HasSubstr("completed"));
  const std::string taken = ask(post("/v1/jobs", R"({"prompt":"secret","steps":9,"images":2})"));
  const std::string id = nlohmann::json::parse(body_of(taken))["id"];
  EXPECT_THAT(ask(get("/v1/jobs/" + id + "/events")), HasSubstr("event: done"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("serve: 1 picture: pre 0 ms, predict 70 ms, post 0 ms"),
                    HasSubstr("serve: 1 picture: pre 0 ms, predict 80 ms, post 0 ms"),
                    HasSubstr("serve: 2 pictures: pre 0 ms, predict 90 ms, post 0 ms"), Not(HasSubstr("secret"))));
}

TEST_F(painting_service, answers_health_models_and_metrics) {
  for (const char* path : {"/ping", "/health", "/v2/health/live", "/v2/health/ready", "/ping?x=1"}) {
    EXPECT_THAT(ask(get(path)), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Content-Length: 0"))) << path;
  }
  EXPECT_THAT(ask(get("/v1/models")), HasSubstr(R"("id":"stub")"));
  EXPECT_THAT(ask(get("/metrics")), HasSubstr("darkroom_serve_requests_total{route=\"/ping\",status=\"200\"} 2"));
}

TEST_F(painting_service, the_page_needs_no_key_but_comes_to_no_stranger) {
  start(AccessKeys::parse(std::string(kKey), "keys").value());
  EXPECT_THAT(ask(get("/")), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Content-Type: text/html"),
                                   HasSubstr("Content-Security-Policy: default-src 'self'"), HasSubstr("Cache-Control: no-cache"),
                                   HasSubstr("X-Content-Type-Options: nosniff"), HasSubstr("<title>darkroom")));
  EXPECT_THAT(ask(get("/page/page.js?x=1")), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Content-Type: text/javascript")));
  EXPECT_THAT(ask(get("/page/nothing.js")), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask(post("/", R"({"inputs":"x"})")), StartsWith("HTTP/1.1 401"));
  EXPECT_THAT(ask(get("/", "Origin: http://example.com\r\n")), StartsWith("HTTP/1.1 403"));
}

TEST_F(painting_service, the_page_shares_its_path_with_a_protocol) {
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nHost: example.com\r\nConnection: close\r\n\r\n"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(ask(post("/", R"({"inputs":"x","parameters":{"num_inference_steps":2}})")),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\x89PNG")));
  EXPECT_THAT(ask("PUT / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: "), HasSubstr("GET"), HasSubstr("HEAD"), HasSubstr("POST")));
}

TEST_F(painting_service, a_reply_without_a_body_says_no_other_length_than_the_whole_one) {
  const std::string whole = ask(get("/page/style.css"));
  const std::string tag = whole.substr(whole.find("ETag: ") + 6, 34);
  const std::string length = "Content-Length: " + std::to_string(whole.size() - whole.find("\r\n\r\n") - 4) + "\r\n";
  EXPECT_THAT(whole, HasSubstr(length));
  EXPECT_THAT(ask("HEAD /page/style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr(length), EndsWith("\r\n\r\n")));
  EXPECT_THAT(ask(get("/page/style.css", "If-None-Match: " + tag + "\r\n")),
              AllOf(StartsWith("HTTP/1.1 304"), HasSubstr(tag), Not(HasSubstr("Content-Length")), EndsWith("\r\n\r\n")));
  EXPECT_THAT(ask("HEAD /page/style.css HTTP/1.1\r\nHost: localhost\r\nIf-None-Match: " + tag + "\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 304"), Not(HasSubstr("Content-Length")), EndsWith("\r\n\r\n")));
}

TEST_F(painting_service, what_is_not_there_says_so) {
  EXPECT_THAT(ask(get("/sdapi/v1/nothing")), AllOf(StartsWith("HTTP/1.1 404"), HasSubstr("docs/serve.md")));
  EXPECT_THAT(ask(get("/invocations")), AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: POST")));
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"x","picture":"x"})")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("no such field: picture")));
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"refused","num_inference_steps":2})")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("the stub refuses this prompt")));
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"step throws"})")), AllOf(StartsWith("HTTP/1.1 500"), Not(HasSubstr("planted"))));
  EXPECT_THAT(ask(post("/invocations", "{}", "X-Darkroom-Deadline: soon\r\n")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("soon")));
  EXPECT_THAT(ask("POST /invocations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"),
              StartsWith("HTTP/1.1 415"));
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":["a","b"]})", "Accept: image/png\r\n")), StartsWith("HTTP/1.1 406"));
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"refused late","num_inference_steps":2})")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"x","width":1368,"height":1368,"num_inference_steps":1})")),
              AllOf(StartsWith("HTTP/1.1 406"), HasSubstr("nested arrays")));
}

TEST_F(painting_service, media_types_and_hosts_are_read_whatever_their_case) {
  const std::string body = R"({"inputs":"x","parameters":{"num_inference_steps":1}})";
  for (const std::string type : {"Application/JSON", "application/json ; charset=utf-8", "application/json;charset=utf-8"}) {
    EXPECT_THAT(
        ask("POST /invocations HTTP/1.1\r\nHost: LOCALHOST:80\r\nOrigin: http://localhost:80\r\nConnection: close\r\nContent-Type: " +
            type + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body),
        StartsWith("HTTP/1.1 200"))
        << type;
  }
}

TEST_F(painting_service, only_liveness_goes_without_a_key) {
  start(AccessKeys::parse("# ours\n\n" + std::string(kKey) + "\r\n", "keys").value());
  const std::string good = "Authorization: Bearer " + std::string(kKey) + "\r\n";
  for (const std::string& bad :
       {std::string(), std::string("Authorization: Bearer wrong-key-of-16-bytes\r\n"), "Authorization: Basic " + std::string(kKey) + "\r\n",
        "Authorization: Bearer " + std::string(kKey) + "x\r\n", std::string("Authorization: Bearer \r\n")}) {
    for (const char* path : {"/v2/health/ready", "/v1/models", "/metrics", "/nothing"}) {
      EXPECT_THAT(ask(get(path, bad)), AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("WWW-Authenticate: Bearer"))) << path << bad;
    }
    for (const char* path : {"/invocations", "/v1/images/generations"}) {
      EXPECT_THAT(ask(post(path, R"({"prompt":"x"})", bad)), StartsWith("HTTP/1.1 401")) << path << bad;
    }
    for (const char* path : {"/ping", "/health", "/v2/health/live"}) {
      EXPECT_THAT(ask(get(path, bad)), StartsWith("HTTP/1.1 200")) << path << bad;
    }
  }
  EXPECT_THAT(ask(get("/v1/models", good)), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"x","num_inference_steps":1})", good)), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(engine_.calls().size() == 1);
}

// Of all that the server says it answers: a route that is added later is asked here, too.
TEST_F(painting_service, each_route_wants_a_key_with_each_method) {
  start(AccessKeys::parse(std::string(kKey), "keys").value());
  const std::string document = body_of(ask(get("/openapi.json", "Authorization: Bearer " + std::string(kKey) + "\r\n")));
  const nlohmann::json paths = nlohmann::json::parse(document)["paths"];
  EXPECT_GE(paths.size(), 40U);
  std::vector<std::string> open;
  for (const auto& [path, operations] : paths.items()) {
    for (const auto& [method, operation] : operations.items()) {
      std::string asked = path;
      for (size_t brace = asked.find('{'); brace != std::string::npos; brace = asked.find('{')) {
        asked.replace(brace, asked.find('}') - brace + 1, "stub");
      }
      const std::string line = ascii_upper(method) + " " + asked + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
      const std::string reply = ask(line + "Authorization: Bearer " + std::string(kKey) + "x\r\nContent-Length: 0\r\n\r\n");
      if (operation.contains("security")) {
        open.push_back(ascii_upper(method) + " " + path);
        EXPECT_THAT(reply, Not(StartsWith("HTTP/1.1 401"))) << line;
      } else {
        EXPECT_THAT(reply, AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("WWW-Authenticate: Bearer"))) << line;
      }
    }
  }
  EXPECT_THAT(open, UnorderedElementsAre("GET /", "HEAD /", "GET /page/{file}", "HEAD /page/{file}", "GET /health", "GET /ping",
                                         "GET /v2/health/live"));
}

TEST_F(painting_service, every_protocol_says_what_of_a_prompt_is_not_read) {
  const std::string left_out = "left out: behind";
  for (const std::string& request :
       {post("/invocations", R"({"prompt":"x|behind","num_inference_steps":1})"), post("/invocations", R"({"inputs":"x|behind"})"),
        post("/invocations", R"({"prompt":"x|behind"})", "Accept: text/event-stream\r\n"),
        post("/v1/images/generations", R"({"prompt":"x|behind","steps":1})"),
        post("/v1/images/generations", R"({"prompt":"x|behind","steps":1,"stream":true})"), get("/imagine?prompt=x%7Cbehind")}) {
    const std::string reply = ask(request);
    EXPECT_THAT(reply, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("X-Darkroom-Warning: \"the prompt is longer"))) << request;
    const bool is_picture = reply.find("image/png") != std::string::npos;
    EXPECT_TRUE(is_picture || reply.find("\"warnings\":[\"the prompt is longer") != std::string::npos) << reply;
    EXPECT_THAT(reply, HasSubstr(left_out)) << request;
  }
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"x","num_inference_steps":1})")),
              AllOf(StartsWith("HTTP/1.1 200"), Not(HasSubstr("arning"))));
  EXPECT_THAT(ask(post("/invocations", R"({"inputs":"x|)" + std::string(9000, 'y') + "\"}", kWantsPng)),
              AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("X-Darkroom-Warning: \"the prompt is longer"), HasSubstr(std::string(500, 'y')),
                    HasSubstr("y\"\r\n"), Not(HasSubstr(std::string(1000, 'y')))));
}

TEST_F(painting_service, web_pages_of_others_are_refused) {
  EXPECT_THAT(ask(get("/v1/models", "Origin: http://evil.example\r\n")), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(ask(get("/v1/models", "Origin: http://localhost\r\n")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask("GET /v1/models HTTP/1.1\r\nHost: rebound.example\r\nConnection: close\r\n\r\n"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(ask("GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST_F(painting_service, a_full_queue_and_a_drain_say_when_to_ask_again) {
  start({}, cost_of_steps(10));
  engine_.hold_at(engine_.calls().size());
  const ServeClient first(server_->address());
  first.send_text(post("/invocations", R"({"inputs":"x","parameters":{"num_inference_steps":9}})", kWantsPng));
  ASSERT_TRUE(engine_.await_calls(1));
  EXPECT_THAT(ask(post("/invocations", R"({"inputs":"x","parameters":{"num_inference_steps":9}})")),
              AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("Retry-After: ")));
  EXPECT_THAT(ask(post("/invocations", R"({"inputs":"x","parameters":{"num_inference_steps":11}})")), StartsWith("HTTP/1.1 400"));
  batcher_->drain();
  server_->drain();
  EXPECT_THAT(ask(get("/ping")), StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(ask(get("/health")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(post("/invocations", R"({"inputs":"x"})")), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After: ")));
  EXPECT_FALSE(server_->await_quiet(milliseconds(0)));
  engine_.release();
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));
  EXPECT_THAT(first.receive_all(), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("\x89PNG")));
}

TEST_F(painting_service, ping_answers_while_a_call_holds_the_engine) {
  engine_.hold_at(0);
  const auto waiting = asking(post("/invocations", R"({"inputs":"x","parameters":{"num_inference_steps":1}})"));
  ASSERT_TRUE(engine_.await_calls(1));
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(ask(get("/ping")), StartsWith("HTTP/1.1 200"));
  }
  engine_.release();
  EXPECT_THAT(waiting->receive_all(), StartsWith("HTTP/1.1 200"));
}

// Nobody waits for anybody: all requests are there before the engine ends its first call, so a refusal cannot have waited for one.
TEST_F(painting_service, ten_times_what_it_takes_is_refused_before_any_of_it_is_painted) {
  constexpr int kTaken = 12;
  max_reply_bytes_ = 14'000;  // Of twelve as nested arrays 13,056.
  start({}, kTaken * cost_of_steps(9), {.max_connections = 1000});
  engine_.hold_at(0);
  std::vector<std::unique_ptr<ServeClient>> clients;
  for (int i = 0; i < 10 * kTaken; ++i) {
    clients.push_back(asking(post(i % 3 == 0 ? "/v1/images/generations" : "/invocations",
                                  R"({"prompt":"x",)" + std::string(i % 3 == 0 ? R"("steps":9})" : R"("num_inference_steps":9})"))));
    if (i == 0) {
      ASSERT_TRUE(engine_.await_calls(1));
    }
  }
  const auto is_answered = [](const std::unique_ptr<ServeClient>& client) { return client->has_reply(); };
  EXPECT_TRUE(await([&] { return std::count_if(clients.begin(), clients.end(), is_answered) == 9 * kTaken; }));
  EXPECT_EQ(open_requests(), kTaken);
  int num_refused = 0;
  std::vector<ServeClient*> taken;
  for (const auto& client : clients) {
    if (client->has_reply()) {
      EXPECT_THAT(client->receive_all(), AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("Retry-After: ")));
      ++num_refused;
    } else {
      taken.push_back(client.get());
    }
  }
  EXPECT_EQ(num_refused, 9 * kTaken);
  EXPECT_EQ(engine_.calls().size(), 1U);
  engine_.release();
  for (const ServeClient* client : taken) {
    EXPECT_THAT(client->receive_all(), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_EQ(open_requests(), 0);
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));
  const std::string fills_it = R"({"prompt":"x","steps":1,"n":9,"size":"16x8"})";  // 12,672 bytes: nobody holds any that was refused.
  EXPECT_THAT(ask(post("/v1/images/generations", fills_it)), StartsWith("HTTP/1.1 200"));
}

TEST_F(painting_service, work_stops_when_the_client_is_gone) {
  engine_.hold_at(0);
  {
    const ServeClient client(server_->address());
    client.send_text(post("/invocations", R"({"inputs":"x"})"));
    ASSERT_TRUE(engine_.await_calls(1));
  }
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));  // The question of a client that is gone is no open one.
  engine_.release();
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  EXPECT_EQ(engine_.calls().size(), 1U);
  EXPECT_THAT(ask(get("/metrics")), HasSubstr("darkroom_serve_orders_total{result=\"given_up\"} 1\n"));
}

TEST_F(painting_service, a_client_that_sends_its_next_request_early_is_watched_still) {
  engine_.hold_at(0);
  {
    const ServeClient client(server_->address());
    client.send_text(post("/invocations", R"({"inputs":"x"})"));
    ASSERT_TRUE(engine_.await_calls(1));
    client.send_text("GET /hea");
  }
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));
  engine_.release();
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  EXPECT_EQ(engine_.calls().size(), 1U);
}

TEST_F(painting_service, requests_that_come_while_another_waits_are_answered_in_their_order) {
  engine_.hold_at(0);
  const ServeClient client(server_->address());
  const std::string body = R"({"inputs":"x","parameters":{"num_inference_steps":1}})";
  client.send_text("POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
                   std::to_string(body.size()) + "\r\n\r\n" + body);
  ASSERT_TRUE(engine_.await_calls(1));
  client.send_text("GET /v1/mod");
  EXPECT_THAT(ask(get("/ping")), StartsWith("HTTP/1.1 200"));  // By now the first part has been read.
  client.send_text("els HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  engine_.release();
  EXPECT_THAT(client.receive_all(), AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("generated_images"), HasSubstr(R"("id":"stub")")));
}

TEST_F(painting_service, giving_up_answers_everybody_while_a_call_still_runs) {
  engine_.hold_at(0);
  const ServeClient client(server_->address());
  client.send_text(post("/invocations", R"({"inputs":"x"})"));
  ASSERT_TRUE(engine_.await_calls(1));
  batcher_->give_up_all();
  EXPECT_THAT(client.receive_all(), StartsWith("HTTP/1.1 503"));
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));
  EXPECT_FALSE(batcher_->await_idle(milliseconds(0)));
}

TEST_F(painting_service, what_the_head_decides_costs_no_body) {
  start(AccessKeys::parse(std::string(kKey), "keys").value());
  const std::string head = "POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n";
  EXPECT_THAT(ask(head + "\r\n"), AllOf(StartsWith("HTTP/1.1 401"), HasSubstr("Connection: close")));
  EXPECT_THAT(ask(head + "Expect: 100-continue\r\n\r\n"), StartsWith("HTTP/1.1 401"));
  const ServeClient client(server_->address());
  const std::string body = R"({"inputs":"x","parameters":{"num_inference_steps":1}})";
  client.send_text(
      "POST /invocations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nAuthorization: Bearer " +
      std::string(kKey) + "\r\nExpect: 100-continue\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(client.receive(25), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send_text(body);
  EXPECT_THAT(client.receive_all(), StartsWith("HTTP/1.1 200"));
}

TEST_F(painting_service, trailers_are_no_headers) {
  const std::string body = R"({"inputs":"x","parameters":{"num_inference_steps":1}})";
  EXPECT_THAT(ask("POST /invocations HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  "Transfer-Encoding: chunked\r\nTrailer: X-Darkroom-Deadline\r\n\r\n36\r\n" +
                  body + " \r\n0\r\nX-Darkroom-Deadline: soon\r\nHost: evil.example\r\n\r\n"),
              StartsWith("HTTP/1.1 200"));
}

TEST_F(painting_service, pictures_that_wait_for_their_clients_have_a_bound) {
  max_reply_bytes_ = 8 * 8 * 11 + 100;  // One picture as base64.
  start({});
  engine_.hold_at(0);
  const ServeClient client(server_->address());
  const std::string one = post("/v1/images/generations", R"({"prompt":"x","steps":1})");
  client.send_text(one);
  ASSERT_TRUE(engine_.await_calls(1));
  EXPECT_THAT(ask(one), AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("Retry-After")));
  EXPECT_THAT(ask(post("/v1/images/generations", R"({"prompt":"x","steps":1,"n":2})")), StartsWith("HTTP/1.1 400"));
  engine_.release();
  EXPECT_THAT(client.receive_all(), StartsWith("HTTP/1.1 200"));
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));
  EXPECT_THAT(ask(one), StartsWith("HTTP/1.1 200"));
}

TEST_F(painting_service, what_could_be_read_in_two_ways_is_400_and_the_end) {
  const std::string next = get("/smuggled");
  const std::vector<std::string> vectors = {
      "POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\nhello",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
      "POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\nfffffffffffffffff\r\n",
      "POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n gzip,\r\n chunked\r\n\r\n0\r\n\r\n",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
      "GET /health HTTP/1.1\nHost: a\n\n",
      "GET /health HTTP/1.1\r\nHost: a\nX-Next: b\r\n\r\n",
      "POST /invocations HTTP/1.1\r\nHost: a\r\nX: b\nContent-Length: 5\r\n\r\nhello",
      "POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n",
      "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
      "GET /health HTTP/1.1\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost : a\r\n\r\n",
      "GET http://other/ HTTP/1.1\r\nHost: a\r\n\r\n",
      "GET /he\x01lth HTTP/1.1\r\nHost: a\r\n\r\n",
      "\x16\x03\x01\x02 hello",
  };
  for (const std::string& vector : vectors) {
    EXPECT_THAT(ask(vector + next), AllOf(StartsWith("HTTP/1.1 400"), Not(HasSubstr("404")))) << vector;
  }
}

// As RFC 9112 has it of servers that take folded fields at all: what follows is neither lost nor a field of its own.
TEST_F(painting_service, a_folded_field_is_read_as_one_line) {
  const std::string body = R"({"inputs":"x","parameters":{"num_inference_steps":1}})";
  const std::string length = std::to_string(body.size());
  const std::string head = "POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
  for (const std::string& request :
       {head + "Transfer-Encoding:\r\n chunked\r\n\r\n" + fmt::format("{:x}\r\n", body.size()) + body + "\r\n0\r\n\r\n",
        head + "Content-Length:\r\n\t" + length + "\r\n\r\n" + body,
        head + "X-Folded: b\r\n Content-Length: 5\r\nContent-Length: " + length + "\r\n\r\n" + body}) {
    EXPECT_THAT(ask(request + get("/v1/models")),
                AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("generated_images"), HasSubstr(R"("id":"stub")"), Not(HasSubstr("HTTP/1.1 4"))))
        << request;
  }
}

TEST_F(painting_service, heads_and_bodies_have_bounds) {
  start({}, 1e9, {.max_header_bytes = 1000, .max_body_bytes = 2000});
  EXPECT_THAT(ask(get("/health", "X-Long: " + std::string(2000, 'x') + "\r\n")), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(ask(post("/invocations", std::string(2001, 'x'))), StartsWith("HTTP/1.1 413"));
}

TEST_F(painting_service, a_connection_carries_several_requests_and_a_silent_one_ends) {
  start({}, 1e9, {.head_timeout = milliseconds(2000), .keep_alive_timeout = milliseconds(500)});
  const ServeClient client(server_->address());
  client.send_text("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const std::string replies = client.receive_all();
  EXPECT_EQ(replies.find("HTTP/1.1 200"), 0U);
  EXPECT_NE(replies.rfind("HTTP/1.1 200"), 0U);
  EXPECT_EQ(ask(""), "");
  EXPECT_THAT(ask("GET /hea"), AllOf(StartsWith("HTTP/1.1 408"), HasSubstr("Connection: close")));
}

TEST(access_keys, names_the_line_of_a_bad_key_and_not_the_key) {
  const Status status = AccessKeys::parse("# first\nshort-key\n", "keys.txt").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("keys.txt 2"), Not(HasSubstr("short-key"))));
  EXPECT_EQ(AccessKeys::parse("# nothing\n", "keys.txt").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(AccessKeys::parse("a key with spaces in it\n", "keys.txt").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace darkroom
