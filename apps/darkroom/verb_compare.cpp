#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "darkroom/compare/compare.h"
#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/files/file_system.h"
#include "darkroom/image/sandbox.h"
#include "opening/open_stores.h"
#include "painting/compare_sides.h"
#include "painting/painter_flags.h"
#include "painting/painting_progress.h"
#include "resources.h"
#include "verb.h"

namespace darkroom {
namespace {

struct CompareFlags {
  std::string a;
  std::string b;
  PainterFlags painter;
  CompareJob job;
  double error_percent = 5;
  std::vector<std::string> votes;
  bool is_sandboxed = true;
};

nlohmann::json summary_of(const CompareReport& report, double seconds) {
  nlohmann::json summary = {{"rows_in", report.num_painted},
                            {"rows_out", report.num_painted},
                            {"rows_by_error", nlohmann::json::object()},
                            {"rows_asked", report.num_asked},
                            {"rows_found", report.num_found},
                            {"retries", 0},
                            {"seconds", seconds},
                            {"rows_per_second", static_cast<double>(report.num_painted) / seconds}};
  for (const char* part : {"verdict", "measures", "between", "num_identical"}) {
    summary[part] = report.report.is_object() ? report.report.at(part) : nlohmann::json();
  }
  return summary;
}

// Paints and measures on this machine and shows how far it is.
Status compare_here(const CompareJob& job, const std::stop_token& stop, CompareReport& report) {
  PaintingProgressLine progress("compare");
  return run_comparison(local_files(), job, stop, report, progress.teller());
}

// How references are decoded; whether that works is found out before hours of painting.
Status choose_decoder(CompareFlags& flags, const std::stop_token& stop) {
  if (flags.job.references.empty() || !flags.is_sandboxed) {
    return Status::ok();
  }
  DARKROOM_ASSIGN_OR_RETURN(flags.job.decoder_program, find_decoder());
  return check_decoder(flags.job.decoder_program, ImageLimits{}, stop);
}

// Whatever the models are called and wherever they lie.
Status compare(CompareFlags flags, const std::stop_token& stop, CompareReport& report) {
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, stop);
  DARKROOM_ASSIGN_OR_RETURN(const PainterSource source, chosen_source(flags.painter));
  flags.job.place = source.place;
  DARKROOM_ASSIGN_OR_RETURN(const OpenedSide a, open_side(*stores, flags.a, source, stop));
  DARKROOM_ASSIGN_OR_RETURN(const OpenedSide b, open_side(*stores, flags.b, source, stop));
  DARKROOM_RETURN_IF_ERROR(choose_decoder(flags, stop));
  flags.job.a = a.side;
  flags.job.b = b.side;
  return compare_here(flags.job, stop, report);
}

// What there is to be said at the end, on stdout.
void print_outcome(const nlohmann::json& report, const std::string& output) {
  fmt::print("{}\n", report["verdict"]["text"].get<std::string>());
  for (const auto& measure : report["measures"]) {
    fmt::print("  {:<40} A {:.4g}, B {:.4g}, prefers {}\n", measure["label"].get<std::string>(), measure["a"].get<double>(),
               measure["b"].get<double>(), measure["preference"].get<std::string>());
  }
  fmt::print("{}/report.html\n", output);
}

Result<int> run_votes(const CompareFlags& flags, VerbContext& context) {
  if (!flags.a.empty() || !flags.b.empty()) {
    return Status::invalid_argument("--votes counts what was voted on the comparison in --output; leave the models away, got:", flags.a);
  }
  DARKROOM_ASSIGN_OR_RETURN(const nlohmann::json votes, count_comparison_votes(local_files(), flags.job.output, flags.votes));
  context.summary["compare"] = {{"votes", votes}};
  fmt::print("{} pairs for A, {} for B, {} undecided; prefers {}\n", votes["for_a"].get<int64_t>(), votes["for_b"].get<int64_t>(),
             votes["undecided"].get<int64_t>(), votes["preference"].get<std::string>());
  if (!votes["share_for_a"].is_null()) {
    fmt::print("of the decided pairs {:.1f} % for A, interval {:.1f} to {:.1f} %\n", 100 * votes["share_for_a"].get<double>(),
               100 * votes["low"].get<double>(), 100 * votes["high"].get<double>());
  }
  return 0;
}

Result<int> run_compare(const CompareFlags& flags, VerbContext& context) {
  if (!flags.votes.empty()) {
    return run_votes(flags, context);
  }
  if (flags.job.prompts_file.empty()) {
    return Status::invalid_argument("--prompts-file is required without --votes");
  }
  const auto start = std::chrono::steady_clock::now();
  at::set_num_threads(flags.job.threads);
  CompareFlags asked = flags;
  asked.job.error_rate = flags.error_percent / 100;
  CompareReport report;
  const Status status = compare(std::move(asked), context.stop, report);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  context.summary["compare"] = summary_of(report, seconds);
  DARKROOM_RETURN_IF_ERROR(status);
  log_info("painted {} pictures, found {}, in {:.1f} s", report.num_painted, report.num_found, seconds);
  print_outcome(report.report, flags.job.output);
  return 0;
}

// Names with commas between them.
ValueDefinition metric_names(std::vector<std::string>& names) {
  ValueDefinition definition{.kind = "text", .shown = "NAME,...", .default_text = "all that can be measured"};
  definition.take = [names = &names](const std::vector<std::string>& values) -> Status {
    names->clear();
    const std::string& list = values.back();
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(',', begin), list.size());
      const std::string name = list.substr(begin, end - begin);
      if (std::ranges::find(kCompareMetrics, std::string_view(name)) == std::end(kCompareMetrics)) {
        return Status::invalid_argument(
            fmt::format("must be names of {} with commas between them, got: {}", fmt::join(kCompareMetrics, ", "), quote_value(list)));
      }
      names->push_back(name);
      begin = end + 1;
    }
    return Status::ok();
  };
  return definition;
}

void add_prompt_flags(VerbDefinition& verb, CompareFlags& flags) {
  verb.group("What both paint");
  verb.flag("--prompts-file", value::path(flags.job.prompts_file, "FILE"), "one prompt a line, each once").required_unless("--votes");
  verb.flag("--seeds", value::count(flags.job.num_seeds).least(1).most(100), "pictures per prompt and model");
  verb.flag("--seed", value::count(flags.job.seed), "picture j of prompt i uses seed + i x seeds + j; also of the statistics");
  verb.flag("--negative", value::free_text(flags.job.request.negative, "TEXT"), "what guidance leads away from");
  verb.flag("--size", value::picture_size(flags.job.request.width, flags.job.request.height), "of the pictures");
  add_reading_flags(verb, flags.job.request.reading);
}

void add_measure_flags(VerbDefinition& verb, CompareFlags& flags) {
  verb.group("What is measured");
  verb.flag("--references", value::path(flags.job.references, "DATASET", "none"),
            "pictures whose captions are prompts: an image dataset or a folder of pictures with captions");
  verb.flag("--no-sandbox", value::toggle_off(flags.is_sandboxed),
            "decode references in this process: where the kernel refuses the sandbox, or all pictures are trusted");
  verb.flag("--metrics", metric_names(flags.job.metrics), "which measures may decide");
  verb.flag("--weights-dir", value::folder(flags.job.weights_dir, "DIR", "none"),
            "networks of clip, clip-fid, fid and kid: DIR/clip (transformers), DIR/inception-2015-12-05.pt");
  verb.flag("--error-rate", value::percent(flags.error_percent).above(0).most(49),
            "how often models that paint alike may be told apart; intervals hold with the rest");
  verb.flag("--resamples", value::count(flags.job.num_resamples).least(100).most(1'000'000),
            "of the bootstrap and of the randomisation test");
  verb.flag("--votes", value::texts(flags.votes, "FILE"), "count what was voted in vote.html of --output, a file per person, and end");
}

}  // namespace

void add_compare_verb(CommandLine& line) {
  const auto flags = std::make_shared<CompareFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("compare", "two models on the same prompts and seeds: a report, a sheet, a blind vote");
  verb.positional("A", value::uri(flags->a, "MODEL"), "model folder, checkpoint or single file").required_unless("--votes");
  verb.positional("B", value::uri(flags->b, "MODEL"), "the other one").required_unless("--votes");
  verb.flag("--output", value::folder(flags->job.output, "DIR"), "folder of the comparison; the same command goes on there").required();
  add_prompt_flags(verb, *flags);
  verb.group("How both paint");
  add_sampler_flags(verb, flags->job.request);
  add_place_flags(verb, flags->painter);
  verb.flag("--workers", value::count(flags->job.workers).least(1).also("auto", 0), "pictures painted side by side; changes no bit");
  verb.flag("--threads", value::count(flags->job.threads).least(1),
            "CPU threads inside an operation, which change the last bits of a picture");
  verb.group("Models");
  add_source_flags(verb, flags->painter);
  add_measure_flags(verb, *flags);
  verb.example(
      "darkroom compare run/checkpoints/step-00001000 run/checkpoints/step-00002000 --prompts-file prompts.txt "
      "--references images --output compared",
      "which of two checkpoints paints nearer to the pictures whose captions the prompts are");
  verb.example("darkroom compare --votes votes.json --output compared", "what a person preferred who did not know which is which");
  verb.run([flags](VerbContext& context) { return run_compare(*flags, context); });
}

}  // namespace darkroom
