#include "darkroom/plan/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "darkroom/core/typing_mistakes.h"
#include "darkroom/toml/parse_toml.h"
#include "darkroom/toml/toml_fields.h"
#include "plan_facts.h"

namespace darkroom {
namespace {

constexpr int64_t kCatalogueFormat = 1;

template <typename T, typename Predicate>
const T* find_in(const std::vector<T>& list, Predicate fits) {
  const auto found = std::find_if(list.begin(), list.end(), fits);
  return found == list.end() ? nullptr : &*found;
}

Origin take_origin(TomlFields& fields) { return {fields.file(), fields.date("date"), fields.text("source")}; }

const std::vector<std::string>& purchase_words() {
  static const std::vector<std::string> words(std::begin(kPurchases), std::end(kPurchases));
  return words;
}

Machine take_machine(TomlFields& fields) {
  Machine machine;
  machine.name = fields.text("name");
  machine.accelerator = fields.text("accelerator");
  machine.num_accelerators = fields.count("accelerators");
  if (machine.num_accelerators == 0) {
    fields.fail("accelerators", "must be at least 1 (of a machine without any: accelerator = \"cpu\", accelerators = 1), got: 0");
  }
  if (machine.name.find_first_of(",=: ") != std::string::npos) {
    fields.fail("name", fmt::format("must hold no comma, colon, equals sign or blank, got: '{}'", machine.name));
  }
  machine.watts = fields.number("watts", kAboveZero);
  machine.origin = take_origin(fields);
  return machine;
}

Price take_price(TomlFields& fields) {
  Price price;
  price.machine = fields.text("machine");
  price.purchase = fields.choice("purchase", purchase_words());
  price.dollars_per_hour = fields.number("dollars_per_hour", kAboveZero);
  price.origin = take_origin(fields);
  return price;
}

Rate take_rate(TomlFields& fields) {
  Rate rate;
  rate.task = fields.choice("task", {"train", "encode", "download"});
  rate.accelerator = fields.text("accelerator");
  rate.resolution = fields.count_or("resolution", 0);
  if (rate.task != "download" && rate.resolution != 256 && rate.resolution != 512) {
    fields.fail("resolution", fmt::format("must be 256 or 512 for the task {}, got: {}", rate.task, rate.resolution));
  }
  rate.per_second = fields.number("per_second", kAboveZero);
  rate.origin = take_origin(fields);
  return rate;
}

Loss take_loss(TomlFields& fields) {
  Loss loss;
  loss.purchase = fields.choice("purchase", purchase_words());
  loss.hours_between = fields.number("hours_between", kAboveZero);
  loss.wait_hours = fields.number("wait_hours");
  loss.restart_hours = fields.number("restart_hours");
  loss.origin = take_origin(fields);
  return loss;
}

StorePrice take_store(TomlFields& fields) {
  StorePrice store;
  store.name = fields.text("name");
  store.dollars_per_gib_month = fields.number("dollars_per_gib_month");
  store.least_dollars_per_gib_month = fields.number_or("least_dollars_per_gib_month", store.dollars_per_gib_month);
  if (store.least_dollars_per_gib_month > store.dollars_per_gib_month) {
    fields.fail("least_dollars_per_gib_month", fmt::format("must be at most dollars_per_gib_month ({}), got: {}",
                                                           store.dollars_per_gib_month, store.least_dollars_per_gib_month));
  }
  store.dollars_per_1000_writes = fields.number("dollars_per_1000_writes");
  store.dollars_per_1000_reads = fields.number("dollars_per_1000_reads");
  store.dollars_per_gib_out = fields.number("dollars_per_gib_out");
  store.origin = take_origin(fields);
  return store;
}

Fact take_fact(TomlFields& fields) {
  Fact fact;
  fact.name = fields.text("name");
  const PlanFact* known = find_plan_fact(fact.name);
  if (known == nullptr && fields.status().is_ok()) {
    fields.fail("name", fmt::format("names a fact that plans do not use; did you mean '{}'? got: '{}'",
                                    nearest_word(plan_fact_names(), fact.name), fact.name));
  }
  const bool may_be_zero = known != nullptr && known->may_be_zero;
  fact.value = fields.number("value", may_be_zero ? NumberRange{} : kAboveZero);
  if (known != nullptr) {
    fact.unit = known->unit;
    fact.label = known->label;
    if (fact.value > known->most) {
      fields.fail("value", fmt::format("must be at most {}, got: {}", known->most, fact.value));
    }
  }
  fact.range = {fields.number_or("low", fact.value), fields.number_or("high", fact.value)};
  if (!(fact.range.low <= fact.value && fact.value <= fact.range.high) || (known != nullptr && fact.range.high > known->most)) {
    fields.fail("value", fmt::format("must lie between low ({}) and high ({}), got: {}", fact.range.low, fact.range.high, fact.value));
  }
  fact.origin = take_origin(fields);
  return fact;
}

RangedFigure take_range(TomlFields& fields) {
  RangedFigure figure;
  figure.name = fields.text("name");
  figure.value = {fields.number("low"), fields.number("high")};
  if (figure.value.high < figure.value.low) {
    fields.fail("high", fmt::format("must not be below low ({}), got: {}", figure.value.low, figure.value.high));
  }
  // At a rate of 0 nothing ever ends.
  if (figure.value.low == 0 && (figure.name.ends_with("_per_second") || figure.name.ends_with("_per_core_second"))) {
    fields.fail("low", "must be above 0, got: 0");
  }
  figure.unit = fields.text("unit");
  figure.origin = take_origin(fields);
  return figure;
}

Published take_published(TomlFields& fields) {
  Published published;
  published.figure = fields.text("figure");
  published.value = fields.number("value", kAboveZero);
  published.origin = take_origin(fields);
  return published;
}

// What tells two lines of a kind apart.
std::string key_of(const Machine& one) { return one.name; }
std::string key_of(const Price& one) { return one.machine + " " + one.purchase; }
std::string key_of(const Rate& one) { return fmt::format("{} {} {}", one.task, one.accelerator, one.resolution); }
std::string key_of(const Loss& one) { return one.purchase; }
std::string key_of(const StorePrice& one) { return one.name; }
std::string key_of(const Fact& one) { return one.name; }
std::string key_of(const RangedFigure& one) { return one.name; }
std::string key_of(const Published& one) { return one.figure; }

/// Reads every [[key]] with `take`; one goes over the line of `list` with its key.
template <typename T, typename Take>
Status take_list(TomlFields& file, const std::string& key, std::vector<T>& list, Take take) {
  std::set<std::string> keys;
  for (TomlFields& fields : file.tables(key)) {
    T line = take(fields);
    DARKROOM_RETURN_IF_ERROR(fields.finish());
    if (!keys.insert(key_of(line)).second) {
      return Status::invalid_argument(fmt::format("{} comes twice, remove one:", fields.where()), key_of(line));
    }
    const auto known = std::find_if(list.begin(), list.end(), [&](const T& one) { return key_of(one) == key_of(line); });
    if (known == list.end()) {
      list.push_back(std::move(line));
    } else {
      *known = std::move(line);
    }
  }
  return file.status();
}

Status check_machines(const Catalogue& catalogue) {
  for (const Price& price : catalogue.prices) {
    if (catalogue.machine(price.machine) == nullptr) {
      std::vector<std::string> names;
      for (const Machine& machine : catalogue.machines) {
        names.push_back(machine.name);
      }
      return Status::invalid_argument(fmt::format("{}: a [[price]] is of a machine that has no [[machine]]; did you mean '{}'? machine:",
                                                  catalogue.name, nearest_word(names, price.machine)),
                                      price.machine);
    }
  }
  return Status::ok();
}

Status check_facts(const Catalogue& catalogue) {
  for (const std::string& name : plan_fact_names()) {
    if (catalogue.fact(name) == nullptr) {
      return Status::invalid_argument(fmt::format("{}: a [[fact]] that every plan needs is missing, name:", catalogue.name), name);
    }
  }
  return catalogue.stores.empty() ? Status::invalid_argument(fmt::format("{}: there must be a [[store]]", catalogue.name)) : Status::ok();
}

}  // namespace

const Machine* Catalogue::machine(std::string_view wanted) const {
  return find_in(machines, [&](const Machine& one) { return one.name == wanted; });
}

const Price* Catalogue::price(std::string_view machine_name, std::string_view purchase) const {
  return find_in(prices, [&](const Price& one) { return one.machine == machine_name && one.purchase == purchase; });
}

const Rate* Catalogue::rate(std::string_view task, const Machine& of, int64_t resolution) const {
  const auto rank = [&](const Rate& one) { return std::tuple(one.layer, one.accelerator == of.name, one.resolution == resolution); };
  const Rate* best = nullptr;
  for (const Rate& one : rates) {
    const bool fits = one.task == task && (one.accelerator == of.name || one.accelerator == of.accelerator) &&
                      (one.resolution == resolution || one.resolution == 0);
    best = fits && (best == nullptr || rank(one) > rank(*best)) ? &one : best;
  }
  return best;
}

const Loss* Catalogue::loss(std::string_view purchase) const {
  return find_in(losses, [&](const Loss& one) { return one.purchase == purchase; });
}

const StorePrice* Catalogue::store(std::string_view wanted) const {
  return find_in(stores, [&](const StorePrice& one) { return one.name == wanted; });
}

const Fact* Catalogue::fact(std::string_view wanted) const {
  return find_in(facts, [&](const Fact& one) { return one.name == wanted; });
}

std::string nearest_word(const std::vector<std::string>& known, std::string_view word) {
  const auto nearest = std::ranges::min_element(known, {}, [&](const std::string& one) { return typing_mistakes(one, word); });
  return nearest == known.end() ? "" : *nearest;
}

Result<RangedFigure> Catalogue::find(const std::string& wanted) const {
  if (const RangedFigure* range = find_in(ranges, [&](const RangedFigure& one) { return one.name == wanted; })) {
    return *range;
  }
  const auto of_fact = [&](const char* fact_name, double factor, const char* unit) -> Result<RangedFigure> {
    const Fact* known = fact(fact_name);
    return known == nullptr
               ? Result<RangedFigure>(Status::failed_precondition("the catalogue lacks a figure that the estimate needs:", fact_name))
               : RangedFigure{wanted, {known->range.low * factor, known->range.high * factor}, unit, known->origin};
  };
  if (wanted == "picture_bytes") {
    return of_fact("picture_bytes", 1, "bytes per picture that arrives");
  }
  if (wanted == "good_rows_percent") {
    return of_fact("download_success", 100, "% of the rows whose picture arrives");
  }
  const bool has_store = !stores.empty();
  if (has_store && wanted == "storage_dollars_per_gib_month") {
    const StorePrice& first = stores.front();
    return RangedFigure{
        wanted, {first.least_dollars_per_gib_month, first.dollars_per_gib_month}, "US dollars per GiB and month", first.origin};
  }
  if (has_store && (wanted == "dollars_per_thousand_writes" || wanted == "dollars_per_thousand_reads")) {
    const bool writes = wanted == "dollars_per_thousand_writes";
    const double price_of_1000 = writes ? stores.front().dollars_per_1000_writes : stores.front().dollars_per_1000_reads;
    return RangedFigure{wanted,
                        {price_of_1000, price_of_1000},
                        writes ? "US dollars per 1,000 PUT, POST and LIST requests" : "US dollars per 1,000 GET and HEAD requests",
                        stores.front().origin};
  }
  return Status::failed_precondition("the catalogue lacks a figure that the estimate needs:", wanted);
}

Status Catalogue::add(std::string_view toml, const std::string& file_name) {
  DARKROOM_ASSIGN_OR_RETURN(const toml::table table, parse_toml(toml, file_name));
  TomlFields file(table, file_name, "");
  if (const int64_t format = file.count("format"); format != kCatalogueFormat) {
    file.fail("format", fmt::format("must be {}, got: {}", kCatalogueFormat, format));
  }
  DARKROOM_RETURN_IF_ERROR(file.status());
  Catalogue grown = *this;
  grown.name += (name.empty() ? "" : " with ") + file_name;
  DARKROOM_RETURN_IF_ERROR(take_list(file, "machine", grown.machines, take_machine));
  DARKROOM_RETURN_IF_ERROR(take_list(file, "price", grown.prices, take_price));
  DARKROOM_RETURN_IF_ERROR(take_list(file, "rate", grown.rates, [&](TomlFields& fields) {
    Rate rate = take_rate(fields);
    rate.layer = num_files;
    return rate;
  }));
  ++grown.num_files;
  DARKROOM_RETURN_IF_ERROR(take_list(file, "loss", grown.losses, take_loss));
  DARKROOM_RETURN_IF_ERROR(take_list(file, "store", grown.stores, take_store));
  DARKROOM_RETURN_IF_ERROR(take_list(file, "fact", grown.facts, take_fact));
  DARKROOM_RETURN_IF_ERROR(take_list(file, "range", grown.ranges, take_range));
  DARKROOM_RETURN_IF_ERROR(take_list(file, "published", grown.published, take_published));
  DARKROOM_RETURN_IF_ERROR(file.finish());
  *this = std::move(grown);
  return Status::ok();
}

Status Catalogue::validate() const {
  DARKROOM_RETURN_IF_ERROR(check_machines(*this));
  return check_facts(*this);
}

Result<Catalogue> parse_catalogue(std::string_view toml, const std::string& file) {
  Catalogue catalogue;
  DARKROOM_RETURN_IF_ERROR(catalogue.add(toml, file));
  DARKROOM_RETURN_IF_ERROR(catalogue.validate());
  return catalogue;
}

Result<Catalogue> load_catalogue(FileSystem& files, const std::string& shipped, const std::string& own) {
  Catalogue catalogue;
  DARKROOM_ASSIGN_OR_RETURN(const std::string text, read_file(files, shipped));
  DARKROOM_RETURN_IF_ERROR(catalogue.add(text, kCatalogueResource));
  if (!own.empty()) {
    const auto own_text = read_file(files, own);
    if (!own_text.is_ok()) {
      return Status::invalid_argument("cannot read the catalogue of prices:", own_text.status().message());
    }
    DARKROOM_RETURN_IF_ERROR(catalogue.add(*own_text, own));
  }
  DARKROOM_RETURN_IF_ERROR(catalogue.validate());
  return catalogue;
}

}  // namespace darkroom
