#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/data/download_job.h"
#include "darkroom/files/file_system.h"
#include "later_flags.h"
#include "verb.h"

namespace darkroom {
namespace {

constexpr int kExitOverErrorBudget = 3;

struct DownloadFlags {
  DownloadOptions options;
  double timeout_seconds = 20;
  std::string validate = "header";
  std::vector<std::string> allow_private;
  double error_budget_percent = 60;
};

Result<DownloadOptions> options_of(const DownloadFlags& flags) {
  DownloadOptions options = flags.options;
  if (!(flags.timeout_seconds > 0 && flags.timeout_seconds < 1e6)) {
    return Status::invalid_argument("--timeout must be a positive number of seconds, got:", flags.timeout_seconds);
  }
  options.fetch.timeout = std::chrono::milliseconds(static_cast<int64_t>(flags.timeout_seconds * 1000));
  if (flags.validate != "header" && flags.validate != "full") {
    return Status::invalid_argument("--validate must be header or full, got:", flags.validate);
  }
  options.validation = flags.validate == "full" ? Validation::kFull : Validation::kHeader;
  if (!(flags.error_budget_percent >= 0 && flags.error_budget_percent <= 100)) {
    return Status::invalid_argument("--error-budget must be a percentage from 0 to 100, got:", flags.error_budget_percent);
  }
  for (const std::string& network : flags.allow_private) {
    DARKROOM_ASSIGN_OR_RETURN(const AllowedNetwork allowed, AllowedNetwork::parse(network));
    options.fetch.allow_private.push_back(allowed);
  }
  DARKROOM_RETURN_IF_ERROR(options.validate());
  return options;
}

Result<int> run_verb(const DownloadFlags& flags, VerbContext& context) {
  DARKROOM_ASSIGN_OR_RETURN(const DownloadOptions options, options_of(flags));
  DARKROOM_ASSIGN_OR_RETURN(const StageSummary summary, run_download(local_files(), options, context.stop));
  context.summary = summary.to_json();
  if (summary.failed_percent() > flags.error_budget_percent) {
    log_error(
        "download finished, but {:.1f}% of the rows failed, more than --error-budget {:.1f}%: the errors by code are above; the rows "
        "that arrived are in {}",
        summary.failed_percent(), flags.error_budget_percent, options.output);
    return kExitOverErrorBudget;
  }
  return 0;
}

void add_limit_flags(CLI::App& command, DownloadOptions& options) {
  command.add_option("--min-size", options.limits.min_size, "smallest shorter side, in pixels")->type_name("PIXELS");
  command.add_option("--max-aspect", options.limits.max_aspect, "largest longer side / shorter side; 0: no limit")->type_name("RATIO");
  command.add_option("--max-pixels", options.limits.max_pixels, "largest width x height; more is counted as a bomb")->type_name("PIXELS");
  command.add_option("--max-bytes", options.fetch.max_body_bytes, "largest body, in bytes")->type_name("BYTES");
}

void add_network_flags(CLI::App& command, DownloadFlags& flags) {
  FetchOptions& fetch = flags.options.fetch;
  command.add_option("--concurrency", fetch.num_concurrent, "requests in flight")->type_name("N");
  command.add_option("--timeout", flags.timeout_seconds, "total deadline of one URL, redirects and retries included, in seconds")
      ->type_name("SECONDS");
  command.add_option("--retries", fetch.num_retries, "further attempts after failures that may pass")->type_name("N");
  command.add_option("--allow-private", flags.allow_private, "networks to allow although they are not public; none by default")
      ->type_name("CIDR[:PORT]")
      ->expected(1, CLI::detail::expected_max_vector_size);
}

}  // namespace

Verb add_download_verb(CLI::App& program) {
  auto flags = std::make_shared<DownloadFlags>();  // Shared by CLI11's bindings and the action.
  DownloadOptions& options = flags->options;
  CLI::App* command = program.add_subcommand("download", "URL and caption tables -> image parquet");
  command->add_option("OUTPUT_URI", options.output, "folder of the image dataset")->required();
  command->add_option("--metadata", options.metadata, "URL tables: parquet, csv, tsv or jsonl; files, folders or patterns")
      ->required()
      ->type_name("URI")
      ->expected(1, CLI::detail::expected_max_vector_size);
  command->add_option("--url-column", options.url_column, "column of the URLs; found by known names when not given")->type_name("NAME");
  command->add_option("--caption-column", options.caption_column, "column of the captions; likewise")->type_name("NAME");
  command->add_option("--limit", options.limit, "only the first N rows; negative: all")->type_name("N");
  command->add_option("--rows-per-file", options.rows_per_file, "input rows an output file covers")->type_name("N");
  add_limit_flags(*command, options);
  add_network_flags(*command, *flags);
  command->add_option("--memory", options.memory_bytes, "budget of all queues and buffers, in bytes; 0: a quarter of the machine's")
      ->type_name("BYTES")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--validate", flags->validate, "header, or full: decode every picture")->type_name("header|full");
  command->add_flag("--keep-failed", options.keep_failed, "failed rows stay as rows with a null image and an error code");
  command->add_option("--error-budget", flags->error_budget_percent, "share of failed rows above which the exit code is 3, in percent")
      ->type_name("PERCENT");
  command->add_flag("--dry-run", options.dry_run, "plan only: nothing is fetched or written");
  refuse_later_flags(*command, {"--where", "--extend", "--respect", "--deny-list", "--per-host", "--per-host-rps"});
  return {command, [flags](VerbContext& context) { return run_verb(*flags, context); }};
}

}  // namespace darkroom
