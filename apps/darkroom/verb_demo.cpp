#include <memory>

#include "demo/demo_run.h"
#include "verb.h"

namespace darkroom {

void add_demo_verb(CommandLine& line) {
  const auto options = std::make_shared<DemoOptions>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("demo", "the whole chain on a real captioned picture set, on this machine");
  verb.positional("OUT", value::path(options->output, "OUT"), "folder to write; an older demo in it is replaced");
  verb.flag("--minutes", value::minutes(options->minutes).above(0), "training time");
  verb.flag("--seed", value::count(options->seed).shown("S"), "of the corpus, the encoding, the rows trained on and the training");
  verb.flag("--model", value::folder(options->model, "DIR", "the shipped models/tiny"), "complete model folder");
  verb.example("darkroom demo --minutes 2", "a short one, in demo-run/");
  verb.run([options](VerbContext& context) -> Result<int> {
    DARKROOM_RETURN_IF_ERROR(run_demo(*options, context.summary, context.stop));
    return 0;
  });
}

}  // namespace darkroom
