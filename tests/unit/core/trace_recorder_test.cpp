#include "darkroom/core/trace_recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "support/temporary_folder.h"

namespace darkroom {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

class TraceRecorderTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path(name); }
  std::unique_ptr<TraceRecorder> open(const std::string& name, TraceOptions options = {}) {
    options.path = path(name);
    options.clock = &clock_;
    options.seed = 7;
    options.resource = {{"service.name", "darkroom"}, {"process.pid", int64_t{12}}};
    auto recorder = TraceRecorder::open(options);
    EXPECT_TRUE(recorder.is_ok()) << recorder.status().message();
    return std::move(recorder).value();
  }
  std::string text(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  /// Every span of every whole line.
  std::vector<json> spans(const std::string& name) const {
    std::vector<json> found;
    std::istringstream lines(text(name));
    for (std::string line; std::getline(lines, line);) {
      const json request = json::parse(line);
      for (const json& span : request["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
        found.push_back(span);
      }
    }
    return found;
  }

  FakeClock clock_;
  const TemporaryFolder folder_;
};

TEST_F(TraceRecorderTest, a_span_has_the_fields_of_otlps_json) {
  const auto recorder = open("spans.jsonl");
  {
    TraceSpan span(recorder.get(), "read");
    clock_.advance(milliseconds(3));
    span.set("rows", int64_t{1} << 60);
    span.set("share", 0.5);
    span.set("file", std::string("a.parquet"));
    span.fail(Status::not_found("no file"));
  }
  ASSERT_TRUE(recorder->finish().is_ok());
  const json line = json::parse(text("spans.jsonl"));
  const json& resource = line["resourceSpans"][0];
  EXPECT_EQ(resource["resource"]["attributes"][0], json::parse(R"({"key":"service.name","value":{"stringValue":"darkroom"}})"));
  EXPECT_EQ(resource["resource"]["attributes"][1], json::parse(R"({"key":"process.pid","value":{"intValue":"12"}})"));
  EXPECT_EQ(resource["scopeSpans"][0]["scope"]["name"], "darkroom");
  const json& span = resource["scopeSpans"][0]["spans"][0];
  EXPECT_THAT(span["traceId"].get<std::string>(), testing::MatchesRegex("[0-9a-f]{32}"));
  EXPECT_THAT(span["spanId"].get<std::string>(), testing::MatchesRegex("[0-9a-f]{16}"));
  EXPECT_FALSE(span.contains("parentSpanId"));
  EXPECT_EQ(span["kind"], 1);
  EXPECT_EQ(span["startTimeUnixNano"], "1767225600000000000");  // The fake clock's date: 2026-01-01.
  EXPECT_EQ(span["endTimeUnixNano"], "1767225600003000000");
  EXPECT_EQ(span["attributes"][0], json::parse(R"({"key":"rows","value":{"intValue":"1152921504606846976"}})"));
  EXPECT_EQ(span["attributes"][1], json::parse(R"({"key":"share","value":{"doubleValue":0.5}})"));
  EXPECT_EQ(span["attributes"][2], json::parse(R"({"key":"file","value":{"stringValue":"a.parquet"}})"));
  EXPECT_EQ(span["attributes"][3]["key"], "thread.id");
  EXPECT_EQ(span["status"], json::parse(R"({"code":2,"message":"no file"})"));
}

TEST_F(TraceRecorderTest, children_lie_within_their_parents_and_share_their_trace) {
  const auto recorder = open("spans.jsonl");
  {
    TraceSpan step(recorder.get(), "step");
    clock_.advance(milliseconds(1));
    TraceSpan wait(recorder.get(), "data_wait", step.context());
    clock_.advance(milliseconds(2));
    clock_.set_wall(std::chrono::sys_days(std::chrono::year(2020) / 1 / 1));  // A date that is put right changes no span.
  }
  const TraceSpan other(recorder.get(), "step");
  ASSERT_TRUE(recorder->finish().is_ok());
  const auto found = spans("spans.jsonl");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0]["name"], "data_wait");
  EXPECT_EQ(found[0]["parentSpanId"], found[1]["spanId"]);
  EXPECT_EQ(found[0]["traceId"], found[1]["traceId"]);
  EXPECT_NE(found[0]["traceId"], json(std::string(32, '0')));
  EXPECT_LT(found[1]["startTimeUnixNano"].get<std::string>(), found[0]["startTimeUnixNano"].get<std::string>());
  EXPECT_EQ(found[0]["endTimeUnixNano"], found[1]["endTimeUnixNano"]);
  EXPECT_EQ(found[0]["endTimeUnixNano"], "1767225600003000000");
}

TEST_F(TraceRecorderTest, without_a_recorder_nothing_happens) {
  TraceSpan span(nullptr, "read");
  span.set("rows", int64_t{1});
  span.fail(Status::internal("x"));
  span.end();
  EXPECT_EQ(span.context(), SpanContext());
}

TEST_F(TraceRecorderTest, what_is_written_is_whole_before_the_end) {
  const auto recorder = open("spans.jsonl", {.batch_spans = 2});
  for (int i = 0; i < 5; ++i) {
    const TraceSpan span(recorder.get(), "read");
  }
  EXPECT_EQ(spans("spans.jsonl").size(), 4U);  // As after a kill.
  ASSERT_TRUE(recorder->finish().is_ok());
  EXPECT_EQ(spans("spans.jsonl").size(), 5U);
  const TraceSpan late(recorder.get(), "read");
  EXPECT_EQ(spans("spans.jsonl").size(), 5U);
}

TEST_F(TraceRecorderTest, no_span_waits_longer_than_a_second_while_others_come) {
  const auto recorder = open("spans.jsonl");
  TraceSpan(recorder.get(), "first").end();
  clock_.advance(milliseconds(999));
  TraceSpan(recorder.get(), "second").end();
  EXPECT_EQ(text("spans.jsonl"), "");
  clock_.advance(milliseconds(1));
  TraceSpan(recorder.get(), "third").end();
  EXPECT_EQ(spans("spans.jsonl").size(), 3U);
}

TEST_F(TraceRecorderTest, a_file_has_a_limit_and_says_what_it_left_out) {
  const auto recorder = open("spans.jsonl", {.max_bytes = 1, .batch_spans = 2});
  for (int i = 0; i < 7; ++i) {
    const TraceSpan span(recorder.get(), "read");
  }
  ASSERT_TRUE(recorder->finish().is_ok());
  EXPECT_EQ(spans("spans.jsonl").size(), 2U);
  EXPECT_EQ(recorder->num_dropped(), 5);
}

TEST_F(TraceRecorderTest, spans_of_many_threads_are_all_there_and_differ) {
  const auto recorder = open("spans.jsonl", {.batch_spans = 16});
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int j = 0; j < 250; ++j) {
          TraceSpan outer(recorder.get(), "outer");
          const TraceSpan inner(recorder.get(), "inner", outer.context());
        }
      });
    }
  }
  ASSERT_TRUE(recorder->finish().is_ok());
  std::set<std::string> ids;
  std::set<std::string> traces;
  for (const json& span : spans("spans.jsonl")) {
    ids.insert(span["spanId"]);
    traces.insert(span["traceId"]);
  }
  EXPECT_EQ(ids.size(), 2000U);
  EXPECT_EQ(traces.size(), 1000U);
}

TEST_F(TraceRecorderTest, the_ending_chooses_the_form_that_perfetto_opens) {
  const auto recorder = open("spans.perfetto.json");
  SpanContext item = recorder->make_context();
  {
    TraceSpan span(recorder.get(), "read", item);
    clock_.advance(milliseconds(3));
    span.set("rows", int64_t{5});
  }
  recorder->record(
      {.name = "item", .context = item, .begin = recorder->now() - milliseconds(3), .end = recorder->now(), .is_on_thread = false});
  ASSERT_TRUE(recorder->finish().is_ok());
  const json events = json::parse(text("spans.perfetto.json"));
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(events[0]["ph"], "M");
  EXPECT_EQ(events[0]["args"]["name"], "read");
  EXPECT_EQ(events[1]["ph"], "X");
  EXPECT_EQ(events[1]["ts"], 0.0);
  EXPECT_EQ(events[1]["dur"], 3000.0);
  EXPECT_EQ(events[1]["args"]["rows"], 5);
  EXPECT_EQ(events[1]["args"]["parent"], events[2]["args"]["span"]);
  EXPECT_EQ(events[2]["ph"], "b");
  EXPECT_EQ(events[3]["ph"], "e");
  EXPECT_EQ(events[2]["id"], events[3]["id"]);
  EXPECT_EQ(events[3]["ts"], 3000.0);
  EXPECT_EQ(events[4], json::object());  // So that the line before may end with a comma.
  EXPECT_TRUE(chooses_chrome_form("a.trace.json"));
  EXPECT_FALSE(chooses_chrome_form("trace.jsonl"));
}

TEST_F(TraceRecorderTest, a_file_that_cannot_be_made_is_named) {
  const auto recorder = TraceRecorder::open({.path = path("none/spans.jsonl")});
  ASSERT_FALSE(recorder.is_ok());
  EXPECT_EQ(recorder.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(recorder.status().message(), testing::HasSubstr("none/spans.jsonl"));
}

TEST_F(TraceRecorderTest, files_that_are_no_traces_stay_as_they_are) {
  std::ofstream(path("recipe.toml")) << "[batch]\n";
  const auto refused = TraceRecorder::open({.path = path("recipe.toml")});
  ASSERT_FALSE(refused.is_ok());
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("recipe.toml"));
  EXPECT_EQ(text("recipe.toml"), "[batch]\n");
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(TraceRecorder::open({.path = path("pipe")}).is_ok());
  std::ofstream(path("old.jsonl")) << R"({"resourceSpans":[]})"
                                   << "\n";
  ASSERT_TRUE(TraceRecorder::open({.path = path("old.jsonl"), .clock = &clock_}).is_ok());
  EXPECT_EQ(text("old.jsonl"), "") << "an earlier trace makes room";
}

TEST_F(TraceRecorderTest, a_new_attempt_keeps_what_lost_ones_wrote) {
  for (const std::string& name : {std::string("spans.jsonl"), std::string("spans.perfetto.json")}) {
    for (const char* attempt : {"first", "second", "third"}) {
      const auto recorder = open(name, {.batch_spans = 1});
      TraceSpan(recorder.get(), attempt).end();
    }
  }
  EXPECT_EQ(spans("spans-attempt1.jsonl")[0]["name"], "first");
  EXPECT_EQ(spans("spans-attempt2.jsonl")[0]["name"], "second");
  EXPECT_EQ(spans("spans.jsonl")[0]["name"], "third");
  EXPECT_EQ(json::parse(text("spans-attempt1.perfetto.json"))[1]["name"], "first");
  EXPECT_EQ(json::parse(text("spans.perfetto.json"))[1]["name"], "third");
}

TEST_F(TraceRecorderTest, of_a_link_what_it_leads_to_moves_aside) {
  std::filesystem::create_directory(path("disk"));
  std::filesystem::create_symlink("disk/real.jsonl", path("spans.jsonl"));
  for (const char* attempt : {"first", "second"}) {
    const auto recorder = open("spans.jsonl", {.batch_spans = 1});
    TraceSpan(recorder.get(), attempt).end();
  }
  EXPECT_TRUE(std::filesystem::is_symlink(path("spans.jsonl")));
  EXPECT_EQ(spans("disk/real-attempt1.jsonl")[0]["name"], "first");
  EXPECT_EQ(spans("disk/real.jsonl")[0]["name"], "second");
}

TEST_F(TraceRecorderTest, what_is_open_already_is_written_on_and_not_moved) {
  const std::string name = path("out.jsonl");
  std::ofstream(name) << R"({"resourceSpans":[]})"
                      << "\n";
  const int descriptor = ::open(name.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  const auto recorder = TraceRecorder::open({.path = "/proc/self/fd/" + std::to_string(descriptor), .batch_spans = 1, .clock = &clock_});
  ASSERT_TRUE(recorder.is_ok()) << recorder.status().message();
  TraceSpan(recorder->get(), "read").end();
  EXPECT_FALSE(std::filesystem::exists(path("out-attempt1.jsonl")));
  EXPECT_THAT(text("out.jsonl"), testing::AllOf(testing::StartsWith(R"({"resourceSpans":[]})"), testing::HasSubstr("\"read\"")));
  ::close(descriptor);
}

TEST_F(TraceRecorderTest, attempts_that_begin_at_once_lose_no_trace) {
  std::ofstream(path("spans.jsonl")) << R"({"resourceSpans":[]})"
                                     << "\n";
  std::vector<std::jthread> attempts;
  std::atomic<int> num_failed = 0;
  for (int i = 0; i < 8; ++i) {
    attempts.emplace_back([&] {
      const auto recorder = TraceRecorder::open({.path = path("spans.jsonl"), .batch_spans = 1, .clock = &clock_});
      num_failed += recorder.is_ok() ? 0 : 1;
      if (recorder.is_ok()) {
        TraceSpan(recorder->get(), "read").end();
      }
    });
  }
  attempts.clear();
  EXPECT_EQ(num_failed, 0);
  int num_lines = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path("."))) {
    const std::string lines = text(entry.path().filename().string());
    num_lines += static_cast<int>(std::count(lines.begin(), lines.end(), '\n'));
  }
  EXPECT_EQ(num_lines, 9) << "the lost one's, and one of each";
}

TEST_F(TraceRecorderTest, a_file_without_a_byte_is_no_attempt) {
  open("spans").reset();
  open("spans").reset();
  EXPECT_FALSE(std::filesystem::exists(path("spans-attempt1")));
}

TEST_F(TraceRecorderTest, a_full_disk_ends_the_recording_and_is_told_at_the_end) {
  if (!std::filesystem::exists("/dev/full")) {
    GTEST_SKIP() << "this machine has no /dev/full";
  }
  auto recorder = TraceRecorder::open({.path = "/dev/full", .batch_spans = 2, .clock = &clock_});
  ASSERT_TRUE(recorder.is_ok());
  for (int i = 0; i < 3; ++i) {
    const TraceSpan span(recorder->get(), "read");
  }
  const Status status = (*recorder)->finish();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), testing::HasSubstr("/dev/full"));
  EXPECT_EQ((*recorder)->num_dropped(), 3);
}

}  // namespace
}  // namespace darkroom
