#include "top_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace darkroom {
namespace {

/// A process now and, where it was there before, then.
struct Change {
  const MetricsPage& now;
  const MetricsPage* before;
  double seconds;  // Between the two, or since the process began.

  /// What a counter has grown by.
  double grown(const std::string& name, const Labels& labels = {}) const {
    return now.sum(name, labels) - (before == nullptr ? 0 : before->sum(name, labels));
  }
  double rate(const std::string& name, const Labels& labels = {}) const { return seconds > 0 ? grown(name, labels) / seconds : 0; }
};

std::string size_text(double bytes) {
  return bytes >= 1e9   ? fmt::format("{:.1f} GB", bytes * 1e-9)
         : bytes >= 1e6 ? fmt::format("{:.0f} MB", bytes * 1e-6)
                        : fmt::format("{:.0f} B", bytes);
}

std::string time_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::isfinite(seconds) ? std::clamp(seconds, 0.0, 1e12) : 0);
  return fmt::format("{:02}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string share_text(double part, double whole) { return whole > 0 ? fmt::format("{:.0f} %", 100 * part / whole) : "-"; }

/// A number that may not be there.
std::string number_text(const std::optional<double>& value, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value) : "-";
}

std::string verb_of(const MetricsPage& page) {
  const auto& info = page.samples("darkroom_build_info");
  return info.empty() ? "process" : info.front().label("verb");
}

std::string process_heading(const ProcessLook& process) {
  const MetricsPage& page = process.page;
  std::string text = fmt::format("{} at {}", verb_of(page), process.where);
  if (const auto ranks = page.find("darkroom_train_ranks")) {
    text += fmt::format(", rank {:.0f} of {:.0f}", page.value_or("darkroom_train_rank", 0), *ranks);
  }
  text += fmt::format("  up {}  memory {}", time_text(page.value_or("darkroom_process_uptime_seconds", 0)),
                      size_text(page.value_or("darkroom_process_resident_bytes", 0)));
  if (const auto cost = page.find("darkroom_cost_dollars")) {
    text += fmt::format("  cost ${:.2f}", *cost);
  }
  return text;
}

/// The stages in the order of the page.
std::vector<std::string> stages_of(const MetricsPage& page) {
  constexpr size_t kMostStages = 64;  // More are no job's of ours.
  std::vector<std::string> names;
  for (const MetricsPage::Sample& sample : page.samples("darkroom_rows_total")) {
    const std::string stage = sample.label("stage");
    if (names.size() < kMostStages && std::ranges::find(names, stage) == names.end()) {
      names.push_back(stage);
    }
  }
  return names;
}

void add_stages(const Change& change, std::vector<TopLine>& lines) {
  const std::vector<std::string> stages = stages_of(change.now);
  if (stages.empty()) {
    return;
  }
  lines.push_back({fmt::format("  {:<12}{:>12}{:>12}{:>10}{:>8}{:>9}{:>9}{:>8}", "stage", "rows", "rows/s", "MB/s", "busy", "blocked",
                               "starved", "queue"),
                   true});
  for (const std::string& stage : stages) {
    const Labels labels = {{"stage", stage}};
    const auto seconds = [&](const char* state) {
      return change.grown("darkroom_stage_seconds_total", {{"stage", stage}, {"state", state}});
    };
    const double all = seconds("busy") + seconds("blocked") + seconds("starved");
    lines.push_back(
        {fmt::format("  {:<12}{:>12.0f}{:>12.1f}{:>10.2f}{:>8}{:>9}{:>9}{:>8}", stage, change.now.sum("darkroom_rows_total", labels),
                     change.rate("darkroom_rows_total", labels), 1e-6 * change.rate("darkroom_bytes_total", labels),
                     share_text(seconds("busy"), all), share_text(seconds("blocked"), all), share_text(seconds("starved"), all),
                     number_text(change.now.find("darkroom_queue_items", labels), "{:.0f}"))});
  }
}

void add_job(const Change& change, std::vector<TopLine>& lines) {
  const auto rows = change.now.find("darkroom_job_rows");
  if (!rows) {
    return;
  }
  const double done = change.now.value_or("darkroom_job_rows_done", 0);
  std::string text = fmt::format("  rows done {:.0f} of {:.0f} ({})", done, *rows, share_text(done, *rows));
  const auto& errors = change.now.samples("darkroom_row_errors_total");
  text += errors.empty() ? "" : "  without a result:";
  for (const MetricsPage::Sample& error : errors) {
    text += fmt::format(" {} {:.0f}", error.label("code"), error.value);
  }
  lines.push_back({text});
}

void add_training(const Change& change, std::vector<TopLine>& lines) {
  const MetricsPage& page = change.now;
  const auto step = page.find("darkroom_train_step");
  if (!step) {
    return;
  }
  const auto mfu = page.find("darkroom_train_mfu");
  lines.push_back(
      {fmt::format("  step {:.0f} of {:.0f}  loss {}  grad {}  lr {}  {:.1f} images/s  MFU {}  peak memory {}", *step,
                   page.value_or("darkroom_train_last_step", 0), number_text(page.find("darkroom_train_loss"), "{:.4f}"),
                   number_text(page.find("darkroom_train_grad_norm"), "{:.3f}"),
                   number_text(page.find("darkroom_train_learning_rate"), "{:.2e}"), page.value_or("darkroom_train_images_per_second", 0),
                   mfu ? share_text(*mfu, 1) : "-", size_text(page.value_or("darkroom_train_peak_memory_bytes", 0)))});
  const auto seconds = [&](const char* phase) { return change.grown("darkroom_train_phase_seconds_total", {{"phase", phase}}); };
  std::string text = "  of a step:";
  for (const char* phase : {"data_wait", "forward", "backward", "update"}) {
    text += fmt::format(" {} {}", phase, share_text(seconds(phase), seconds("step")));
  }
  lines.push_back({text});
  if (const auto goodput = page.find("darkroom_train_goodput")) {
    text = fmt::format("  goodput {}  spent:", share_text(*goodput, 1));
    for (const MetricsPage::Sample& spent : page.samples("darkroom_train_spent_seconds")) {
      text += fmt::format(" {} {:.0f} s", spent.label("spending"), spent.value);
    }
    lines.push_back({text});
  }
}

void add_serving(const Change& change, std::vector<TopLine>& lines) {
  const MetricsPage& page = change.now;
  if (!page.find("darkroom_serve_pictures_total")) {
    return;
  }
  const double calls = change.grown("darkroom_serve_calls_total");
  lines.push_back({fmt::format("  pictures {:.0f}  {:.2f} pictures/s  {} steps a call  open cost {:.3g}",
                               page.sum("darkroom_serve_pictures_total"), change.rate("darkroom_serve_pictures_total"),
                               calls > 0 ? fmt::format("{:.1f}", change.grown("darkroom_serve_steps_total") / calls) : "-",
                               page.value_or("darkroom_serve_open_cost", 0))});
  std::map<std::string, double> requests;
  for (const MetricsPage::Sample& sample : page.samples("darkroom_serve_requests_total")) {
    requests[sample.label("status")] += sample.value;
  }
  std::string text = "  requests:";
  for (const auto& [status, count] : requests) {
    text += fmt::format(" {} {:.0f}", status, count);
  }
  lines.push_back({requests.empty() ? "  requests: none" : text});
}

void add_last_line(const ProcessLook& process, std::vector<TopLine>& lines) {
  const auto number = [&](const char* key) {
    const auto found = process.last_line.find(key);
    return found != process.last_line.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
  };
  lines.push_back({fmt::format("train, as {} says; no process of it has an address here", process.where), true});
  lines.push_back(
      {fmt::format("  step {}  loss {}  grad {}  lr {}  {} images/s  goodput {}", number_text(number("step"), "{:.0f}"),
                   number_text(number("loss"), "{:.4f}"), number_text(number("grad_norm"), "{:.3f}"), number_text(number("lr"), "{:.2e}"),
                   number_text(number("images_per_second"), "{:.1f}"), number_text(number("goodput"), "{:.2f}"))});
}

/// Of the machine that the first process which says so runs on.
void add_machine(const Change& change, std::vector<TopLine>& lines) {
  const MetricsPage& page = change.now;
  const auto memory = page.find("darkroom_host_memory_bytes");
  if (memory) {
    const double busy = change.grown("darkroom_host_cpu_seconds_total", {{"state", "busy"}});
    const double all = change.grown("darkroom_host_cpu_seconds_total");
    lines.push_back({fmt::format("machine: processors {}  memory {} of {}", share_text(busy, all),
                                 size_text(*memory - page.value_or("darkroom_host_memory_available_bytes", 0)), size_text(*memory))});
  }
  for (const MetricsPage::Sample& total : page.samples("darkroom_gpu_memory_bytes")) {
    const auto use = page.find("darkroom_gpu_utilization", total.labels);
    lines.push_back({fmt::format("GPU {}: at work {}  memory {} of {}", total.label("gpu"), use ? share_text(*use, 1) : "-",
                                 size_text(page.value_or("darkroom_gpu_memory_used_bytes", 0, total.labels)), size_text(total.value))});
  }
}

Change change_of(const ProcessLook& process, const TopLook& now, const TopLook* before) {
  const ProcessLook* then = nullptr;
  if (before != nullptr) {
    const auto found = std::ranges::find(before->processes, process.where, &ProcessLook::where);
    // Another process may have the port now: its counters have begun anew.
    const bool is_same =
        found != before->processes.end() && found->failure.empty() &&
        found->page.value_or("darkroom_process_uptime_seconds", 0) <= process.page.value_or("darkroom_process_uptime_seconds", 0);
    then = is_same ? &*found : nullptr;
  }
  const double seconds = then == nullptr ? process.page.value_or("darkroom_process_uptime_seconds", 0)
                                         : std::chrono::duration<double>(now.at - before->at).count();
  return {.now = process.page, .before = then == nullptr ? nullptr : &then->page, .seconds = seconds};
}

}  // namespace

std::vector<TopLine> draw_frame(const TopLook& now, const TopLook* before) {
  std::vector<TopLine> machine;
  std::vector<TopLine> lines;
  for (const ProcessLook& process : now.processes) {
    if (!process.failure.empty()) {
      lines.push_back({fmt::format("{}: {}", process.where, process.failure), true});
    } else if (!process.last_line.is_null()) {
      add_last_line(process, lines);
    } else {
      const Change change = change_of(process, now, before);
      if (machine.empty()) {
        add_machine(change, machine);
      }
      lines.push_back({process_heading(process), true});
      add_job(change, lines);
      add_stages(change, lines);
      add_training(change, lines);
      add_serving(change, lines);
    }
  }
  machine.insert(machine.end(), lines.begin(), lines.end());
  return machine;
}

std::string frame_text(const std::vector<TopLine>& lines, size_t columns, size_t rows, bool is_colored) {
  std::string text;
  const size_t num_lines = rows == 0 ? lines.size() : std::min(rows, lines.size());
  for (size_t i = 0; i < num_lines; ++i) {
    const std::string line = columns == 0 ? lines[i].text : lines[i].text.substr(0, columns);
    text += is_colored && lines[i].is_heading ? "\x1b[1m" + line + "\x1b[0m\n" : line + "\n";
  }
  return text;
}

}  // namespace darkroom
