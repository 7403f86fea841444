#include <fmt/format.h>

#include <memory>
#include <string>

#include "darkroom/core/log.h"
#include "darkroom/stores/fetch_model.h"
#include "verb.h"

namespace darkroom {
namespace {

struct FetchFlags {
  std::string source;
  std::string output;
};

Result<int> run_fetch(const FetchFlags& flags, VerbContext& context) {
  MetricsRegistry metrics;
  const auto say = [](const std::string& path, int64_t size_bytes) {
    log_info("fetching {} ({:.1f} MB)", path, static_cast<double>(size_bytes) / 1e6);
  };
  DARKROOM_ASSIGN_OR_RETURN(const FetchedModel fetched, fetch_model(flags.source, flags.output, {.on_file = say}, metrics, context.stop));
  context.summary = {
      {"commit", fetched.commit}, {"files", fetched.num_files}, {"bytes", fetched.num_bytes}, {"resumed_bytes", fetched.num_resumed_bytes}};
  log_info("wrote {} from {}, commit {}: {} files, every hash as the hub names it", flags.output, flags.source, fetched.commit,
           fetched.num_files);
  return 0;
}

}  // namespace

void add_models_fetch_verb(CommandLine& line) {
  const auto flags = std::make_shared<FetchFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("models fetch", "a model folder of the Hugging Face hub, checked against the hub's hashes");
  verb.positional("SOURCE", value::uri(flags->source, "hf://ORG/NAME[@REVISION]"), "model on the hub; HF_TOKEN and HF_ENDPOINT are obeyed")
      .required();
  verb.positional("OUT", value::path(flags->output, "OUT"), "folder to write; must not exist").required();
  verb.example("darkroom models fetch hf://org/model@main my-model", "run again after a failure, it goes on where it ended");
  verb.run([flags](VerbContext& context) { return run_fetch(*flags, context); });
}

}  // namespace darkroom
