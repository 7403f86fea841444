#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "darkroom/core/log.h"
#include "darkroom/files/file_system.h"
#include "darkroom/plan/plan.h"
#include "darkroom/show/measured_rates.h"
#include "darkroom/show/plan_page.h"
#include "estimates.h"
#include "opening/open_stores.h"
#include "self_description.h"
#include "verb.h"

namespace darkroom {
namespace {

struct PlanFlags {
  PlanRequest request;
  PredictRequest predict;
  std::string catalogue;
  std::string from;
  std::string business;
  std::string output;
};

Status write_plan(StoreSet& stores, const std::string& uri, const Plan& plan) {
  DARKROOM_ASSIGN_OR_RETURN(const Location folder, stores.resolve(uri, Access::kWrite));
  for (const auto& [name, text] :
       {std::pair("plan.json", plan.to_json().dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n"),
        std::pair("plan.csv", plan.to_csv()), std::pair("plan.html", render_plan_page(plan))}) {
    DARKROOM_RETURN_IF_ERROR(folder.store->replace_small((folder / name).path, text));
  }
  log_info("plan.html, plan.csv and plan.json are in {}", folder.uri());
  return Status::ok();
}

nlohmann::json plan_summary(const Plan& plan) {
  nlohmann::json summary = nlohmann::json::object();
  for (const Figure& figure : plan.sheet.figures()) {
    summary[figure.name] = figure.value;
  }
  return summary;
}

Result<int> run_plan(const PlanFlags& flags, VerbContext& context) {
  PlanRequest request = flags.request;
  if (flags.predict.batch > 0 && flags.predict.steps == 0) {
    return Status::invalid_argument("--batch is that of the run that --steps predicts; give --steps, too");
  }
  if (flags.predict.steps > 0) {
    request.predict = flags.predict;
  }
  DARKROOM_RETURN_IF_ERROR(request.validate());
  DARKROOM_ASSIGN_OR_RETURN(const Catalogue catalogue, load_own_catalogue(flags.catalogue));
  std::optional<BusinessCase> business;
  if (!flags.business.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(business, load_business_case(local_files(), flags.business));
  }
  MetricsRegistry metrics;
  const auto stores = open_stores(metrics, context.stop);
  MeasuredRates measured;
  if (!flags.from.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(measured, measured_rates(*stores, flags.from, context.stop));
  }
  DARKROOM_ASSIGN_OR_RETURN(const Plan plan, make_plan(catalogue, request, measured, business));
  context.summary["plan"] = plan_summary(plan);
  DARKROOM_RETURN_IF_ERROR(print_text(plan.to_text()));
  if (!flags.output.empty()) {
    DARKROOM_RETURN_IF_ERROR(write_plan(*stores, flags.output, plan));
  }
  return 0;
}

}  // namespace

void add_plan_verb(CommandLine& line) {
  const auto flags = std::make_shared<PlanFlags>();  // Shared by the definitions and the action.
  PlanRequest& request = flags->request;
  VerbDefinition& verb = line.add_verb("plan", "what a training run takes: hours, dollars, storage, machines, energy, and whether it pays");
  verb.flag("--samples-256", value::count(request.samples_256), "samples of the 256 px phase; the default is the published run's");
  verb.flag("--samples-512", value::count(request.samples_512), "samples of the 512 px phase; the default is the published run's");
  verb.flag(
      "--fleet", value::text(request.fleet, "SPEC"),
      "machines by role: train=COUNTxMACHINE,encode=...,download=...; without a count encoders and downloaders are as many as keep up");
  verb.flag("--catalogue", value::path(flags->catalogue, "FILE.toml", kCatalogueResource),
            "prices, rates and facts of your own, over those that are shipped");
  verb.flag("--store", value::text(request.store, "NAME", "first"), "store of objects, by its name in the catalogue");
  verb.flag("--from", value::uri(flags->from, "RUN_OR_JOB", "none"),
            "a run folder, a download job's folder or a job's --json-summary file, whose measured rates take the place of the catalogue's");
  verb.flag("--steps", value::count(flags->predict.steps).least(1).also("none", 0),
            "with --from RUN: how long will another run of so many steps take there?");
  verb.flag("--batch", value::count(flags->predict.batch).least(1).also("run", 0), "the batch of that other run");
  verb.flag("--business", value::path(flags->business, "FILE.toml", "none"),
            "the case of revenue, uses and a comparison with an open model");
  verb.flag("--trials", value::count(request.num_trials).least(1).most(100'000), "runs that are simulated per purchase");
  verb.flag("--seed", value::count(request.seed).shown("S"), "of what is simulated");
  verb.flag("--output", value::uri(flags->output, "DIR", "none"), "folder for plan.html, plan.csv and plan.json");
  verb.example("darkroom plan", "the published run: 13,165 A100-hours, $39,511 reserved or $67,405 on demand");
  verb.example("darkroom plan --samples-256 100M --samples-512 0 --fleet train=1xp5.48xlarge,encode=g5.2xlarge --output plan",
               "a smaller run on one machine with 8 H100, as a page");
  verb.example("darkroom plan --from run --steps 20k", "how long a longer run of the same recipe takes on the machine of `run`");
  verb.run([flags](VerbContext& context) { return run_plan(*flags, context); });
}

}  // namespace darkroom
