#include <fmt/format.h>

#include <algorithm>

#include "darkroom/train/training_plan.h"

namespace darkroom {
namespace {

constexpr double kSecondsPerHour = 3600;

std::string shown_size(int64_t num_bytes) {
  const auto bytes = static_cast<double>(num_bytes);
  return bytes >= 1e12  ? fmt::format("{:.2f} TB", bytes / 1e12)
         : bytes >= 1e9 ? fmt::format("{:.2f} GB", bytes / 1e9)
         : bytes >= 1e6 ? fmt::format("{:.2f} MB", bytes / 1e6)
                        : fmt::format("{:.2f} kB", bytes / 1e3);
}

struct PlanLine {
  int64_t bytes;
  const char* what;
};

void add_lines(std::string& text, std::initializer_list<PlanLine> lines) {
  for (const PlanLine& line : lines) {
    if (line.bytes > 0) {
      text += fmt::format("  {:>10}  {}\n", shown_size(line.bytes), line.what);
    }
  }
}

}  // namespace

int64_t TrainingPlan::peak_on_device() const {
  const int64_t in_passes = activations + pass_gradients;
  const int64_t in_turn = keeps_graphs ? in_passes + memory.received_sums : std::max(in_passes, memory.received_sums);
  return memory.kept() + device_inputs + in_turn;
}

int64_t TrainingPlan::peak_on_host() const {
  return (question.device == "cpu" ? peak_on_device() : 0) + batches + snapshot + std::max(most_samples, int64_t{0});
}

std::optional<double> TrainingPlan::hours() const {
  if (question.tflops <= 0) {
    return std::nullopt;
  }
  const double busiest_flop = step_flop * static_cast<double>(busiest_samples) / static_cast<double>(global_batch);
  return static_cast<double>(steps) * busiest_flop / (question.mfu * question.tflops * 1e12) / kSecondsPerHour;
}

double TrainingPlan::idle_share() const {
  return 1 - static_cast<double>(global_batch) / static_cast<double>(busiest_samples * question.num_ranks);
}

std::vector<std::string> TrainingPlan::remarks() const {
  std::vector<std::string> remarks;
  if (shuffled_samples > most_samples) {
    remarks.push_back(fmt::format(
        "data.memory_bytes is too small: runtime.lanes x data.window_blocks are {} of a large dataset a rank, and {} are kept; such a "
        "run is refused",
        shown_size(shuffled_samples), shown_size(most_samples)));
  }
  if (busiest_samples * question.num_ranks > global_batch) {
    const int64_t most_groups = busiest_samples * gradient_groups / global_batch;
    const int64_t as_fast = (gradient_groups + most_groups - 1) / most_groups;
    remarks.push_back(fmt::format(
        "{} ranks do not divide the {} gradient groups: the busiest rank takes {} of them, and the ranks stand idle for {:.1f} % "
        "of the passes' time{}",
        question.num_ranks, gradient_groups, most_groups, 100 * idle_share(),
        as_fast < question.num_ranks ? fmt::format("; {} ranks are as fast", as_fast) : ""));
  }
  if (keeps_graphs && looks) {
    remarks.emplace_back(
        "validation and previews take memory of the GPU beside the activations, which the recorded passes keep; where it is too little, "
        "--set runtime.graphs=false gives it back after each step");
  }
  return remarks;
}

std::string TrainingPlan::to_text() const {
  std::string text = fmt::format("{} of {} parameters in {} on {}, {} rank{}\n", component, parameters, precision, question.device,
                                 question.num_ranks, question.num_ranks == 1 ? "" : "s");
  text += fmt::format("memory of rank {}, which holds most: {} where the step runs\n", rank, shown_size(peak_on_device()));
  add_lines(text, {{memory.compute, "weights that the network computes with"},
                   {memory.master, "float32 weights of its slice beside them"},
                   {memory.moments, "moments of its slice"},
                   {memory.average, "moving average of its slice"},
                   {memory.gradients, "gradients"},
                   {memory.partial_sums, "sums of gradient groups that wait for their neighbours"},
                   {device_inputs, "the batch, and what recorded passes read of it"},
                   {activations, "activations"},
                   {pass_gradients, "gradients of passes side by side"},
                   {memory.received_sums, "other ranks' sums of its slice, when the passes are done"}});
  text += fmt::format("in the machine's memory, by each rank: {}, without frozen networks\n", shown_size(peak_on_host()));
  add_lines(text, {{batches, "batches at hand, ready and in the making"},
                   {snapshot, "copy of weights and state that checkpoints are written from (runtime.background_saves)"},
                   {most_samples, "samples kept, at most (data.memory_bytes)"},
                   {shuffled_samples, "of these shuffled at a time, of a large dataset"}});
  text += fmt::format("a step: {} samples in {} groups; rank {} takes {} in {} passes of {}, {} at a time; {:.4g} TFLOP\n", global_batch,
                      gradient_groups, rank, rank_samples, rank_passes, micro_batch, passes_at_a_time, step_flop / 1e12);
  text += fmt::format("  {:>10}  read from the store by all ranks\n", read_a_step ? shown_size(*read_a_step) : "pictures");
  add_lines(text, {{sent_a_step, "sent by a rank to the others"}});
  text += fmt::format("checkpoints: {} each, {} at the end\n", shown_size(checkpoint), shown_size(all_checkpoints));
  const auto time = hours();
  text +=
      time ? fmt::format("{} steps: {:.4g} hours at {:.3g} % of {:.4g} TFLOP/s a rank", steps, *time, 100 * question.mfu, question.tflops)
           : fmt::format("{} steps: hours need --tflops, the peak of a rank", steps);
  for (const std::string& remark : remarks()) {
    text += "\n! " + remark;
  }
  return text;
}

nlohmann::json TrainingPlan::to_json() const {
  nlohmann::json json = {{"component", component},
                         {"parameters", parameters},
                         {"precision", precision},
                         {"device", question.device},
                         {"ranks", question.num_ranks},
                         {"ranks_on_a_machine", question.local_ranks},
                         {"rank", rank},
                         {"bytes",
                          {{"compute_weights", memory.compute},
                           {"master_weights", memory.master},
                           {"moments", memory.moments},
                           {"average", memory.average},
                           {"gradients", memory.gradients},
                           {"partial_sums", memory.partial_sums},
                           {"received_sums", memory.received_sums},
                           {"activations", activations},
                           {"pass_gradients", pass_gradients},
                           {"device_inputs", device_inputs},
                           {"peak_on_device", peak_on_device()},
                           {"batches", batches},
                           {"snapshot", snapshot},
                           {"samples_at_most", most_samples},
                           {"samples_shuffled", shuffled_samples},
                           {"peak_on_host", peak_on_host()},
                           {"sent_a_step", sent_a_step},
                           {"checkpoint", checkpoint},
                           {"all_checkpoints", all_checkpoints}}},
                         {"batch",
                          {{"global", global_batch},
                           {"micro", micro_batch},
                           {"gradient_groups", gradient_groups},
                           {"rank_samples", rank_samples},
                           {"rank_passes", rank_passes},
                           {"passes_at_a_time", passes_at_a_time}}},
                         {"step_flop", step_flop},
                         {"idle_share", idle_share()},
                         {"steps", steps},
                         {"mfu", question.mfu},
                         {"remarks", remarks()}};
  if (read_a_step) {
    json["bytes"]["read_a_step"] = *read_a_step;
  }
  if (const auto time = hours()) {
    json["tflops"] = question.tflops;
    json["hours"] = *time;
  }
  return json;
}

}  // namespace darkroom
