#include <fmt/format.h>

#include "cost_model.h"

namespace darkroom {

void add_prediction(const MeasuredRates& measured, const PredictRequest& request, Plan& plan) {
  const MeasuredSteps& steps = *measured.steps;
  Sheet& sheet = plan.sheet;
  sheet.section("another run of the measured recipe");
  const std::string source = "measured: " + measured.from;
  const auto give = [&](const char* name, double value, const char* unit, const std::string& from, const char* label) {
    sheet.give(name, value, unit, from, label);
  };
  give("predicted_steps", static_cast<double>(request.steps), "steps", "asked for (--steps)", "steps");
  give("measured_batch", static_cast<double>(steps.batch), "pictures/steps", source, "batch of the measured run");
  if (request.batch > 0) {
    give("predicted_batch", static_cast<double>(request.batch), "pictures/steps", "asked for (--batch)", "batch");
  } else {
    sheet.derive("predicted_batch", "pictures/steps", "measured_batch", "batch");
  }
  give("micro_batch", static_cast<double>(steps.micro), "pictures/passes", source, "samples of a forward pass");
  give("workers", static_cast<double>(steps.workers), "1", source, "forward passes side by side");
  give("passes_per_round", 1, "passes/rounds", "by definition", "a round is a pass of every worker");
  give("start_seconds", steps.start_seconds, "s", source, "from the start until the first step");
  give("pass_seconds", steps.pass_seconds, "s/steps", source, "data, forward and backward of a step, mean");
  give("update_seconds", steps.update_seconds, "s/steps", source, "clipping, optimizer and EMA of a step, mean");
  give("between_seconds", steps.between_seconds, "s/steps", source, "time between steps (logging), median");
  give("save_seconds", steps.save_seconds, "s/checkpoints", source, "a checkpoint, with previews and validation, mean");
  give("steps_per_checkpoint", static_cast<double>(steps.save_every), "steps/checkpoints", source, "steps between checkpoints");
  sheet.derive("predicted_checkpoints", "checkpoints", "ceil(predicted_steps / steps_per_checkpoint)", "checkpoints");
  const char* const kRounds = "ceil(ceil({}_batch / micro_batch) / workers / passes_per_round)";
  sheet.derive("measured_rounds", "rounds/steps", fmt::format(fmt::runtime(kRounds), "measured"), "rounds of passes in a measured step");
  sheet.derive("predicted_rounds", "rounds/steps", fmt::format(fmt::runtime(kRounds), "predicted"), "rounds of passes in a step");
  sheet.derive("predicted_step_seconds", "s/steps", "pass_seconds * predicted_rounds / measured_rounds + update_seconds + between_seconds",
               "a step");
  sheet.derive("predicted_seconds", "s", "start_seconds + predicted_steps * predicted_step_seconds + predicted_checkpoints * save_seconds",
               "wall time of the run");
}

}  // namespace darkroom
