#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "darkroom/core/log.h"
#include "darkroom/core/version.h"
#include "darkroom/ingest/download_job.h"
#include "darkroom/show/measured_rates.h"
#include "estimates.h"
#include "jobs/job_flags.h"
#include "jobs/job_observation.h"
#include "jobs/standard_orders.h"
#include "opening/open_stores.h"
#include "resources.h"
#include "verb.h"

namespace darkroom {
namespace {

struct DownloadFlags {
  DownloadOptions options;
  double timeout_seconds = 20;
  double max_park_seconds = 600;
  std::vector<std::string> allow_private;
  std::vector<std::string> allow_ports;
  std::string contact;
  double error_budget_percent = 60;
  ScratchFlags scratch;
  bool clean = false;
  ObservationFlags observation;
  EstimateFlags estimates;
  std::string rates_from;
  bool is_sandboxed = true;
};

Result<uint16_t> parse_port(const std::string& text) {
  uint16_t port = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (failure != std::errc() || end != text.data() + text.size() || port == 0) {
    return Status::invalid_argument("--allow-port must be from 1 to 65535, got:", text);
  }
  return port;
}

Result<DownloadOptions> options_of(const DownloadFlags& flags) {
  DownloadOptions options = flags.options;
  options.fetch.timeout = std::chrono::milliseconds(static_cast<int64_t>(flags.timeout_seconds * 1000));
  options.fetch.max_park = std::chrono::seconds(static_cast<int64_t>(std::ceil(flags.max_park_seconds)));
  if (!flags.allow_ports.empty()) {
    options.fetch.ports.clear();
  }
  for (const std::string& text : flags.allow_ports) {
    DARKROOM_ASSIGN_OR_RETURN(const uint16_t port, parse_port(text));
    options.fetch.ports.insert(port);
  }
  for (const std::string& network : flags.allow_private) {
    DARKROOM_ASSIGN_OR_RETURN(const AllowedNetwork allowed, AllowedNetwork::parse(network));
    options.fetch.allow_private.push_back(allowed);
  }
  if (!flags.contact.empty()) {
    options.fetch.user_agent = fmt::format("darkroom/{} ({})", kVersion, flags.contact);
  }
  options.scratch_folder = flags.scratch.folder;
  options.scratch_bytes = flags.scratch.num_bytes;
  if (options.validation == Validation::kFull && flags.is_sandboxed) {
    DARKROOM_ASSIGN_OR_RETURN(options.decoder_program, find_decoder());
  }
  DARKROOM_RETURN_IF_ERROR(options.validate());
  return options;
}

Result<int> run_verb(const DownloadFlags& flags, VerbContext& context) {
  if (flags.clean) {
    return run_clean(flags.observation, "download", flags.options.output, flags.options.dry_run, context);
  }
  DARKROOM_ASSIGN_OR_RETURN(DownloadOptions options, options_of(flags));
  DARKROOM_ASSIGN_OR_RETURN(
      const auto observation,
      JobObservation::start(flags.observation, {.verb = "download", .output = options.dry_run ? "" : options.output}));
  const std::unique_ptr<StoreSet> stores = open_job_stores(observation->registry(), context.stop);
  StandardOrders orders;
  options.orders = &orders;
  StageSummary summary;
  options.metrics = &observation->registry();
  options.trace = observation->trace();
  const Status status = run_download(*stores, options, context.stop, summary);
  context.summary["download"] = summary.to_json();
  observation->tell_cost(context.summary["download"]);
  DARKROOM_RETURN_IF_ERROR(status);
  if (options.dry_run) {
    MeasuredRates measured;
    if (!flags.rates_from.empty()) {
      DARKROOM_ASSIGN_OR_RETURN(measured, measured_rates(*stores, flags.rates_from, context.stop));
    }
    const auto outlook = [&](const StageSummary& looked, const Catalogue& catalogue, int num_cores) {
      return download_outlook(looked, catalogue, num_cores, measured);
    };
    DARKROOM_RETURN_IF_ERROR(show_estimate("download", flags.estimates, summary, outlook, context));
    return 0;
  }
  if (!options.selection.on_demand && summary.failed_percent() > flags.error_budget_percent) {
    log_error(
        "download finished, but {:.1f}% of the rows failed, more than --error-budget {:.1f}%: the errors by code are above; the rows "
        "that arrived are in {}",
        summary.failed_percent(), flags.error_budget_percent, options.output);
    return kExitOverErrorBudget;
  }
  return 0;
}

ValueDefinition retry_codes(RetryCodes& codes) {
  ValueDefinition definition{.kind = "text", .shown = "CODES", .default_text = "none"};
  definition.take = [codes = &codes](const std::vector<std::string>& values) -> Status {
    DARKROOM_ASSIGN_OR_RETURN(*codes, RetryCodes::parse(values.back()));
    return Status::ok();
  };
  return definition;
}

/// Names with commas between, each once and in any order, or none.
ValueDefinition names_with_commas(std::vector<std::pair<std::string, bool*>> members) {
  ValueDefinition definition{.kind = "choice", .shown = ""};
  std::vector<std::string> defaults;
  for (const auto& [name, member] : members) {
    definition.words.push_back(name);
    if (*member) {
      defaults.push_back(name);
    }
  }
  definition.shown = fmt::format("{}", fmt::join(definition.words, ","));
  definition.default_text = defaults.empty() ? "none" : fmt::format("{}", fmt::join(defaults, ","));
  definition.words.push_back("none");
  const std::string rule = fmt::format("must be none or some of {}, each once, got:", definition.shown);
  definition.take = [members = std::move(members), rule](const std::vector<std::string>& values) -> Status {
    const std::string& text = values.back();
    std::multiset<std::string> asked;
    for (size_t begin = 0, end = 0; text != "none" && end != std::string::npos; begin = end + 1) {
      end = text.find(',', begin);
      asked.insert(text.substr(begin, end - begin));
    }
    for (const auto& [name, member] : members) {
      const auto found = asked.find(name);
      *member = found != asked.end();
      if (*member) {
        asked.erase(found);
      }
    }
    return asked.empty() ? Status() : Status::invalid_argument(rule, quote_value(text));
  };
  return definition;
}

void add_table_flags(VerbDefinition& verb, DownloadFlags& flags) {
  DownloadOptions& options = flags.options;
  verb.group("What to fetch");
  verb.flag("--metadata", value::uris(options.metadata, "URI"), "URL tables: parquet, csv, tsv or jsonl; files, folders or patterns")
      .required_unless("--clean");
  verb.flag("--url-column", value::text(options.url_column, "NAME", "auto"), "column of the URLs; auto: by the known names");
  verb.flag("--caption-column", value::text(options.caption_column, "NAME", "auto"), "column of the captions; auto: by the known names");
  verb.flag("--limit", value::count(options.selection.limit).also("none", -1), "only the first N rows");
  verb.flag("--extend", value::toggle(options.selection.extend), "append input files that came after the job was started");
  add_estimate_flags(verb, options.dry_run, flags.estimates);
  verb.flag("--rates-from", value::uri(flags.rates_from, "JOB", "none"),
            "another download's folder or --json-summary file, whose measured rates are those of --dry-run; without it those of this job's "
            "last run, where there was one")
      .only_with("--dry-run");
  verb.flag("--where", value::text(options.where, "EXPR", "none"),
            "only rows that this condition keeps, such as \"punsafe < 0.1 AND width >= 512\"; the others are counted apart");
  verb.flag("--deny-list", value::uri(options.deny_list, "URI", "none"),
            "hashes of URLs and pictures to leave out: an MD5 or a SHA-256 a line; such rows are counted as denied");
  verb.flag("--retry-failed", retry_codes(options.retry_failed),
            "fetch the rows again that failed with these codes, such as timeout,http_429,http_5xx; good rows stay as they are");
  verb.flag("--dedup", names_with_commas({{"url", &options.dedup.url}, {"content", &options.dedup.content}}),
            "rows with a URL, or with a picture's bytes, that an earlier row of the list has are counted as duplicate");
}

void add_limit_flags(VerbDefinition& verb, DownloadFlags& flags) {
  DownloadOptions& options = flags.options;
  verb.group("Which pictures are kept");
  verb.flag("--min-size", value::count(options.limits.min_size).least(1).unit("pixels"), "smallest shorter side");
  verb.flag("--max-aspect", value::number(options.limits.max_aspect).also("off", 0).least(0).shown("RATIO"),
            "largest longer side / shorter side; 0 or off: no limit");
  verb.flag("--max-pixels", value::count(options.limits.max_pixels).least(1).unit("pixels"),
            "largest width x height; more is counted as a bomb");
  verb.flag("--max-bytes", value::bytes(options.fetch.max_body_bytes).least(1), "largest body");
  verb.flag("--validate", value::choice(options.validation, {{"header", Validation::kHeader}, {"full", Validation::kFull}}),
            "look at the header only, or decode every picture");
  verb.flag("--keep-failed", value::toggle(options.keep_failed), "failed rows stay as rows with a null image and an error code");
  OptOutRules& respect = options.fetch.respect;
  verb.flag("--respect", names_with_commas({{"robots", &respect.robots}, {"noai", &respect.noai}, {"aipref", &respect.aipref}}),
            "opt-out signals of servers that are honoured: robots.txt, X-Robots-Tag, Content-Usage and Content-Signal");
  verb.flag("--no-sandbox", value::toggle_off(flags.is_sandboxed), "decode in this process, where the kernel refuses the sandbox");
}

void add_network_flags(VerbDefinition& verb, DownloadFlags& flags) {
  FetchOptions& fetch = flags.options.fetch;
  verb.group("How to fetch");
  verb.flag("--concurrency", value::count(fetch.num_concurrent).least(1).most(100000), "requests in flight that make progress");
  verb.flag("--per-host", value::count(fetch.per_host).least(1).most(100000), "requests in flight to one host");
  verb.flag("--per-host-rps", value::number(fetch.per_host_rps).also("none", 0).least(0).most(1e6).shown("RATE"),
            "requests begun per second and host");
  verb.flag("--timeout", value::seconds(flags.timeout_seconds).least(0.001).most(86400),
            "total deadline of one URL, redirects and retries included");
  verb.flag("--retries", value::count(fetch.num_retries).most(100), "further attempts after failures that may pass");
  verb.flag("--contact", value::text(flags.contact, "TEXT", "none"), "how to reach you, put into the User-Agent");
  verb.flag("--allow-private", value::texts(flags.allow_private, "CIDR[:PORT]"),
            "networks that are allowed although they are not public; none by default");
  verb.flag("--allow-port", value::text_or_number(value::texts(flags.allow_ports, "PORT")),
            "ports that listed URLs may use instead of 80 and 443");
  verb.flag("--max-park", value::seconds(flags.max_park_seconds).least(0).most(2592000),
            "how long a row may wait for its host (Retry-After, breaker) outside its own deadline");
}

void add_job_flags(VerbDefinition& verb, DownloadFlags& flags) {
  DownloadOptions& options = flags.options;
  verb.group("The job");
  verb.flag("--rows-per-file", value::count(options.rows_per_file).least(1), "input rows an output file covers");
  verb.flag("--memory", value::bytes(options.memory_bytes).least(1).also("auto", 0),
            "budget of all queues and buffers together; auto: a quarter of the machine's");
  verb.flag("--error-budget", value::percent(flags.error_budget_percent), "share of failed rows above which the exit code is 3");
  verb.flag("--output-dialect",
            value::choice(options.dialect, {{"darkroom", ImagesDialect::kDarkroom}, {"img2dataset", ImagesDialect::kImg2dataset}}),
            "Parquet, or webdataset tars as img2dataset lays them out");
  add_scratch_flags(verb, flags.scratch);
  add_selection_flags(verb, options.selection, flags.clean);
  add_observation_flags(verb, flags.observation);
}

}  // namespace

void add_download_verb(CommandLine& line) {
  const auto flags = std::make_shared<DownloadFlags>();  // Shared by the definitions and the action.
  VerbDefinition& verb = line.add_verb("download", "URL and caption tables -> image parquet");
  verb.positional("OUTPUT_URI", value::uri(flags->options.output, "URI"), "folder of the image dataset").required();
  add_table_flags(verb, *flags);
  add_limit_flags(verb, *flags);
  add_network_flags(verb, *flags);
  add_job_flags(verb, *flags);
  verb.example("darkroom download images --metadata urls.parquet --limit 10k", "the first ten thousand rows of a table");
  verb.example("darkroom download images --metadata 'laion/*.parquet' --min-size 256 --max-bytes 20MB --contact me@example.org",
               "many tables, with limits, and an address for who runs the servers");
  verb.run([flags](VerbContext& context) { return run_verb(*flags, context); });
}

}  // namespace darkroom
