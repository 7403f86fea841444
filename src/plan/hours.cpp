#include <fmt/format.h>

#include "cost_model.h"
#include "plan_facts.h"

namespace darkroom {
namespace {

constexpr const char* kGiven = "asked for (--samples-256, --samples-512)";

void add_constants(Sheet& sheet) {
  sheet.section("constants");
  constexpr const char* kDefinition = "by definition";
  sheet.give("seconds_per_hour", 3600, "s/h", kDefinition, "seconds of an hour");
  sheet.give("hours_per_month", 730, "h/months", "as AWS counts", "hours of a month");
  sheet.give("months_per_year", 12, "months/years", kDefinition, "months of a year");
  sheet.give("bytes_per_gb", 1e9, "bytes/GB", kDefinition, "bytes of a gigabyte");
  sheet.give("gb_per_gib", 1.073741824, "GB/GiB", kDefinition, "gigabytes of a gibibyte, which is what stores charge for");
  sheet.give("requests_per_thousand", 1000, "requests/thousands", kDefinition, "requests of a thousand");
  sheet.give("watt_hours_per_kwh", 1000, "W*h/kWh", kDefinition, "watt-hours of a kilowatt-hour");
  sheet.give("grams_per_kg", 1000, "g/kg", kDefinition, "grams of a kilogram");
}

/// The machines of a role: their number, accelerators and what these can do at each resolution.
struct RoleNames {
  const char* role;   // Prefix of its figures, and the catalogue's task.
  const char* label;  // "trainers"
  const char* work;   // "training"
};

Status no_rate(const Catalogue& catalogue, const RoleNames& names, const Machine& machine, int64_t resolution) {
  const std::string at = resolution == 0 ? "" : fmt::format(" at {} px", resolution);
  return Status::invalid_argument(
      fmt::format("{} has no [[rate]] of task = \"{}\"{} for the {} of the fleet; add one, or measure with --from (machine, accelerator):",
                  catalogue.name, names.role, at, names.label),
      machine.name, machine.accelerator);
}

// A rate that was measured at another resolution is taken in proportion to the work of a picture.
std::string scaled_rate(const MeasuredRate& measured, const std::string& role, int64_t resolution) {
  if (measured.resolution == resolution) {
    return fmt::format("measured_{}_rate", role);
  }
  if (role == "train" && (measured.resolution == 256 || measured.resolution == 512)) {
    return fmt::format("measured_{}_rate * gflop_{} / gflop_{}", role, measured.resolution, resolution);
  }
  return fmt::format("measured_{0}_rate * measured_{0}_side * measured_{0}_side / side_{1} / side_{1}", role, resolution);
}

void add_measured_rate(const MeasuredRates& measured, const MeasuredRate& rate, const RoleNames& names, Plan& plan) {
  Sheet& sheet = plan.sheet;
  const std::string role = names.role;
  sheet.give("measured_" + role + "_rate", rate.per_second, "pictures/s/accelerators", "measured: " + measured.from,
             fmt::format("measured speed of {}", names.work));
  if (rate.resolution > 0) {
    sheet.give("measured_" + role + "_side", static_cast<double>(rate.resolution), "pixels", "measured: " + measured.from,
               fmt::format("side of the pictures that {} was measured with", names.work));
  }
  for (const int64_t resolution : {256, 512}) {
    sheet.derive(fmt::format("{}_rate_{}", role, resolution), "pictures/s/accelerators", scaled_rate(rate, role, resolution),
                 fmt::format("{} of an accelerator at {} px", names.work, resolution));
    if (rate.resolution != resolution) {
      plan.notes.push_back(
          fmt::format("the speed of {} at {} px was not measured: it is that at {} px, in proportion to the work per picture", names.work,
                      resolution, rate.resolution));
    }
  }
}

Status add_role(const Catalogue& catalogue, const MeasuredRates& measured, const std::optional<MeasuredRate>& measured_rate,
                const FleetGroup& group, const RoleNames& names, Plan& plan) {
  Sheet& sheet = plan.sheet;
  const std::string role = names.role;
  const Machine& machine = group.machine;
  sheet.give(role + "_accelerators_each", static_cast<double>(machine.num_accelerators), "accelerators/machines", machine.origin.to_text(),
             fmt::format("accelerators of a {}", machine.name));
  if (measured_rate) {
    add_measured_rate(measured, *measured_rate, names, plan);
  } else {
    for (const int64_t resolution : {256, 512}) {
      const Rate* rate = catalogue.rate(role, machine, resolution);
      if (rate == nullptr) {
        return no_rate(catalogue, names, machine, resolution);
      }
      sheet.give(fmt::format("{}_rate_{}", role, resolution), rate->per_second, "pictures/s/accelerators", rate->origin.to_text(),
                 fmt::format("{} of an accelerator at {} px", names.work, resolution));
    }
  }
  if (group.count > 0) {
    sheet.give(role + "_machines", static_cast<double>(group.count), "machines", "the fleet: " + plan.fleet.to_text(), names.label);
  } else {  // As many as keep up; trainers always have a count.
    const auto needed = [&](int resolution) {
      return fmt::format("train_speed_{0} / ({1}_rate_{0} * {1}_accelerators_each)", resolution, role);
    };
    sheet.derive(role + "_machines", "machines", fmt::format("ceil(max({}, {}))", needed(256), needed(512)),
                 fmt::format("{}, as many as keep up with the trainers", names.label));
  }
  sheet.derive(role + "_accelerators", "accelerators", fmt::format("{0}_machines * {0}_accelerators_each", role),
               fmt::format("accelerators of the {}", names.label));
  for (const int64_t resolution : {256, 512}) {
    sheet.derive(fmt::format("{}_speed_{}", role, resolution), "pictures/s",
                 fmt::format("{0}_accelerators * {0}_rate_{1}", role, resolution),
                 fmt::format("{} of all at {} px", names.work, resolution));
  }
  return Status::ok();
}

Status add_downloaders(const Catalogue& catalogue, const MeasuredRates& measured, const FleetGroup& group, Plan& plan) {
  Sheet& sheet = plan.sheet;
  const Rate* rate = catalogue.rate("download", group.machine, 0);
  if (measured.download) {
    sheet.give("download_rate", measured.download->per_second, "rows/s/machines", "measured: " + measured.from, "listed rows of a machine");
  } else if (rate != nullptr) {
    sheet.give("download_rate", rate->per_second, "rows/s/machines", rate->origin.to_text(), "listed rows of a machine");
  } else {
    return no_rate(catalogue, {"download", "downloaders", "downloading"}, group.machine, 0);
  }
  if (group.count > 0) {
    sheet.give("download_machines", static_cast<double>(group.count), "machines", "the fleet: " + plan.fleet.to_text(), "downloaders");
  } else {
    sheet.derive("download_machines", "machines", "ceil(max(train_speed_256, train_speed_512) / (download_rate * pictures_per_row))",
                 "downloaders, as many as keep up with the trainers");
  }
  return Status::ok();
}

}  // namespace

void add_workload(const Catalogue& catalogue, const MeasuredRates& measured, Plan& plan) {
  Sheet& sheet = plan.sheet;
  add_constants(sheet);
  sheet.section("workload");
  sheet.give("samples_256", static_cast<double>(plan.request.samples_256), "pictures", kGiven, "samples at 256 px");
  sheet.give("samples_512", static_cast<double>(plan.request.samples_512), "pictures", kGiven, "samples at 512 px");
  sheet.derive("samples", "pictures", "samples_256 + samples_512", "samples of both phases");
  sheet.give("side_256", 256, "pixels", "by definition", "side of a picture of the first phase");
  sheet.give("side_512", 512, "pixels", "by definition", "side of a picture of the second phase");
  for (const std::string& name : plan_fact_names()) {
    const Fact& fact = *catalogue.fact(name);  // parse_catalogue() saw that it is there.
    const std::optional<double> own = name == "picture_bytes"      ? measured.picture_bytes
                                      : name == "download_success" ? measured.download_success
                                                                   : std::nullopt;
    sheet.give(name, own.value_or(fact.value), fact.unit, own ? "measured: " + measured.from : fact.origin.to_text(), fact.label);
  }
  sheet.give("rows_per_listed", 1, "rows/pictures", "by definition", "a listed row stands for a picture");
  sheet.derive("pictures_per_row", "pictures/rows", "download_success / rows_per_listed", "pictures that a listed row gives");
  sheet.derive("pictures_256", "pictures", "min(samples_256, distinct_pictures_256)", "pictures that are encoded at 256 px");
  sheet.derive("pictures_512", "pictures", "min(samples_512, distinct_pictures_512)", "pictures that are encoded at 512 px");
  sheet.derive("pictures", "pictures", "max(pictures_256, pictures_512)", "pictures that are downloaded");
  sheet.derive("rows", "rows", "pictures / pictures_per_row", "rows of the URL tables that this takes");
}

Status add_speeds(const Catalogue& catalogue, const MeasuredRates& measured, Plan& plan) {
  plan.sheet.section("machines");
  DARKROOM_RETURN_IF_ERROR(add_role(catalogue, measured, measured.train, plan.fleet.train, {"train", "trainers", "training"}, plan));
  if (plan.fleet.encode) {
    DARKROOM_RETURN_IF_ERROR(add_role(catalogue, measured, measured.encode, *plan.fleet.encode, {"encode", "encoders", "encoding"}, plan));
  }
  return plan.fleet.download ? add_downloaders(catalogue, measured, *plan.fleet.download, plan) : Status::ok();
}

void add_hours(Plan& plan) {
  Sheet& sheet = plan.sheet;
  sheet.section("hours");
  std::string offline = "train_hours";
  for (const char* phase : {"256", "512"}) {
    sheet.derive(fmt::format("train_hours_{}", phase), "h", fmt::format("samples_{0} / train_speed_{0} / seconds_per_hour", phase),
                 fmt::format("training at {} px", phase));
  }
  sheet.derive("train_hours", "h", "train_hours_256 + train_hours_512", "training");
  sheet.derive("train_accelerator_hours", "accelerators*h", "train_hours * train_accelerators", "accelerator-hours of training");
  if (plan.fleet.encode) {
    for (const char* phase : {"256", "512"}) {
      sheet.derive(fmt::format("encode_hours_{}", phase), "h", fmt::format("pictures_{0} / encode_speed_{0} / seconds_per_hour", phase),
                   fmt::format("encoding every picture once at {} px", phase));
      sheet.derive(fmt::format("encode_balance_{}", phase), "1", fmt::format("encode_speed_{0} / train_speed_{0}", phase),
                   fmt::format("speed of the encoders over the trainers' at {} px (below 1: the trainers wait, online)", phase));
      sheet.derive(fmt::format("encode_machines_needed_{}", phase), "machines",
                   fmt::format("ceil(train_speed_{0} / (encode_rate_{0} * encode_accelerators_each))", phase),
                   fmt::format("encoders that keep up with the trainers at {} px", phase));
    }
    sheet.derive("encode_hours", "h", "encode_hours_256 + encode_hours_512", "encoding every picture once");
    offline = "encode_hours + " + offline;
  }
  if (plan.fleet.download) {
    sheet.derive("download_hours", "h", "rows / (download_machines * download_rate) / seconds_per_hour", "downloading");
    offline = "download_hours + " + offline;
  }
  sheet.derive("offline_hours", "h", offline, "all stages, one after the other");
}

}  // namespace darkroom
