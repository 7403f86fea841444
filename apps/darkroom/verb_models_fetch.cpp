#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "darkroom/core/log.h"
#include "darkroom/stores/fetch_model.h"
#include "darkroom/stream/progress.h"
#include "darkroom/stream/rate_window.h"
#include "verb.h"

namespace darkroom {
namespace {

struct FetchFlags {
  std::string source;
  std::string output;
};

/// How much of the model is there, on a terminal, while it lives; elsewhere the lines of the files are enough.
class FetchProgressLine {
 public:
  FetchProgressLine() { bytes_.add(std::chrono::steady_clock::now(), 0); }
  ~FetchProgressLine() { show_progress(""); }
  FetchProgressLine(const FetchProgressLine&) = delete;
  FetchProgressLine& operator=(const FetchProgressLine&) = delete;

  void show(const FetchedModel& so_far) {
    const double num_bytes = static_cast<double>(so_far.num_bytes);
    const double num_wanted = static_cast<double>(so_far.num_wanted_bytes);
    const double share = num_bytes / std::max(1.0, num_wanted);
    bytes_.add(std::chrono::steady_clock::now(), num_bytes - static_cast<double>(so_far.num_resumed_bytes));
    const double bytes_per_second = bytes_.per_second();
    std::string text =
        fmt::format("models fetch {}{:.1f}/{:.1f} MB ({:.1f}%), {}/{} files, {:.1f} MB/s", terminal_bar(share), num_bytes * 1e-6,
                    num_wanted * 1e-6, 100.0 * share, so_far.num_files, so_far.num_wanted_files, bytes_per_second * 1e-6);
    if (bytes_per_second > 0) {
      text += ", ETA " + clock_text((num_wanted - num_bytes) / bytes_per_second);
    }
    show_progress(text);
  }

 private:
  RateWindow bytes_;  // Of this run.
};

nlohmann::json summary_of(const FetchedModel& fetched) {
  return {{"commit", fetched.commit},
          {"files", fetched.num_files},
          {"bytes", fetched.num_bytes},
          {"resumed_bytes", fetched.num_resumed_bytes},
          {"files_wanted", fetched.num_wanted_files},
          {"bytes_wanted", fetched.num_wanted_bytes}};
}

Result<FetchedModel> fetch_shown(const FetchFlags& flags, VerbContext& context) {
  MetricsRegistry metrics;
  FetchProgressLine line;
  const auto say = [](const std::string& path, int64_t size_bytes) {
    log_info("fetching {} ({:.1f} MB)", path, static_cast<double>(size_bytes) / 1e6);
  };
  const auto note = [&](const FetchedModel& so_far) {
    context.summary = summary_of(so_far);
    line.show(so_far);
  };
  return fetch_model(flags.source, flags.output, {.on_file = say, .on_progress = note}, metrics, context.stop);
}

Result<int> run_fetch(const FetchFlags& flags, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const FetchedModel fetched, fetch_shown(flags, context));
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
