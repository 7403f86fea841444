#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>

#include "darkroom/core/base64.h"
#include "darkroom/image/png.h"
#include "served_stub.h"

namespace darkroom {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

struct Event {
  std::string name;
  Json data;
};

/// Splits the text of a text/event-stream; comments are left out.
std::vector<Event> events_of(std::string_view text) {
  std::vector<Event> events;
  for (size_t end = text.find("\n\n"); end != std::string_view::npos; end = text.find("\n\n")) {
    const std::string_view one = text.substr(0, end);
    text.remove_prefix(end + 2);
    const size_t line = one.find('\n');
    if (one.starts_with("event: ") && line != std::string_view::npos) {
      events.push_back({.name = std::string(one.substr(7, line - 7)), .data = Json::parse(one.substr(line + 7))});
    }
  }
  return events;
}

std::vector<std::string> names_of(const std::vector<Event>& events) {
  std::vector<std::string> names;
  for (const Event& event : events) {
    names.push_back(event.name);
  }
  return names;
}

class native_jobs : public ServedStub {
 protected:
  /// The id of a job for the fields.
  std::string submit(const std::string& fields, const std::string& headers = "") const {
    const std::string reply = ask(post("/v1/jobs", fields, headers));
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 202")) << fields;
    return Json::parse(body_of(reply))["id"];
  }
  Json job(const std::string& id) const { return Json::parse(body_of(ask(get("/v1/jobs/" + id)))); }
  /// Waits for a job's end by its events, all of which it returns.
  std::vector<Event> watch(const std::string& id) const { return events_of(dechunked(ask(get("/v1/jobs/" + id + "/events")))); }
  std::string remove(const std::string& id) const {
    return ask("DELETE /v1/jobs/" + id + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  }
};

TEST_F(native_jobs, are_taken_at_once_painted_and_fetched) {
  engine_.hold_at(0);
  const std::string reply = ask(post("/v1/jobs", R"({"prompt":"x","seed":7,"steps":4,"images":2})"));
  const Json taken = Json::parse(body_of(reply));
  const std::string id = taken["id"];
  EXPECT_THAT(reply, AllOf(StartsWith("HTTP/1.1 202"), HasSubstr("Location: /v1/jobs/" + id + "\r\n")));
  EXPECT_EQ(taken, Json::parse(R"({"id":")" + id + R"(","status":"queued","seeds":[7,8],"images":[]})"));
  EXPECT_EQ(id.size(), 32U);
  ASSERT_TRUE(engine_.await_calls(1));
  const Json begun = job(id);
  EXPECT_EQ(begun["status"], "painting");
  EXPECT_EQ(begun["images"], Json::array());
  EXPECT_EQ(begun["error"], Json());
  EXPECT_THAT(ask(get("/v1/jobs/" + id + "/images/0")), StartsWith("HTTP/1.1 404"));
  engine_.release();
  EXPECT_EQ(watch(id).back().name, "done");
  const Json done = job(id);
  EXPECT_EQ(done["status"], "done");
  EXPECT_EQ(done["progress"], 1.0);
  EXPECT_EQ(done["step"], 4);
  EXPECT_EQ(done["steps"], 4);
  EXPECT_EQ(done["images"], Json({"/v1/jobs/" + id + "/images/0", "/v1/jobs/" + id + "/images/1"}));
  for (int i = 0; i < 2; ++i) {
    const std::string picture = ask(get(done["images"][static_cast<size_t>(i)]));
    EXPECT_THAT(picture, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("image/png")));
    EXPECT_EQ(body_of(picture), encode_png(Image::filled(8, 8, 3, static_cast<uint8_t>(7 + i))));
  }
  for (const char* number : {"2", "-1", "x", "0x", "%30x", "99999999999999999999"}) {
    EXPECT_THAT(ask(get("/v1/jobs/" + id + "/images/" + number)), StartsWith("HTTP/1.1 404")) << number;
  }
}

TEST_F(native_jobs, say_what_was_asked_with_what_was_left_out) {
  const std::string id = submit(R"({"prompt":"x","negative_prompt":"n","width":16,"guidance_scale":2.5,"seed":3,"preview_every":4})");
  EXPECT_EQ(job(id)["request"],
            Json::parse(R"({"model":"stub","prompt":"x","negative_prompt":"n","prompt_syntax":"plain","width":16,"height":8,"steps":50,
    "guidance_scale":2.5,"sampler":"ddim","seed":3,"images":1,"preview_every":4})"));
}

TEST_F(native_jobs, name_the_field_that_is_wrong) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({})", "prompt"},
      {R"({"prompt":["a"]})", "prompt"},
      {R"({"prompt":"x","steps":0})", "steps"},
      {R"({"prompt":"x","num_inference_steps":3})", "no such field: num_inference_steps"},
      {R"({"prompt":"x","width":12})", "width"},
      {R"({"prompt":"x","images":11})", "images"},
      {R"({"prompt":"x","preview_every":-1})", "preview_every"},
      {R"({"prompt":"x","sampler":"heun"})", "sampler"},
      {R"({"prompt":"x","seed":1.5})", "seed"},
      {R"({"prompt":"x","prompt_syntax":"heavy"})", "prompt_syntax must be plain or weighted"},
      {R"({"prompt":"x","strength":0.5})", "strength goes with init_image"},
      {R"({"prompt":"x","init_image":3})", "init_image"},
      {R"({"prompt":"x","init_image":"http://127.0.0.1/a.png"})", "init_image"},
      {R"({"prompt":"x","init_image":"AAAA","strength":1.5})", "strength"},
      {R"({"prompt":"x","init_image":"AAAA","steps":4,"strength":0.2})", "at least one of the steps"},
      {"[]", "JSON object"},
  };
  for (const auto& [body, part] : cases) {
    EXPECT_THAT(ask(post("/v1/jobs", body)), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr(part))) << body;
  }
  EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"refused"})")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("the stub refuses")));
  EXPECT_THAT(ask(post("/v1/jobs", "{}", "X-Darkroom-Deadline: soon\r\n")), StartsWith("HTTP/1.1 400"));
  EXPECT_EQ(Json::parse(body_of(ask(get("/v1/jobs")))), Json::parse(R"({"jobs":[]})"));
}

TEST_F(native_jobs, with_a_picture_need_a_decoder) {
  EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"x","init_image":"AAAA"})")), AllOf(StartsWith("HTTP/1.1 501"), HasSubstr("decoder")));
  EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"x","init_image":null})")), StartsWith("HTTP/1.1 202"));
}

TEST_F(native_jobs, read_weights_where_they_are_asked_to) {
  const std::string id = submit(R"json({"prompt":"(x:1.3)","prompt_syntax":"weighted","steps":1})json");
  EXPECT_EQ(watch(id).back().name, "done");
  EXPECT_EQ(job(id)["request"]["prompt_syntax"], "weighted");
  submit(R"json({"prompt":"(x:1.3)","steps":1})json");
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  EXPECT_THAT(engine_.weighted(), ElementsAre(true, false));
}

TEST_F(native_jobs, say_what_of_their_texts_is_not_read) {
  const std::string reply = ask(post("/v1/jobs", R"({"prompt":"x|and \u00e9","negative_prompt":"n|o","steps":1,"images":2})"));
  const Json warnings = Json::parse(body_of(reply))["warnings"];
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_THAT(warnings[0].get<std::string>(), AllOf(StartsWith("the prompt is longer"), testing::EndsWith("left out: and \u00e9")));
  EXPECT_THAT(warnings[1].get<std::string>(), AllOf(StartsWith("the negative prompt is longer"), testing::EndsWith("left out: o")));
  const std::string id = Json::parse(body_of(reply))["id"];
  EXPECT_EQ(watch(id).back().data["warnings"], warnings);
  EXPECT_THAT(ask(get("/v1/jobs")), AllOf(HasSubstr(id), Not(HasSubstr("warnings"))));
  EXPECT_FALSE(job(submit(R"({"prompt":"x"})")).contains("warnings"));
}

TEST_F(native_jobs, are_refused_as_other_requests_are) {
  start({}, cost_of_steps(10));
  engine_.hold_at(0);
  const std::string id = submit(R"({"prompt":"x","steps":9})");
  ASSERT_TRUE(engine_.await_calls(1));
  EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"x","steps":9})")), AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("Retry-After: ")));
  EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"x","steps":6,"preview_every":1})")), StartsWith("HTTP/1.1 400"));  // Previews cost.
  batcher_->drain();
  EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"x"})")), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Retry-After: ")));
  engine_.release();
  EXPECT_EQ(watch(id).back().name, "done");
}

TEST_F(native_jobs, go_on_when_their_client_leaves_and_are_listed_newest_first) {
  engine_.hold_at(0);
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    ids.push_back(submit(R"({"prompt":"x","steps":2})"));
  }
  engine_.release();
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  std::vector<std::string> listed;
  const Json all = Json::parse(body_of(ask(get("/v1/jobs"))));
  for (const Json& one : all["jobs"]) {
    EXPECT_EQ(one["status"], "done");
    EXPECT_FALSE(one.contains("request"));
    listed.push_back(one["id"]);
  }
  EXPECT_THAT(listed, ElementsAre(ids[2], ids[1], ids[0]));
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), 3U);
}

TEST_F(native_jobs, tell_every_step_and_show_previews_to_who_watches) {
  engine_.hold_at(0);
  const std::string id = submit(R"({"prompt":"x","steps":6,"preview_every":2})");
  ASSERT_TRUE(engine_.await_calls(1));
  const auto client = asking(get("/v1/jobs/" + id + "/events"));
  std::string text = client->receive_until("}\n\n\r\n");
  EXPECT_THAT(text, HasSubstr("text/event-stream"));
  for (size_t call = 1; call < 6; ++call) {  // Each step once the one before was seen.
    engine_.hold_at(call);
    text += client->receive_until("}\n\n\r\n");
    if (call % 2 == 0) {  // A preview, too.
      text += client->receive_until("}\n\n\r\n");
    }
  }
  engine_.release();
  text += client->receive_all();
  const std::vector<Event> events = events_of(dechunked(text));
  std::vector<int> steps;
  std::vector<int> previews;
  for (const Event& event : events) {
    if (event.name == "progress") {
      steps.push_back(event.data["step"]);
      EXPECT_EQ(event.data["steps"], 6);
      EXPECT_TRUE(steps.back() == 6 || event.data["status"] == "painting") << event.data;
    } else if (event.name == "preview") {
      EXPECT_EQ(event.data["index"], 0);
      const std::string png = decode_base64(event.data["image"].get<std::string>()).value();
      for (uint8_t calls_left = 0; calls_left < 6; ++calls_left) {
        previews.insert(previews.end(), png == encode_png(Image::filled(1, 1, 3, calls_left)) ? 1 : 0, 6 - calls_left);
      }
    }
  }
  EXPECT_THAT(previews, ElementsAre(2, 4));
  EXPECT_TRUE(std::is_sorted(steps.begin(), steps.end()));
  EXPECT_EQ(std::set<int>(steps.begin(), steps.end()), (std::set<int>{0, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(events.back().name, "done");
  EXPECT_EQ(events.back().data, job(id));
}

TEST_F(native_jobs, show_who_comes_late_the_present_state_first) {
  engine_.hold_at(3);
  const std::string id = submit(R"({"prompt":"x","steps":6,"preview_every":2})");
  ASSERT_TRUE(engine_.await_calls(4));
  const auto client = asking(get("/v1/jobs/" + id + "/events"));
  client->receive_until("\r\n\r\n");
  EXPECT_THAT(client->receive_until("}\n\n\r\n"), AllOf(HasSubstr("event: progress"), HasSubstr("\"step\":3,")));
  EXPECT_THAT(client->receive_until("}\n\n\r\n"), HasSubstr("event: preview"));  // Of step 2; that of step 4 is not there yet.
  engine_.release();
  EXPECT_EQ(events_of(dechunked("\r\n\r\n" + client->receive_all())).back().name, "done");
  EXPECT_THAT(names_of(watch(id)), ElementsAre("progress", "done"));
}

TEST_F(native_jobs, that_are_cancelled_stop_between_two_steps) {
  engine_.hold_at(0);
  const std::string id = submit(R"({"prompt":"x"})");
  ASSERT_TRUE(engine_.await_calls(1));
  const auto client = asking(get("/v1/jobs/" + id + "/events"));
  client->receive_until("}\n\n\r\n");
  EXPECT_THAT(remove(id), StartsWith("HTTP/1.1 204"));
  const std::vector<Event> events = events_of(dechunked("\r\n\r\n" + client->receive_all()));
  EXPECT_EQ(events.back().name, "cancelled");
  EXPECT_EQ(events.back().data["status"], "cancelled");
  EXPECT_EQ(job(id)["status"], "cancelled");
  engine_.release();
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  EXPECT_EQ(engine_.calls().size(), 1U);
  EXPECT_THAT(remove(id), AllOf(StartsWith("HTTP/1.1 204"), Not(HasSubstr("Content-Length"))));  // Now it is forgotten.
  EXPECT_THAT(remove(id), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask(get("/v1/jobs/" + id)), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask(get("/v1/jobs/" + std::string(32, '0'))), StartsWith("HTTP/1.1 404"));
}

TEST_F(native_jobs, that_fail_say_so_and_no_more_than_clients_may_know) {
  const std::string id = submit(R"({"prompt":"step throws"})");
  const std::vector<Event> events = watch(id);
  EXPECT_EQ(events.back().name, "failed");
  EXPECT_THAT(events.back().data["error"].get<std::string>(), AllOf(HasSubstr("painting failed"), Not(HasSubstr("planted"))));
  EXPECT_EQ(events.back().data["images"], Json::array());
  EXPECT_EQ(job(id)["status"], "failed");
  const std::string shown = submit(R"({"prompt":"preview throws","preview_every":1,"steps":3})");
  EXPECT_THAT(names_of(watch(shown)), AllOf(Not(testing::Contains("preview")), testing::Contains("done")));
}

TEST_F(native_jobs, that_miss_their_deadline_fail) {
  const std::string id = submit(R"({"prompt":"x","steps":300})", "X-Darkroom-Deadline: 1\r\n");  // Steps take 10 ms of the clock.
  const std::vector<Event> events = watch(id);
  EXPECT_EQ(events.back().name, "failed");
  EXPECT_THAT(events.back().data["error"].get<std::string>(), HasSubstr("deadline"));
}

TEST_F(native_jobs, are_kept_for_a_time_and_remembered_for_another) {
  const std::string id = submit(R"({"prompt":"x","steps":1})");
  watch(id);
  clock_.advance(seconds(599));
  EXPECT_THAT(ask(get("/v1/jobs/" + id + "/images/0")), StartsWith("HTTP/1.1 200"));
  clock_.advance(seconds(1));
  for (const char* path : {"", "/events", "/images/0"}) {
    EXPECT_THAT(ask(get("/v1/jobs/" + id + path)), StartsWith("HTTP/1.1 410")) << path;
  }
  EXPECT_THAT(remove(id), StartsWith("HTTP/1.1 410"));
  EXPECT_EQ(body_of(ask(get("/v1/jobs"))), "{\"jobs\":[]}\n");
  clock_.advance(seconds(600));
  EXPECT_THAT(ask(get("/v1/jobs/" + id)), StartsWith("HTTP/1.1 404"));
}

TEST_F(native_jobs, that_have_ended_make_room_for_others_the_oldest_first) {
  max_reply_bytes_ = 40'000;  // Of a picture of 96 x 96 pixels 27,648 and its fields 4,103, of one of 8 x 8 as PNG 384.
  start({});
  const std::string first = submit(R"({"prompt":"x","steps":1,"width":8})");
  watch(first);
  clock_.advance(milliseconds(1));
  const std::string second = submit(R"({"prompt":"x","steps":1,"width":96,"height":96})");
  watch(second);
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  EXPECT_THAT(ask(post("/invocations", R"({"inputs":"x","parameters":{"num_inference_steps":1,"width":64,"height":16}})", kWantsPng)),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(get("/v1/jobs/" + first)), StartsWith("HTTP/1.1 410"));
  EXPECT_THAT(ask(get("/v1/jobs/" + second)), StartsWith("HTTP/1.1 200"));
  const std::string third = submit(R"({"prompt":"x","steps":1,"width":96,"height":96})");
  EXPECT_THAT(ask(get("/v1/jobs/" + second)), StartsWith("HTTP/1.1 410"));
  EXPECT_EQ(watch(third).back().name, "done");
  EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"x","steps":1,"width":128,"height":128})")), StartsWith("HTTP/1.1 400"));
}

TEST_F(native_jobs, are_kept_where_another_request_is_refused) {
  max_reply_bytes_ = 40'000;  // For one of 96 x 96 pixels at a time.
  start({}, PictureSpec{.num_steps = 9, .width = 96, .height = 96}.cost());
  const std::string kept = submit(R"({"prompt":"x","steps":1,"width":96,"height":96})");
  watch(kept);
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"x","steps":10,"width":96,"height":96})")), StartsWith("HTTP/1.1 400"));  // It costs more.
  EXPECT_THAT(ask(get("/v1/jobs/" + kept)), StartsWith("HTTP/1.1 200"));
  batcher_->drain();
  EXPECT_THAT(ask(post("/invocations", R"({"inputs":"x","parameters":{"num_inference_steps":1,"width":64,"height":96}})")),
              StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(ask(get("/v1/jobs/" + kept)), StartsWith("HTTP/1.1 200"));
}

TEST_F(native_jobs, are_not_given_up_for_their_own_pictures) {
  max_reply_bytes_ = 90'000;  // For two of 96 x 96 pixels, 31,751 each with their fields, but not for a picture of 27,648 beside them.
  start({});
  const std::string fields = R"({"prompt":"x","steps":1,"width":96,"height":96})";
  const std::string first = submit(fields);
  watch(first);
  clock_.advance(milliseconds(1));
  const std::string second = submit(fields);
  watch(second);
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  EXPECT_THAT(ask(get("/v1/jobs/" + first + "/images/0")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(get("/v1/jobs/" + first)), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(get("/v1/jobs/" + second)), StartsWith("HTTP/1.1 410"));
}

TEST_F(native_jobs, that_fill_the_room_go_with_their_picture) {
  max_reply_bytes_ = 40'000;
  start({});
  const std::string id = submit(R"({"prompt":"x","steps":1,"width":96,"height":96})");
  watch(id);
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  EXPECT_THAT(ask(get("/v1/jobs/" + id + "/images/0")), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(get("/v1/jobs/" + id)), StartsWith("HTTP/1.1 410"));
}

TEST_F(native_jobs, are_those_of_their_key) {
  const std::string other_key = "another-key-of-at-least-16";
  start(AccessKeys::parse(std::string(kKey) + "\n" + other_key, "keys").value());
  const std::string mine = "Authorization: Bearer " + std::string(kKey) + "\r\n";
  const std::string others = "Authorization: bearer " + other_key + "\r\n";
  EXPECT_THAT(ask(post("/v1/jobs", R"({"prompt":"x"})")), StartsWith("HTTP/1.1 401"));
  const std::string id = submit(R"({"prompt":"x","steps":1})", mine);
  EXPECT_THAT(ask(get("/v1/jobs/" + id, mine)), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ask(get("/v1/jobs", mine)), HasSubstr(id));
  EXPECT_THAT(ask(get("/v1/jobs", others)), Not(HasSubstr(id)));
  for (const char* user : {"", "any"}) {  // The key as the password of HTTP Basic is the same key.
    const std::string basic = "Authorization: Basic " + encode_base64(fmt::format("{}:{}", user, kKey)) + "\r\n";
    EXPECT_THAT(ask(get("/v1/jobs/" + id, basic)), StartsWith("HTTP/1.1 200")) << user;
    EXPECT_THAT(ask(get("/v1/jobs", basic)), HasSubstr(id)) << user;
  }
  for (const char* path : {"", "/events", "/images/0"}) {
    EXPECT_THAT(ask(get("/v1/jobs/" + id + path)), StartsWith("HTTP/1.1 401")) << path;
    EXPECT_THAT(ask(get("/v1/jobs/" + id + path, others)), StartsWith("HTTP/1.1 404")) << path;
  }
}

TEST_F(native_jobs, end_at_a_drain_like_other_orders) {
  engine_.hold_at(0);
  const std::string id = submit(R"({"prompt":"x","steps":2})");
  ASSERT_TRUE(engine_.await_calls(1));
  const auto client = asking(get("/v1/jobs/" + id + "/events"));
  client->receive_until("}\n\n\r\n");
  batcher_->drain();
  server_->drain();
  EXPECT_FALSE(server_->await_quiet(milliseconds(0)));
  engine_.release();
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));
  EXPECT_EQ(events_of(dechunked("\r\n\r\n" + client->receive_all())).back().name, "done");
}

TEST_F(native_jobs, streams_have_a_bound) {
  start({}, 1e9, {.max_connections = 1000});
  engine_.hold_at(0);
  const std::string id = submit(R"({"prompt":"x","steps":1})");
  ASSERT_TRUE(engine_.await_calls(1));
  std::vector<std::unique_ptr<ServeClient>> clients;
  for (int i = 0; i < 256; ++i) {
    clients.push_back(asking(get("/v1/jobs/" + id + "/events")));
    EXPECT_THAT(clients.back()->receive_until("\r\n"), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_THAT(ask(get("/v1/jobs/" + id + "/events")), AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("Retry-After")));
  EXPECT_THAT(ask(get("/ping")), StartsWith("HTTP/1.1 200"));
  engine_.release();
  for (const auto& client : clients) {
    EXPECT_THAT(client->receive_all(), HasSubstr("event: done"));
  }
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));
  EXPECT_THAT(ask(get("/v1/jobs/" + id + "/events")), StartsWith("HTTP/1.1 200"));
}

/// Streams of the protocols whose reply is their pictures.
class streamed_pictures : public ServedStub {};

TEST_F(streamed_pictures, of_openai_are_partial_and_then_completed) {
  const std::string reply =
      ask(post("/v1/images/generations", R"({"prompt":"x","steps":8,"n":2,"seed":5,"stream":true,"partial_images":3})"));
  EXPECT_THAT(reply, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("text/event-stream"), HasSubstr("X-Darkroom-Seed: 5")));
  const std::vector<Event> events = events_of(dechunked(reply));
  ASSERT_GE(events.size(), 2U);
  std::map<int, int> num_partial;
  for (size_t i = 0; i < events.size(); ++i) {
    const bool is_last = i + 2 >= events.size();
    const Json& data = events[i].data;
    EXPECT_EQ(events[i].name, is_last ? "image_generation.completed" : "image_generation.partial_image");
    EXPECT_EQ(data["type"], events[i].name);
    EXPECT_EQ(data["size"], "8x8");
    if (is_last) {
      const auto picture = static_cast<uint8_t>(i + 2 - events.size());
      EXPECT_EQ(data["image_index"], picture);
      EXPECT_EQ(decode_base64(data["b64_json"].get<std::string>()), encode_png(Image::filled(8, 8, 3, 5 + picture)));
    } else {
      EXPECT_EQ(data["partial_image_index"], num_partial[data["image_index"]]++);
    }
  }
  EXPECT_LE(num_partial[0], 3);  // Fewer where the client is slower than the picture.
}

TEST_F(streamed_pictures, of_openai_without_partial_images_are_the_completed_ones) {
  const std::vector<Event> events = events_of(dechunked(ask(post("/v1/images/generations", R"({"prompt":"x","steps":8,"stream":true})"))));
  EXPECT_THAT(names_of(events), ElementsAre("image_generation.completed"));
  EXPECT_THAT(ask(post("/v1/images/generations", R"({"prompt":"x","partial_images":1})")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("partial_images")));
  EXPECT_THAT(ask(post("/v1/images/generations", R"({"prompt":"x","stream":true,"partial_images":4})")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(post("/v1/images/generations", R"({"prompt":"x","stream":"yes"})")),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("stream")));
}

TEST_F(streamed_pictures, of_openai_that_fail_end_with_an_error) {
  const std::vector<Event> events = events_of(dechunked(ask(post("/v1/images/generations", R"({"prompt":"step throws","stream":true})"))));
  ASSERT_THAT(names_of(events), ElementsAre("error"));
  EXPECT_THAT(events[0].data["error"]["message"].get<std::string>(), HasSubstr("painting failed"));
}

TEST_F(streamed_pictures, of_invocations_are_jobs_events_with_the_pictures_at_the_end) {
  const std::string accept = "Accept: text/event-stream\r\n";
  const std::string body = R"({"prompt":["x","y"],"seed":5,"num_inference_steps":4,"preview_every":2})";
  const std::vector<Event> events = events_of(dechunked(ask(post("/invocations", body, accept))));
  EXPECT_THAT(names_of(events), testing::Contains("progress"));
  const Event& last = events.back();
  EXPECT_EQ(last.name, "done");
  EXPECT_EQ(last.data["prompt"], Json({"x", "y"}));
  EXPECT_EQ(last.data["seeds"], Json({5, 5}));
  ASSERT_EQ(last.data["generated_images"].size(), 2U);
  EXPECT_EQ(decode_base64(last.data["generated_images"][1].get<std::string>()), encode_png(Image::filled(8, 8, 3, 5)));
  EXPECT_THAT(ask(post("/invocations", R"({"inputs":"x","parameters":{"num_inference_steps":4}})", accept)), HasSubstr("event: done"));
  EXPECT_THAT(ask(post("/invocations", R"({"prompt":"refused"})", accept)), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(post("/invocations", body)), AllOf(StartsWith("HTTP/1.1 406"), HasSubstr("preview_every")));
}

TEST_F(streamed_pictures, are_painted_no_further_when_the_client_leaves) {
  engine_.hold_at(0);
  {
    const auto client = asking(post("/v1/images/generations", R"({"prompt":"x","stream":true,"partial_images":1})"));
    ASSERT_TRUE(engine_.await_calls(1));
    EXPECT_THAT(client->receive_until("\r\n"), StartsWith("HTTP/1.1 200"));
  }
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));
  engine_.release();
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
  EXPECT_EQ(engine_.calls().size(), 1U);
}

TEST_F(streamed_pictures, take_their_room_as_others_do) {
  max_reply_bytes_ = 8 * 8 * 11 + 100;
  start({});
  engine_.hold_at(0);
  const std::string one = R"({"prompt":"x","steps":1,"stream":true})";
  const auto client = asking(post("/v1/images/generations", one));
  ASSERT_TRUE(engine_.await_calls(1));
  EXPECT_THAT(ask(post("/v1/images/generations", one)), AllOf(StartsWith("HTTP/1.1 429"), HasSubstr("Retry-After")));
  engine_.release();
  EXPECT_THAT(client->receive_all(), HasSubstr("image_generation.completed"));
  EXPECT_TRUE(server_->await_quiet(std::chrono::minutes(1)));
  EXPECT_TRUE(batcher_->await_idle(std::chrono::minutes(1)));
}

}  // namespace
}  // namespace darkroom
