#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/verbosity.h"
#include "self_description.h"
#include "top_frame.h"
#include "top_screen.h"
#include "top_targets.h"
#include "verb.h"

namespace darkroom {
namespace {

struct TopFlags {
  std::vector<std::string> targets;
  double interval_seconds = 1;
  bool is_once = false;
};

/// One frame as text. Errors: kUnavailable where no target could be looked at.
Result<int> show_once(TopTargets& targets, const std::stop_token& stop) {
  const TopLook look = targets.look(stop);
  DARKROOM_RETURN_IF_ERROR(print_text(frame_text(draw_frame(look, nullptr), 0, 0, may_color(STDOUT_FILENO))));
  const bool is_any = std::ranges::any_of(look.processes, [](const ProcessLook& process) { return process.failure.empty(); });
  return is_any ? Result<int>(0) : Status::unavailable("no target could be looked at; the first one:", look.processes.front().failure);
}

Result<int> show_frames(TopTargets& targets, double interval_seconds, const std::stop_token& stop) {
  DARKROOM_ASSIGN_OR_RETURN(const auto screen, TopScreen::open());
  const std::chrono::milliseconds interval(static_cast<int64_t>(interval_seconds * 1000));
  std::optional<TopLook> before;
  do {
    TopLook look = targets.look(stop);
    std::vector<TopLine> lines = draw_frame(look, before ? &*before : nullptr);
    lines.push_back({"q: quit"});
    DARKROOM_RETURN_IF_ERROR(screen->show(frame_text(lines, screen->columns(), screen->rows(), may_color(STDOUT_FILENO))));
    before = std::move(look);
  } while (screen->wait(interval, stop));
  return stop.stop_requested() ? Result<int>(Status::cancelled("stopped; the jobs go on")) : Result<int>(0);
}

}  // namespace

void add_top_verb(CommandLine& line) {
  const auto flags = std::make_shared<TopFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("top", "stages, ranks, errors and machines of running jobs, in the terminal");
  verb.positional(
          "TARGET", value::texts(flags->targets, "TARGET"),
          "where to look: the run folder or the output of a job that was started with --metrics-port, or the address of its numbers: PORT, "
          "HOST:PORT or a URL")
      .required();
  verb.flag("--interval", value::seconds(flags->interval_seconds).least(0.1).most(3600), "between two looks");
  verb.flag("--once", value::toggle(flags->is_once),
            "print one frame as text and end; so it does, too, where standard input and output are no terminal");
  verb.example("darkroom top run", "a training run on this machine; q ends it");
  verb.example("darkroom top 9101 9102 --once", "two processes, once");
  verb.run([flags](VerbContext& context) -> Result<int> {
    DARKROOM_ASSIGN_OR_RETURN(const auto targets, TopTargets::open(flags->targets));
    if (flags->is_once || !TopScreen::is_there()) {
      return show_once(*targets, context.stop);
    }
    context.is_rank();  // The first signal ends it at once; a second one must not leave the terminal without its settings.
    return show_frames(*targets, flags->interval_seconds, context.stop);
  });
}

}  // namespace darkroom
