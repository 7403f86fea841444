#include "jobs/job_observation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "darkroom/core/log.h"
#include "darkroom/core/machine.h"
#include "darkroom/core/machine_metrics.h"
#include "darkroom/core/process_metrics.h"
#include "darkroom/core/version.h"
#include "darkroom/files/file_system.h"
#include "darkroom/files/local_path.h"
#include "darkroom/files/paths.h"
#include "darkroom/stores/stores.h"
#include "estimates.h"

namespace darkroom {
namespace {

constexpr std::string_view kFileScheme = "file://";
constexpr const char* kAddressFolder = "_metrics";

std::string own_host() {
  const std::string name = host_name();
  return name.empty() ? "unknown" : name;
}

/// Empty: the output lies in a store.
std::string local_folder(const std::string& output) {
  if (output.starts_with(kFileScheme)) {
    const Result<std::string> path = local_path(output);
    return path.is_ok() ? *path : "";
  }
  return output.find("://") == std::string::npos ? output : "";
}

Result<SocketAddress> address_of_rank(const std::string& text, int64_t local_rank) {
  DARKROOM_ASSIGN_OR_RETURN(SocketAddress place, parse_metrics_address(text));
  if (place.port != 0 && place.port + local_rank > 65'535) {
    return Status::invalid_argument(
        "--metrics-port leaves no ports for the ranks, each of which takes the next one (port, rank):", place.port, local_rank);
  }
  place.port = static_cast<uint16_t>(place.port == 0 ? 0 : place.port + local_rank);
  return place;
}

ValueDefinition metrics_address(std::string& address) {
  ValueDefinition definition{.kind = "text", .shown = "[ADDRESS:]PORT", .default_text = "none", .may_be_number = true};
  definition.take = [address = &address](const std::vector<std::string>& values) -> Status {
    DARKROOM_RETURN_IF_ERROR(parse_metrics_address(values.back()).status());
    *address = values.back();
    return Status::ok();
  };
  return definition;
}

SpanAttributes resource_of(const ObservedProcess& process) {
  return {{"service.name", "darkroom"},
          {"service.version", kVersion},
          {"service.instance.id", fmt::format("{}-{}", own_host(), getpid())},
          {"host.name", own_host()},
          {"process.pid", int64_t{getpid()}},
          {"darkroom.verb", process.verb},
          {"darkroom.rank", process.rank}};
}

}  // namespace

void add_metrics_flags(VerbDefinition& verb, ObservationFlags& flags) {
  verb.flag("--metrics-port", metrics_address(flags.metrics_address),
            "serve the job's numbers as Prometheus text at http://127.0.0.1:PORT/metrics, or at another address of this machine");
  verb.flag(
      "--price-per-hour", value::text_or_number(value::text(flags.price, "DOLLARS|MACHINE[:PURCHASE][*SHARE]", "none")),
      "what this machine costs, for the cost so far among the numbers and in the summary: dollars, or a machine of the price "
      "catalogue, such as p4de.24xlarge:spot (on_demand unless it says more); *0.25 behind it: a quarter of the machine is this job's");
}

void add_observation_flags(VerbDefinition& verb, ObservationFlags& flags) {
  add_metrics_flags(verb, flags);
  verb.flag("--trace-file", value::path(flags.trace_path, "FILE", "none"),
            "write spans of the work as OpenTelemetry's JSON lines; for FILE.trace.json or FILE.perfetto.json as what Perfetto opens");
}

namespace {

Result<double> read_share(const std::string& text) {
  double share = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), share);
  const bool is_number = failure == std::errc() && end == text.data() + text.size();
  return is_number && share >= 0 && share <= 1
             ? Result<double>(share)
             : Status::invalid_argument("--price-per-hour: what is behind * must be a share of the machine, from 0 to 1, got:", text);
}

/// Of a whole machine.
Result<double> read_machine_price(const std::string& text) {
  double dollars = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), dollars);
  if (failure == std::errc() && end == text.data() + text.size()) {
    return std::isfinite(dollars) && dollars >= 0 ? Result<double>(dollars)
                                                  : Status::invalid_argument("--price-per-hour must be 0 or more dollars, got:", text);
  }
  DARKROOM_ASSIGN_OR_RETURN(const Catalogue catalogue, load_own_catalogue(""));
  const size_t colon = text.find(':');
  const std::string machine = text.substr(0, colon);
  const std::string purchase = colon == std::string::npos ? "on_demand" : text.substr(colon + 1);
  if (const Price* price = catalogue.price(machine, purchase)) {
    return price->dollars_per_hour;
  }
  std::string known;
  for (const Price& price : catalogue.prices) {
    known += fmt::format("{}{}:{}", known.empty() ? "" : ", ", price.machine, price.purchase);
  }
  return Status::invalid_argument(fmt::format("--price-per-hour must be dollars or one of {}, got:", known), text);
}

}  // namespace

Result<double> read_price(const std::string& text) {
  double share = 1;
  std::string machine = text;
  for (size_t star = machine.rfind('*'); star != std::string::npos; star = machine.rfind('*')) {
    DARKROOM_ASSIGN_OR_RETURN(const double part, read_share(machine.substr(star + 1)));
    share *= part;
    machine.resize(star);
  }
  DARKROOM_ASSIGN_OR_RETURN(const double dollars, read_machine_price(machine));
  return share * dollars;
}

std::string trace_path_of_rank(const std::string& path, int64_t rank) {
  if (rank == 0) {
    return path;
  }
  size_t ending = path.rfind('.');
  for (const std::string_view known : {".trace.json", ".perfetto.json"}) {
    ending = path.ends_with(known) ? path.size() - known.size() : ending;
  }
  const size_t slash = path.rfind('/');
  if (ending == std::string::npos || (slash != std::string::npos && ending < slash)) {
    ending = path.size();
  }
  return fmt::format("{}-rank{}{}", path.substr(0, ending), rank, path.substr(ending));
}

Result<std::unique_ptr<JobObservation>> JobObservation::start(const ObservationFlags& flags, const ObservedProcess& process) {
  std::unique_ptr<JobObservation> observation(new JobObservation());
  if (!flags.trace_path.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(observation->trace_, TraceRecorder::open({.path = trace_path_of_rank(flags.trace_path, process.rank),
                                                                        .resource = resource_of(process)}));
  }
  const bool is_served = !flags.metrics_address.empty();
  observation->verb_ = process.verb;
  if (!flags.price.empty()) {
    DARKROOM_ASSIGN_OR_RETURN(const double dollars, read_price(flags.price));
    observation->dollars_per_hour_ = dollars / static_cast<double>(process.local_ranks);
  }
  if (is_served || process.has_own_route) {
    observation->collect();
  }
  if (is_served) {
    DARKROOM_RETURN_IF_ERROR(observation->serve(flags.metrics_address, process));
  }
  return observation;
}

void JobObservation::collect() {
  collections_.push_back(collect_process_metrics(registry_));
  collections_.push_back(collect_host_metrics(registry_));
  collections_.push_back(collect_gpu_metrics(registry_));
  registry_.gauge("darkroom_build_info", "Always 1: the program's version and the verb.", {{"version", kVersion}, {"verb", verb_}}).set(1);
  if (dollars_per_hour_.has_value()) {
    collections_.push_back(collect_cost_metrics(registry_, *dollars_per_hour_, system_clock(), began_));
  }
}

void JobObservation::tell_cost(nlohmann::json& stage, int64_t num_processes) const {
  if (!dollars_per_hour_.has_value()) {
    return;
  }
  const std::chrono::duration<double, std::ratio<3600>> hours = system_clock().now() - began_;
  const double dollars_per_hour = *dollars_per_hour_ * static_cast<double>(num_processes);
  stage["dollars"] = hours.count() * dollars_per_hour;
  stage["dollars_per_hour"] = dollars_per_hour;
  log_info("{}: this has cost ${:.4g}, at ${:.4g} an hour", verb_, hours.count() * dollars_per_hour, dollars_per_hour);
}

Status JobObservation::serve(const std::string& address, const ObservedProcess& process) {
  DARKROOM_ASSIGN_OR_RETURN(const SocketAddress place, address_of_rank(address, process.local_rank));
  DARKROOM_ASSIGN_OR_RETURN(server_, MetricsServer::start(registry_, {.address = place}));
  log_info("the job's numbers are at http://{}/metrics", server_->address().to_string());
  const std::string folder = local_folder(process.output);
  return folder.empty() ? Status::ok() : leave_address(folder, process);
}

Status JobObservation::leave_address(const std::string& folder, const ObservedProcess& process) {
  const std::string addresses = join_path(folder, kAddressFolder);
  const std::string file = join_path(addresses, fmt::format("{}-{}.json", own_host(), getpid()));
  const nlohmann::ordered_json address = {
      {"address", server_->address().to_string()}, {"host", own_host()}, {"pid", getpid()}, {"verb", process.verb}, {"rank", process.rank}};
  DARKROOM_ASSIGN_OR_RETURN(const bool is_there, local_files().exists(folder));
  has_made_output_ = !is_there;
  DARKROOM_RETURN_IF_ERROR(local_files().create_folders(addresses));
  DARKROOM_RETURN_IF_ERROR(write_file_atomic(local_files(), file, address.dump() + "\n"));
  address_file_ = file;
  return Status::ok();
}

JobObservation::~JobObservation() {
  server_.reset();
  if (!address_file_.empty()) {  // Best effort: who finds an old address is told that nobody listens there.
    const std::string addresses = parent_folder(address_file_);
    ::unlink(address_file_.c_str());
    ::rmdir(addresses.c_str());
    if (has_made_output_) {
      ::rmdir(parent_folder(addresses).c_str());  // Of a job that could not begin.
    }
  }
  if (trace_ == nullptr) {
    return;
  }
  if (const Status written = trace_->finish(); !written.is_ok()) {
    log_warning("the trace is cut: {}", written.message());
  } else if (trace_->num_dropped() > 0) {
    log_warning("the trace is full: {} later spans were left out", trace_->num_dropped());
  }
}

}  // namespace darkroom
