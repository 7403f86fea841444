#include <fmt/format.h>

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "darkroom/process/transform_service.h"
#include "jobs/job_observation.h"
#include "opening/open_stores.h"
#include "painting/picture_flags.h"
#include "resources.h"
#include "self_description.h"
#include "verb.h"

namespace darkroom {
namespace {

struct TransformerFlags {
  TransformServiceOptions options;
  std::string listen = "127.0.0.1:0";
  bool is_sandboxed = true;
  ObservationFlags observation;
};

Result<int> run_transformer(const TransformerFlags& flags, VerbContext& context) {
  TransformServiceOptions options = flags.options;
  DARKROOM_ASSIGN_OR_RETURN(options.address, parse_listen_address(flags.listen));
  options.token = encoder_token();
  DARKROOM_RETURN_IF_ERROR(options.validate());
  if (flags.is_sandboxed) {
    DARKROOM_ASSIGN_OR_RETURN(options.decoder_program, find_decoder());
  }
  DARKROOM_ASSIGN_OR_RETURN(const auto observation, JobObservation::start(flags.observation, {.verb = "transformer"}));
  options.metrics = &observation->registry();
  options.trace = observation->trace();
  std::stop_source reading;  // Of the stores, which are waited for as long as the job waits for its own.
  const auto stores = open_job_stores(observation->registry(), reading.get_token());
  const std::function<void()> end_reading = [&reading] { reading.request_stop(); };
  std::optional<std::stop_callback<std::function<void()>>> at_stop(std::in_place, context.stop, end_reading);
  options.on_drained = end_reading;
  SliceServerCounts counts;
  const auto ready = [&at_stop](const SocketAddress& address) {
    at_stop.reset();  // From now on the stores read on after a stop, for slices that are being made.
    return print_text(fmt::format("transformer ready at {}\n", address.to_string()));
  };
  const Status served = serve_transforms(*stores, options, ready, context.stop, counts);
  context.summary["transformer"] = {
      {"rows", counts.rows}, {"slices", counts.slices}, {"seconds", counts.seconds}, {"busy_seconds", counts.busy_seconds}};
  observation->tell_cost(context.summary["transformer"]);
  DARKROOM_RETURN_IF_ERROR(served);
  return 0;
}

}  // namespace

void add_transformer_verb(CommandLine& line) {
  const auto flags = std::make_shared<TransformerFlags>();  // Shared by the definitions and the action.
  TransformServiceOptions& options = flags->options;
  VerbDefinition& verb =
      line.add_verb("transformer", "reads and transforms an image dataset for `process --transformers` on other machines");
  verb.positional("RAW_URI", value::uri(options.input, "URI"), "image dataset, as the job's").required();
  verb.group("Pictures: as the job's");
  add_transform_flags(verb, options.transform, options.seed, "the random crop");
  verb.flag("--caption-column", value::text(options.caption_column, "NAME", "auto"), "column of the captions; auto: by the known names");
  verb.flag("--keep-columns", column_names(options.keep_columns), "columns of the image dataset to carry along");
  verb.group("How to work");
  verb.flag("--listen", value::text(flags->listen, "ADDRESS:PORT"),
            "where; port 0: one that is free, which the first line on stdout names; beyond loopback DARKROOM_ENCODER_TOKEN must be set");
  verb.flag("--num-workers", value::count(options.num_workers).least(1).also("auto", 0),
            "rows are worked on by so many threads; auto: as many as processors");
  verb.flag("--no-sandbox", value::toggle_off(flags->is_sandboxed),
            "decode pictures in this process: where the kernel refuses the sandbox, or all pictures are trusted");
  add_observation_flags(verb, flags->observation);
  verb.example("darkroom transformer images --resolution 64", "on this machine, at a port that is printed");
  verb.example("darkroom transformer s3://bucket/images --resolution 256 --listen 0.0.0.0:7001",
               "on a machine of processors, with DARKROOM_ENCODER_TOKEN in its environment");
  verb.run([flags](VerbContext& context) { return run_transformer(*flags, context); });
}

}  // namespace darkroom
