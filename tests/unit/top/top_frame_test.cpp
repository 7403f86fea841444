#include "top_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace darkroom {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kDownload = R"(darkroom_build_info{verb="download",version="0.1.0"} 1
darkroom_process_uptime_seconds 10
darkroom_process_resident_bytes 250000000
darkroom_cost_dollars 1.25
darkroom_host_memory_bytes 24e9
darkroom_host_memory_available_bytes 20e9
darkroom_host_cpu_seconds_total{state="busy"} 30
darkroom_host_cpu_seconds_total{state="idle"} 10
darkroom_gpu_memory_bytes{gpu="0"} 80e9
darkroom_gpu_memory_used_bytes{gpu="0"} 30e9
darkroom_gpu_utilization{gpu="0"} 0.75
darkroom_job_rows 1000
darkroom_job_rows_done 250
darkroom_row_errors_total{code="http_404"} 12
darkroom_rows_total{stage="fetch"} 200
darkroom_bytes_total{stage="fetch"} 20000000
darkroom_stage_seconds_total{stage="fetch",state="busy"} 1
darkroom_stage_seconds_total{stage="fetch",state="blocked"} 0
darkroom_stage_seconds_total{stage="fetch",state="starved"} 9
darkroom_queue_items{stage="fetch"} 17
)";

ProcessLook look_at(const std::string& text, const std::string& where = "127.0.0.1:9100") {
  auto page = MetricsPage::parse(text);
  EXPECT_TRUE(page.is_ok()) << page.status().message();
  return {.where = where, .page = *std::move(page)};
}

std::string frame(const TopLook& now, const TopLook* before = nullptr) { return frame_text(draw_frame(now, before), 0, 0, false); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

const std::chrono::steady_clock::time_point kStart{};

TEST(TopFrame, shows_the_means_of_a_job_at_the_first_look) {
  const std::string text = frame({kStart, {look_at(kDownload)}});
  EXPECT_THAT(text, HasSubstr("machine: processors 75 %  memory 4.0 GB of 24.0 GB\n"));
  EXPECT_THAT(text, HasSubstr("GPU 0: at work 75 %  memory 30.0 GB of 80.0 GB\n"));
  EXPECT_THAT(text, HasSubstr("download at 127.0.0.1:9100  up 00:00:10  memory 250 MB  cost $1.25\n"));
  EXPECT_THAT(text, HasSubstr("  rows done 250 of 1000 (25 %)  without a result: http_404 12\n"));
  EXPECT_THAT(text, HasSubstr("  fetch                200        20.0      2.00    10 %      0 %     90 %      17\n"));
}

TEST(TopFrame, shows_the_rates_between_two_looks) {
  const TopLook before{kStart, {look_at(kDownload)}};
  std::string later = replaced(kDownload, "darkroom_rows_total{stage=\"fetch\"} 200", "darkroom_rows_total{stage=\"fetch\"} 300");
  later = replaced(later, "uptime_seconds 10", "uptime_seconds 12");
  later = replaced(later, "state=\"busy\"} 1\n", "state=\"busy\"} 3\n");
  const std::string text = frame({kStart + std::chrono::seconds(2), {look_at(later)}}, &before);
  EXPECT_THAT(text, HasSubstr("  fetch                300        50.0      0.00   100 %      0 %      0 %      17\n"));
}

TEST(TopFrame, begins_anew_for_another_process_at_the_same_port) {
  const TopLook before{kStart, {look_at(kDownload)}};
  const std::string younger = replaced(kDownload, "uptime_seconds 10", "uptime_seconds 4");
  EXPECT_THAT(frame({kStart + std::chrono::seconds(2), {look_at(younger)}}, &before), HasSubstr("  fetch                200        50.0 "));
}

TEST(TopFrame, shows_a_rank_and_what_its_steps_went_into) {
  const std::string text = frame({kStart, {look_at(R"(darkroom_build_info{verb="train",version="0.1.0"} 1
darkroom_process_uptime_seconds 4000
darkroom_train_rank 1
darkroom_train_ranks 2
darkroom_train_step 120
darkroom_train_last_step 2000
darkroom_train_loss 0.123456
darkroom_train_grad_norm 1.5
darkroom_train_learning_rate 0.0001
darkroom_train_images_per_second 35.12
darkroom_train_mfu 0.41
darkroom_train_peak_memory_bytes 1200000000
darkroom_train_phase_seconds_total{phase="data_wait"} 1
darkroom_train_phase_seconds_total{phase="forward"} 3
darkroom_train_phase_seconds_total{phase="backward"} 5
darkroom_train_phase_seconds_total{phase="update"} 1
darkroom_train_phase_seconds_total{phase="step"} 10
darkroom_train_goodput 0.93
darkroom_train_spent_seconds{spending="training"} 93
)")}});
  EXPECT_THAT(text, HasSubstr("train at 127.0.0.1:9100, rank 1 of 2  up 01:06:40"));
  EXPECT_THAT(text, HasSubstr("  step 120 of 2000  loss 0.1235  grad 1.500  lr 1.00e-04  35.1 images/s  MFU 41 %  peak memory 1.2 GB\n"));
  EXPECT_THAT(text, HasSubstr("  of a step: data_wait 10 % forward 30 % backward 50 % update 10 %\n"));
  EXPECT_THAT(text, HasSubstr("  goodput 93 %  spent: training 93 s\n"));
}

TEST(TopFrame, shows_an_endpoint) {
  const std::string text = frame({kStart, {look_at(R"(darkroom_process_uptime_seconds 10
darkroom_serve_pictures_total 20
darkroom_serve_calls_total 100
darkroom_serve_steps_total 250
darkroom_serve_open_cost 0
darkroom_serve_requests_total{route="/v1/x",status="200"} 4
darkroom_serve_requests_total{route="/v1/y",status="200"} 5
darkroom_serve_requests_total{route="/v1/y",status="429"} 1
)")}});
  EXPECT_THAT(text, HasSubstr("  pictures 20  2.00 pictures/s  2.5 steps a call  open cost 0\n"));
  EXPECT_THAT(text, HasSubstr("  requests: 200 9 429 1\n"));
}

TEST(TopFrame, says_why_a_process_does_not_answer_and_shows_the_others) {
  const std::string text = frame({kStart, {{.where = "9101", .failure = "refused"}, look_at(kDownload)}});
  EXPECT_THAT(text, HasSubstr("9101: refused\n"));
  EXPECT_THAT(text, HasSubstr("download at"));
}

TEST(TopFrame, shows_the_last_line_of_a_run_that_nobody_serves) {
  ProcessLook look{.where = "run/metrics.jsonl"};
  look.last_line = {{"step", 7}, {"loss", 0.5}, {"images_per_second", 12.0}, {"lr", "no number"}};
  EXPECT_THAT(frame({kStart, {look}}), HasSubstr("  step 7  loss 0.5000  grad -  lr -  12.0 images/s  goodput -\n"));
}

TEST(TopFrame, is_cut_to_the_terminal_and_bold_only_where_that_may_be) {
  const std::vector<TopLine> lines = {{"heading", true}, {"a longer line", false}, {"third", false}};
  EXPECT_EQ(frame_text(lines, 4, 2, false), "head\na lo\n");
  EXPECT_EQ(frame_text(lines, 0, 0, true), "\x1b[1mheading\x1b[0m\na longer line\nthird\n");
  EXPECT_THAT(frame_text(lines, 0, 0, false), Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace darkroom
