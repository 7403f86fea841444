#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "darkroom/serve/served_runs.h"
#include "served_stub.h"
#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

void write(const std::string& path, std::string_view text, std::ios::openmode mode = std::ios::trunc) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary | mode) << text;
}

std::string line_of_step(int64_t step, double loss = 0.5) {
  return fmt::format("{{\"step\":{},\"loss\":{},\"lr\":0.001,\"ms\":{{\"data\":1.5}}}}\n", step, loss);
}

class run_routes : public ServedStub {
 protected:
  void SetUp() override {
    write(run("metrics.jsonl"), line_of_step(1) + line_of_step(2));
    write(
        run("run.json"),
        R"({"component": "unet", "parameters": 1000, "step": 2, "seconds": 3.5, "starts": [{"device": "cpu"}, {"device": "cuda:0", "hidden": 1}],
              "recipe": {"optimizer": {"lr": 0.002}, "data": {"path": "/home/somebody/secret", "resolution": 64}, "batch": {"global": 8}}})");
    write(run("samples/step-00000500/prompt-000.png"), "first picture");
    write(run("samples/step-00000500/prompt-001.png"), "second picture");
    write(run("samples/step-00000500/sheet.png"), "sheet");
    write(run("samples/step-00000500/samples.json"),
          R"({"step": 500, "sampler": "ddim", "steps": 25, "guidance": 3.0, "weights": "ema",
              "pictures": [{"file": "prompt-000.png", "prompt": "red apple", "seed": 7}, {"file": "gone.png", "prompt": "none"}, 5]})");
    write(run("samples/step-00001000/sheet.png"), "sheet of a VAE");
    write(run("checkpoints/step-00000500/state.json"), "{}");
    write(run("checkpoints/step-00001000/unet.safetensors"), "torn: it has no state.json yet");
    write(run("report.html"), "<script>alert(1)</script>");
    runs_ = name_served_runs({folder_.path("run")}).value();
    start({});
  }
  std::string run(const std::string& name) const { return folder_.path("run/" + name); }
  Json json(const std::string& path) const {
    const std::string reply = ask(get(path));
    EXPECT_THAT(reply, StartsWith("HTTP/1.1 200")) << path;
    return Json::parse(body_of(reply), nullptr, /*allow_exceptions=*/false);
  }
  Json metrics(const std::string& from = "") const { return json("/v1/runs/run/metrics" + (from.empty() ? "" : "?from=" + from)); }

  TemporaryFolder folder_;
};

std::vector<int64_t> steps_of(const Json& piece) {
  std::vector<int64_t> steps;
  for (const Json& line : piece["lines"]) {
    steps.push_back(line["step"]);
  }
  return steps;
}

TEST_F(run_routes, say_what_a_run_is_without_where_its_files_lie) {
  EXPECT_EQ(json("/v1/runs"), Json::parse(R"({"runs": [{"name": "run"}]})"));
  const Json facts = json("/v1/runs/run");
  EXPECT_EQ(facts, Json::parse(R"({"name": "run", "component": "unet", "parameters": 1000, "step": 2, "seconds": 3.5, "starts": 2,
                                  "last_start": {"device": "cuda:0"}, "samples": [500, 1000], "checkpoints": [500], "has_report": true,
                                  "recipe": {"optimizer.lr": 0.002, "data.resolution": 64, "batch.global": 8}})"));
}

TEST_F(run_routes, a_server_without_runs_has_an_empty_list) {
  runs_ = {};
  start({});
  EXPECT_THAT(json("/v1/runs")["runs"], IsEmpty());
  EXPECT_THAT(ask(get("/v1/runs/run")), StartsWith("HTTP/1.1 404"));
}

// A folder may lie on a disk that is silent: neither those that make replies nor a stop wait for it.
TEST_F(run_routes, are_read_by_a_thread_whose_stop_answers) {
  service_->stop_finishing();
  for (const char* path : {"/v1/runs/run", "/v1/runs/run/metrics", "/v1/runs/run/samples/500", "/v1/runs/run/report"}) {
    EXPECT_THAT(ask(get(path)), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("shutting down"))) << path;
  }
  EXPECT_THAT(ask(get("/v1/runs")), StartsWith("HTTP/1.1 200"));
}

TEST_F(run_routes, ask_for_the_key) {
  start(AccessKeys::parse(std::string(kKey) + "\n", "keys").value());
  for (const char* path : {"/v1/runs", "/v1/runs/run", "/v1/runs/run/metrics", "/v1/runs/run/samples/500", "/v1/runs/run/report",
                           "/v1/runs/run/samples/500/prompt-000.png"}) {
    EXPECT_THAT(ask(get(path)), StartsWith("HTTP/1.1 401")) << path;
    EXPECT_THAT(ask(get(path, "Authorization: Bearer " + std::string(kKey) + "\r\n")), StartsWith("HTTP/1.1 200")) << path;
  }
}

TEST_F(run_routes, metrics_that_grow_are_read_on_from_where_they_were) {
  const Json first = metrics();
  EXPECT_THAT(steps_of(first), ElementsAre(1, 2));
  EXPECT_EQ(first["lines"][0], Json::parse(R"({"step": 1, "loss": 0.5, "lr": 0.001})"));
  EXPECT_THAT(metrics(first["next"])["lines"], IsEmpty());
  write(run("metrics.jsonl"), line_of_step(3), std::ios::app);
  const Json second = metrics(first["next"]);
  EXPECT_THAT(steps_of(second), ElementsAre(3));
  EXPECT_EQ(second["anew"], false);
  EXPECT_THAT(metrics(second["next"])["lines"], IsEmpty());
}

TEST_F(run_routes, a_last_line_without_its_end_waits_for_it) {
  const std::string line = line_of_step(3);
  write(run("metrics.jsonl"), line.substr(0, 9), std::ios::app);
  const Json torn = metrics();
  EXPECT_THAT(steps_of(torn), ElementsAre(1, 2));
  EXPECT_EQ(torn["unreadable"], 0);
  EXPECT_EQ(torn["more"], false);
  write(run("metrics.jsonl"), line.substr(9), std::ios::app);
  EXPECT_THAT(steps_of(metrics(torn["next"])), ElementsAre(3));
}

// A run that goes on from a checkpoint cuts the later lines away and writes others.
TEST_F(run_routes, metrics_that_were_cut_back_are_read_from_the_beginning) {
  write(run("metrics.jsonl"), line_of_step(3) + line_of_step(4), std::ios::app);
  const std::string next = metrics()["next"];
  write(run("metrics.jsonl"), line_of_step(1) + line_of_step(2));
  const Json shorter = metrics(next);
  EXPECT_EQ(shorter["anew"], true);
  EXPECT_THAT(steps_of(shorter), ElementsAre(1, 2));
  write(run("metrics.jsonl"), line_of_step(1) + line_of_step(2) + line_of_step(3, 0.25) + line_of_step(4, 0.25) + line_of_step(5));
  const Json other = metrics(next);
  EXPECT_EQ(other["anew"], true);
  EXPECT_THAT(steps_of(other), ElementsAre(1, 2, 3, 4, 5));
}

TEST_F(run_routes, a_long_file_comes_in_pieces_of_bounded_size) {
  std::string text;
  for (int64_t step = 1; text.size() < 700'000; ++step) {
    text += line_of_step(step);
  }
  write(run("metrics.jsonl"), text);
  std::vector<int64_t> steps;
  int num_pieces = 0;
  Json piece = metrics();
  for (;; ++num_pieces) {
    const auto more = steps_of(piece);
    EXPECT_LT(more.size(), 6'000U);
    steps.insert(steps.end(), more.begin(), more.end());
    if (piece["more"] != true) {
      break;
    }
    piece = metrics(piece["next"]);
  }
  EXPECT_EQ(num_pieces, 2);
  EXPECT_EQ(static_cast<size_t>(steps.back()), steps.size());
}

TEST_F(run_routes, lines_that_say_nothing_are_passed_over) {
  write(run("metrics.jsonl"),
        "no JSON\n[]\n{\"loss\": 1}\n{\"step\": \"5\"}\n" + std::string(300, '[') + "\n{\"step\": 5, \"loss\": \"x\", \"lr\": 1e999}\n\n");
  const Json piece = metrics();
  EXPECT_EQ(piece["unreadable"], 7);
  EXPECT_THAT(piece["lines"], IsEmpty());
  write(run("metrics.jsonl"), std::string(600'000, 'x') + "\n" + line_of_step(7));  // No end of a line as far as one piece goes.
  std::vector<int64_t> steps;
  std::string from;
  for (int num_pieces = 0; num_pieces < 3; ++num_pieces) {
    const Json part = metrics(from);
    for (const int64_t step : steps_of(part)) {
      steps.push_back(step);
    }
    from = part["next"];
  }
  EXPECT_THAT(steps, ElementsAre(7));
}

TEST_F(run_routes, a_run_that_has_nothing_yet_has_empty_curves) {
  std::filesystem::remove_all(run(""));
  write(run("recipe.toml"), "");
  const Json piece = metrics();
  EXPECT_THAT(piece["lines"], IsEmpty());
  const Json facts = json("/v1/runs/run");
  EXPECT_THAT(facts["samples"], IsEmpty());
  EXPECT_EQ(facts["has_report"], false);
  write(run("metrics.jsonl"), line_of_step(1));
  EXPECT_THAT(steps_of(metrics(piece["next"])), ElementsAre(1));
}

TEST_F(run_routes, a_place_that_no_reply_named_is_refused) {
  for (const char* from : {"x", "5", "-1-00000000", "5-xyz", "-00000000", "99999999999999999999-00000000", "5-000000000"}) {
    EXPECT_THAT(ask(get("/v1/runs/run/metrics?from=" + std::string(from))), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("from must be")))
        << from;
  }
  EXPECT_THAT(ask(get("/v1/runs/run/metrics?to=5")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("no such field: to")));
}

TEST_F(run_routes, show_the_samples_of_a_step) {
  EXPECT_EQ(json("/v1/runs/run/samples/500"),
            Json::parse(R"({"step": 500, "sampler": "ddim", "steps": 25, "guidance": 3.0, "weights": "ema", "has_sheet": true,
                            "pictures": [{"file": "prompt-000.png", "prompt": "red apple", "seed": 7}, {"file": "prompt-001.png"}]})"));
  const Json of_vae = json("/v1/runs/run/samples/1000");
  EXPECT_THAT(of_vae["pictures"], IsEmpty());
  EXPECT_EQ(of_vae["has_sheet"], true);
  const std::string picture = ask(get("/v1/runs/run/samples/500/prompt-000.png"));
  EXPECT_THAT(picture, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Content-Type: image/png\r\n"),
                             HasSubstr("Cross-Origin-Resource-Policy: same-origin\r\n"), HasSubstr("nosniff")));
  EXPECT_EQ(body_of(picture), "first picture");
}

TEST_F(run_routes, names_that_are_no_picture_of_the_run_are_not_there) {
  write(folder_.path("secret.png"), "secret");
  write(run("samples/secret.png"), "secret");
  write(run("samples/step-00000500/notes.txt"), "secret");
  write(run("samples/step-00000500/.hidden.png"), "secret");
  std::filesystem::create_directory(run("samples/step-00000500/folder.png"));
  for (const char* path : {"500/..%2Fsecret.png", "500/..%2f..%2f..%2fsecret.png", "500/%2e%2e/secret.png", "500/../secret.png",
                           "500/notes.txt", "500/.hidden.png", "500/folder.png", "500/samples.json", "500/prompt-000.png%00.png",
                           "500/none.png", "..%2F500/prompt-000.png", "-500/prompt-000.png", "0x500/prompt-000.png", "501/prompt-000.png",
                           "00000500000000000000000/prompt-000.png", "500%2F/prompt-000.png", "./secret.png"}) {
    const std::string reply = ask(get("/v1/runs/run/samples/" + std::string(path)));
    EXPECT_THAT(reply, AllOf(StartsWith("HTTP/1.1 404"), Not(HasSubstr("secret")))) << path;
  }
  for (const char* path : {"/v1/runs/other", "/v1/runs/..", "/v1/runs/..%2Frun", "/v1/runs/run%2Fsamples", "/v1/runs/run/samples/7",
                           "/v1/runs/run/samples/x", "/v1/runs/run/samples/.."}) {
    EXPECT_THAT(ask(get(path)), StartsWith("HTTP/1.1 404")) << path;
  }
}

TEST_F(run_routes, links_and_pipes_are_not_followed) {
  write(folder_.path("secret/step-00000700/a.png"), "secret");
  write(folder_.path("secret/step-00000700/run.json"), R"({"component": "secret"})");
  const std::string step = run("samples/step-00000500/");
  std::filesystem::create_symlink(folder_.path("secret/step-00000700/a.png"), step + "link.png");
  std::filesystem::create_symlink(folder_.path("secret/step-00000700"), run("samples/step-00000700"));
  ASSERT_EQ(mkfifo((step + "pipe.png").c_str(), 0600), 0);
  for (const char* path : {"500/link.png", "700/a.png", "500/pipe.png"}) {
    EXPECT_THAT(ask(get("/v1/runs/run/samples/" + std::string(path))), AllOf(StartsWith("HTTP/1.1 404"), Not(HasSubstr("secret")))) << path;
  }
  EXPECT_THAT(ask(get("/v1/runs/run/samples/700")), StartsWith("HTTP/1.1 404"));
  for (const char* name : {"run.json", "metrics.jsonl", "report.html"}) {
    std::filesystem::remove(run(name));
    std::filesystem::create_symlink(folder_.path("secret/step-00000700/run.json"), run(name));
  }
  EXPECT_EQ(json("/v1/runs/run").contains("component"), false);
  EXPECT_EQ(metrics()["unreadable"], 0);
  EXPECT_THAT(ask(get("/v1/runs/run/report")), StartsWith("HTTP/1.1 404"));
}

TEST_F(run_routes, a_picture_needs_room_among_the_replies) {
  write(run("samples/step-00000500/large.png"), std::string(5'000, 'x'));
  std::ofstream(run("samples/step-00000500/huge.png")).close();
  std::filesystem::resize_file(run("samples/step-00000500/huge.png"), 33'000'000);
  EXPECT_THAT(ask(get("/v1/runs/run/samples/500/huge.png")), AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("too large to be shown")));
  EXPECT_EQ(body_of(ask(get("/v1/runs/run/samples/500/large.png"))).size(), 5'000U);
  max_reply_bytes_ = 4'999;
  start({});
  EXPECT_THAT(ask(get("/v1/runs/run/samples/500/large.png")), Not(StartsWith("HTTP/1.1 200")));
  EXPECT_THAT(ask(get("/v1/runs/run/samples/500/prompt-000.png")), StartsWith("HTTP/1.1 200"));
}

TEST_F(run_routes, nothing_runs_in_a_report) {
  const std::string reply = ask(get("/v1/runs/run/report"));
  EXPECT_THAT(reply, AllOf(StartsWith("HTTP/1.1 200"), HasSubstr("Content-Security-Policy: sandbox; default-src 'none';"),
                           HasSubstr("Content-Type: text/html; charset=utf-8\r\n")));
  EXPECT_EQ(body_of(reply), "<script>alert(1)</script>");
}

TEST_F(run_routes, facts_of_another_kind_are_left_out) {
  for (const char* text :
       {"", "[]", "{\"starts\": {}, \"recipe\": [], \"step\": {}}", "{\"starts\": [5], \"recipe\": {\"batch\": 5}}", "{\"step\": "}) {
    write(run("run.json"), text);
    const Json facts = json("/v1/runs/run");
    EXPECT_EQ(facts["recipe"], Json::object()) << text;
    EXPECT_EQ(facts["last_start"], Json::object()) << text;
    EXPECT_FALSE(facts.contains("step")) << text;
  }
}

TEST(served_runs, have_names_of_their_own) {
  const TemporaryFolder folder;
  for (const char* path : {"a/run/run.json", "b/run/recipe.toml", "run-2/metrics.jsonl", "none/other.txt"}) {
    write(folder.path(path), "");
  }
  const auto runs = name_served_runs({folder.path("a/run/"), folder.path("run-2"), folder.path("b/run")});
  ASSERT_TRUE(runs.is_ok());
  EXPECT_THAT((std::vector<std::string>{(*runs)[0].name, (*runs)[1].name, (*runs)[2].name}), ElementsAre("run", "run-2", "run-3"));
  const auto refusal = [](const std::vector<std::string>& folders) { return name_served_runs(folders).status().message(); };
  EXPECT_THAT(refusal({folder.path("missing")}), AllOf(HasSubstr("there is no such run folder"), HasSubstr("missing")));
  EXPECT_THAT(refusal({folder.path("a/run/run.json")}), HasSubstr("there is no such run folder"));
  EXPECT_THAT(refusal({folder.path("none")}), HasSubstr("this is no run folder"));
  EXPECT_THAT(refusal({folder.path("a/run"), folder.path("a/../a/run")}), HasSubstr("twice"));
  EXPECT_THAT(refusal({"s3://bucket/run"}), HasSubstr("folders of this machine"));
}

}  // namespace
}  // namespace darkroom
