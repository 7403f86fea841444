#include <memory>

#include "demo/demo_run.h"
#include "verb.h"

namespace darkroom {

Verb add_demo_verb(CLI::App& program) {
  const auto options = std::make_shared<DemoOptions>();  // Shared by CLI11's bindings and the action.
  CLI::App* command = program.add_subcommand("demo", "the whole chain on a real captioned picture set, on this machine");
  command->add_option("OUT", options->output, "folder to write; an older demo in it is replaced");
  command->add_option("--minutes", options->minutes, "training time")->type_name("M");
  command->add_option("--seed", options->seed, "of the corpus, the encoding, the rows trained on and the training")->type_name("S");
  command->add_option("--model", options->model, "complete model folder; default: models/tiny of the source folder")->type_name("DIR");
  return {command, [options](VerbContext& context) -> Result<int> {
            DARKROOM_RETURN_IF_ERROR(run_demo(*options, context.summary, context.stop));
            return 0;
          }};
}

}  // namespace darkroom
